"""The benchmark: its parts, a small run, and that it finds what is wrong."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch import mpiexec

from collx.bench import candidates, report
from collx.bench.contents import Data
from collx.bench.options import parsed
from collx.bench.places import base, call_name, fits, lower
from collx.bench.problems import GUARD, Problem, first_wrong
from collx.bench.timing import Cell, Row
from collx.bench.validation import Seen
from collx.collectives import COLLECTIVES, MEANING

BENCH = (sys.executable, "-m", "collx.bench")

BROKEN = """
import sys
from collx.bench.__main__ import main
from collx.registry import Need, Promise, algorithm
from collx.schedule import Combine, Copy, Recv, Send

@algorithm(family="{collective}", needs=Need.COMMUTATIVE, promises=Promise.SAME_BITS)
def broken(call):
    '''Do {kind}.'''
    if "{kind}" == "nothing":
        yield (Copy(call.output, call.input),)
    if "{kind}" == "fail on one rank":
        yield (Copy(call.output, call.input),)
        if call.rank == 1:
            raise RuntimeError("as told")
    if "{kind}" == "wait for ever":
        yield (Recv(call.output, source=call.left),)
    if "{kind}" == "add in an order of its own":
        mine, other = call.scratch(len(call.input)), call.scratch(len(call.input))
        yield (Copy(mine, call.input),)
        sends = [Send(mine, to=peer) for peer in (call.left, call.right)]
        yield (*sends, Recv(call.output, source=call.left), Recv(other, source=call.right))
        yield (Combine(call.output, other, call.output),)
        yield (Combine(call.output, mine, call.output),)

sys.exit(main(["--collective", "{collective}", "--algorithm", "broken", *{options}]))
"""


def run_broken(kind: str, status: int, *options: str, collective: str = "allreduce") -> str:
    script = BROKEN.format(kind=kind, options=options, collective=collective)
    with pytest.raises(AssertionError) as failure:
        mpiexec(3, sys.executable, "-c", script)
    assert f"exit status {status}\n" in str(failure.value)
    return str(failure.value)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("nothing", "rank 0: element 0 is "),
        ("fail on one rank", "RuntimeError: as told"),
        ("add in an order of its own", "the results of the ranks are not equal bit for bit"),
    ],
)
def test_a_wrong_algorithm_is_named_and_gives_status_1(kind: str, fault: str) -> None:
    output = run_broken(kind, 1, "--budget", "20", "--sizes", "64", "--repetitions", "5")

    named = [line for line in output.splitlines() if line.startswith("FAILED allreduce broken (64")]
    assert fault in named[0]
    assert ", 1 wrong (" in output


@pytest.mark.parametrize("collective", ["neighbor_alltoall", "inter_allreduce"])
def test_wrong_algorithms_among_neighbors_and_between_groups_are_named(collective: str) -> None:
    options = ("--budget", "5", "--sizes", "64", "--repetitions", "5")
    output = run_broken("nothing", 1, *options, collective=collective)

    assert f"FAILED {collective} broken (" in output
    assert ", 1 wrong (" in output


def test_a_hanging_algorithm_is_named_and_gives_status_3() -> None:
    output = run_broken("wait for ever", 3, "--timeout", "8")

    assert "rank 0 was in: allreduce broken (64 bytes)" in output


def test_wrong_usage_gives_status_2_and_one_message() -> None:
    with pytest.raises(AssertionError) as failure:
        mpiexec(2, *BENCH, "--collective", "broadcast")

    assert "exit status 2\n" in str(failure.value)
    assert str(failure.value).count("no collective 'broadcast'; there are: barrier, bcast") == 1


def test_everything_is_right_on_three_ranks(tmp_path: Path) -> None:
    done = mpiexec(
        3, *BENCH, "--full", "--budget", "12", "--sizes", "8,1K", "--dtype", "float32",
        "--json", tmp_path / "all.json", "--csv", tmp_path / "all.csv",
    )  # fmt: skip

    document = json.loads((tmp_path / "all.json").read_text())
    lines = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    assert ", 0 wrong (" in done.stdout
    assert document["failures"] == []
    assert {f"{name} native" for name in candidates.measurable()} <= set(
        document["validation"]["candidates"]
    )
    cells = [(row, cell) for row in document["rows"] for cell in row["cells"]]
    assert len(lines) == len(cells)
    for line, (row, cell) in zip(lines, cells, strict=True):
        assert (line["collective"], line["algorithm"]) == (row["collective"], cell["algorithm"])
        assert int(line["repetitions"]) == len(cell["maxima_ns"])
        assert (cell["interval_ns"] is None) == (len(cell["maxima_ns"]) < 5)


def test_one_rank_has_neighbors_but_no_groups() -> None:
    names = "neighbor_alltoall,inter_allreduce,inter_barrier"
    done = mpiexec(1, *BENCH, "--collective", names, "--budget", "2", "--sizes", "8")

    assert "\nneighbor_alltoall " in done.stdout
    assert "\ninter_" not in done.stdout
    assert "Not measured: collectives between two groups, since there is only one rank." in (
        done.stdout
    )


def test_nothing_to_measure_is_no_error() -> None:
    done = mpiexec(1, *BENCH, "--collective", "inter_allreduce", "--budget", "2")

    assert "Validated: 0 algorithms in 0 calls, 0 wrong" in done.stdout


def test_list_names_parameters_needs_and_promises() -> None:
    done = mpiexec(2, *BENCH, "--list", "--collective", "allreduce")

    assert "allreduce.recursive_doubling" in done.stdout
    assert done.stdout.count("allreduce.ring(") == 1
    assert "needs:" in done.stdout
    assert "promises:" in done.stdout


def test_options() -> None:
    options = parsed(["--sizes", "8,1K", "--dtype", "int32", "--op", "max", "--budget", "5"])

    assert options.sizes == (8, 1024)
    assert (options.dtype, options.op) == ("int32", "MAX")
    assert options.timeout == 65
    assert set(options.collectives) == set(candidates.usual())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "8,x"], "cannot read 'x'"),
        (["--sizes", "0"], "cannot read '0'"),
        (["--op", "PLUS"], "no operator 'PLUS'"),
        (["--dtype", "complex128", "--op", "MAX"], "MPI does not define MAX for complex128"),
        (["--dtype", "U4"], "not a number"),
        (["--algorithm", "nothing"], "no algorithm 'nothing'"),
        (["--algorithm", "ring(colour=3)"], "no algorithm 'ring(colour=3)'"),
        (["--budget", "-1"], "--budget must be more than 0"),
        (["--json", "/no/such/folder/file"], "No such file"),
    ],
)
def test_wrong_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed(arguments)

    assert message in capsys.readouterr().err


def test_only_collectives_that_have_the_algorithm_are_measured() -> None:
    assert "barrier" not in parsed(["--algorithm", "ring"]).collectives


@pytest.mark.parametrize("ranks", [1, 2, 3, 64])
@pytest.mark.parametrize("collective", candidates.measurable())
def test_sizes_are_whole_elements_and_at_least_what_was_asked(collective: str, ranks: int) -> None:
    if not fits(collective, ranks):
        return
    sizes = candidates.block_sizes(collective, 10, ranks)

    assert len(sizes) == ranks
    assert sum(sizes) >= 10 or base(collective) == "barrier"
    if COLLECTIVES[collective].family == "inter_reduce_scatter":
        low = lower(ranks)
        assert sum(sizes[:low]) == sum(sizes[low:])
        assert all(max(half) - min(half) <= 1 for half in (sizes[:low], sizes[low:]))
        return
    equal = call_name(collective).removeprefix("neighbor_") in candidates.EQUAL
    assert sum(sizes) < 10 + ranks
    assert max(sizes) - min(sizes) <= (not equal)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("collective", candidates.measurable())
def test_what_must_come_out_is_what_the_collective_means(collective: str, ranks: int) -> None:
    if not fits(collective, ranks):
        return
    data = Data(ranks, np.dtype("i8"), "SUM")
    sizes, root = candidates.uneven_sizes(collective, ranks), ranks // 2
    for rank in range(ranks):
        at = Problem(data, rank, collective, sizes, root)
        terms = MEANING[at.row.family](at.shape, rank)
        want = [int(data.result(t.ranks, t.cell, t.cell + 1)[0][0]) for t in terms if t.ranks]
        got = at.sides.expected
        assert ([] if got is None else got.tolist()) == want


def test_ranks_of_a_group_must_have_the_same_bits() -> None:
    none = -(2**62)

    assert not Seen(0, 0, 0, 0, (5, -5, none, none)).differ
    assert not Seen(0, 0, 0, 0, (5, -5, 7, -7)).differ
    assert Seen(0, 0, 0, 0, (5, -4, none, none)).differ
    assert Seen(0, 0, 0, 0, (5, -5, 7, -6)).differ


def problem(collective: str = "allreduce", **options: Any) -> Problem:
    data = Data(3, np.dtype(options.pop("dtype", "float64")), options.pop("op", "SUM"))
    made = Problem(data, 0, collective, [2, 2, 2], **options)
    made.reset()
    return made


def received(of: Problem) -> Any:
    return of.arguments()[0][1]


def test_the_result_is_right_within_the_bound() -> None:
    good = problem()
    received(good)[:] = good.sides.expected
    assert good.fault() == ""

    received(good)[4] += 2.0**-52
    assert good.fault() == ""

    received(good)[4] += 2.0**-45
    assert good.fault().startswith("element 4 is ")


def test_integers_must_be_equal() -> None:
    good = problem(dtype="int32")
    received(good)[:] = good.sides.expected
    assert good.fault() == ""

    received(good)[5] += 1
    assert good.fault().startswith("element 5 is ")


def test_nothing_received_is_wrong() -> None:
    for dtype in ("int8", "float32", "complex128"):
        assert problem(dtype=dtype).fault()


def test_not_a_number_is_wrong() -> None:
    assert first_wrong(np.array([np.nan]), np.array([1.0]), np.array([1.0]))


@pytest.mark.parametrize(("place", "word"), [(GUARD - 1, "before"), (-GUARD, "behind")])
def test_guard_bytes_are_watched(place: int, word: str) -> None:
    good = problem()
    received(good)[:] = good.sides.expected
    assert good._recv is not None
    good._recv._raw[place] = 0

    assert good.fault() == f"wrote {word} the receive buffer"


def test_the_send_buffer_is_watched() -> None:
    good = problem()
    received(good)[:] = good.sides.expected
    good.arguments()[0][0][3] = 0

    assert good.fault() == "changed the send buffer"


def test_in_place_the_contribution_lies_in_the_receive_buffer() -> None:
    gathering = Problem(Data(3, np.dtype("i8"), "SUM"), 1, "allgather", [2, 2, 2], in_place=True)
    gathering.reset()

    assert gathering.sides.send is not None
    assert received(gathering)[2:4].tolist() == gathering.sides.send.tolist()


def row(*samples: tuple[str, list[int]]) -> Row:
    own = candidates.Candidate("allreduce", candidates.Choice("ring"))
    made = Row("allreduce", 1024, own)
    for name, maxima in samples:
        choice = None if name == "native" else candidates.Choice(name)
        cell = Cell(candidates.Candidate("allreduce", choice), lambda: None, maxima=maxima)
        made.cells.append(cell)
    return made


def test_table() -> None:
    measured = row(("native", [4000] * 5), ("ring", [8000] * 5), ("bruck", [2000] * 5))

    head, line = report.table([measured])

    assert head.split() == [
        *("bytes", "n", "native", "us", "collx's", "choice", "us", "ratio"),
        *("best", "algorithm", "us", "ratio"),
    ]
    assert line.split() == [
        *("allreduce", "1K", "5", "4.0", "ring", "8.0", "2.00", "[2.00,", "2.00]"),
        *("bruck", "2.0", "0.50", "[0.50,", "0.50]"),
    ]


def test_no_interval_below_five_repetitions_and_no_ratio_without_native() -> None:
    few = row(("native", [4000] * 4), ("ring", [8000] * 4))
    alone = row(("ring", [8000] * 5))

    assert list(report.table([few]))[1].split() == [
        *("allreduce", "1K", "4", "4.0", "ring", "8.0", "2.00", "ring", "8.0", "2.00"),
    ]
    assert list(report.table([alone]))[1].split()[3:7] == ["-", "ring", "8.0", "-"]
