"""What docstrings state about costs is what the schedules cost, and nothing beats what can be."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collx.__main__ import main
from collx.collectives import FAMILIES, Call, Shape
from collx.cost import (
    Bound,
    Count,
    Statement,
    TooLong,
    count,
    equal_blocks,
    evaluate,
    log,
    lower_bound,
    parse_cost,
    stated,
)
from collx.neighborhood import with_graph
from collx.patterns.neighbors import coordinates, listed, rank_at
from collx.registry import Algorithm, Need, Promise, algorithms, everything
from collx.schedule import EMPTY, TOKEN, Combine, Copy, Recv, RecvInts, Send, SendInts, Steps
from collx.shapes import meets

ALGORITHMS = {f"{a.family}.{a.name}": a for a in everything()}
SIZES = (2, 3, 4, 5, 7, 8, 9, 16)


def counts(algorithm: Algorithm) -> dict[int, Count]:
    """Costs on the sizes that the algorithm can do, for 120 cells per rank."""
    shapes = {P: equal_blocks(algorithm.family, P, 120 * P) for P in SIZES}
    return {P: count(algorithm, shape) for P, shape in shapes.items() if meets(algorithm, shape)}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_stated_cost_holds(name: str) -> None:
    algorithm = ALGORITHMS[name]
    statements = stated(algorithm)

    assert {"rounds", "messages"} & {statement.name for statement in statements}
    for P, counted in counts(algorithm).items():
        cell_bytes = equal_blocks(algorithm.family, P, 120 * P).cell_bytes
        for statement in statements:
            value = evaluate(statement.expression, P, 120 * P, algorithm.defaults, cell_bytes)
            assert statement.holds(counted, value), (P, statement, value, counted)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_beats_the_lower_bound(name: str) -> None:
    for P, counted in counts(ALGORITHMS[name]).items():
        bound = lower_bound(ALGORITHMS[name].family, P, 120 * P, counted.ports)

        assert counted.rounds >= bound.rounds, P
        assert counted.volume >= bound.volume, P


def once(family: str, schedule: dict[int, Steps]) -> Algorithm:
    """An algorithm that does this, whatever the call."""
    return Algorithm(
        "once", family, lambda call: schedule[call.rank], Need.NOTHING, Promise.NOTHING, "", {}, {}
    )


def tokens(*peers: int) -> list[Send]:
    return [Send(TOKEN, to=peer) for peer in peers]


def test_rounds_are_the_longest_chain() -> None:
    """Rank 1 waits for rank 0's second message, then rank 2 for rank 1; rank 3 waits for nobody."""

    def zero() -> Steps:
        yield tokens(3)
        yield tokens(1)

    def one() -> Steps:
        yield Recv(TOKEN, source=0)
        yield tokens(2)

    def two() -> Steps:
        yield Recv(TOKEN, source=1)

    def three() -> Steps:
        yield Recv(TOKEN, source=0)

    counted = count(
        once("barrier", {0: zero(), 1: one(), 2: two(), 3: three()}),
        Shape("barrier", 4, (0, 0, 0, 0)),
    )

    assert counted == Count(rounds=3, ports=1, messages=2)


def test_rounds_without_messages_take_no_time() -> None:
    def steps(call: Call) -> Steps:
        yield Copy(call.output, call.input)
        yield Send(EMPTY, to=call.right), Recv(EMPTY, source=call.left)
        yield Copy(call.output, call.output)

    counted = count(
        Algorithm("local", "allreduce", steps, Need.NOTHING, Promise.NOTHING, "", {}, {}),
        Shape("allreduce", 2, (3, 3)),
    )

    assert counted == Count(copied=6)


def test_cells_of_the_busiest_rank_and_bytes_between_nodes() -> None:
    def steps(call: Call) -> Steps:
        if call.rank == 0:
            yield [Send(call.input, to=1), Send(call.input, to=2)]
        else:
            room = call.scratch(len(call.input))
            yield Recv(room, source=0, left=call.input)
            yield Combine(call.output, room, room)

    counted = count(
        Algorithm("fan", "allreduce", steps, Need.NOTHING, Promise.NOTHING, "", {}, {}),
        Shape("allreduce", 3, (1, 1, 1), cell_bytes=8, nodes=(0, 0, 1)),
    )

    assert counted == Count(1, 2, messages=2, sent=6, received=3, combined=6, crossing=24)
    assert counted.volume == 6
    assert counted.in_bytes(8) == Count(1, 2, 2, 48, 24, 48, crossing=24)


def test_integers_are_messages_without_cells() -> None:
    def steps(call: Call) -> Steps:
        got = yield SendInts((call.rank, 7), to=call.right), RecvInts(2, source=call.left)
        assert got == [(call.left, 7)]

    counted = count(
        Algorithm("ints", "barrier", steps, Need.NOTHING, Promise.NOTHING, "", {}, {}),
        Shape("barrier", 3, (0, 0, 0)),
    )

    assert counted == Count(rounds=1, ports=1, messages=1)


def test_counting_can_be_limited() -> None:
    with pytest.raises(TooLong):
        count(algorithms("allgather")["ring"], equal_blocks("allgather", 64, 640), limit=1000)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no line 'Cost: rounds"),
        ("rounds", "cannot read 'rounds': write name = expression"),
        ("steps = 1", "cannot read 'steps = 1': write name = expression, name of rounds, ports"),
        ("rounds = P -", "cannot read 'P -': invalid syntax"),
        ("rounds = Q", "there is no 'Q' here"),
        ("rounds = sqrt(P)", "there is no 'sqrt' here"),
        ("rounds = P.bit_length()", "Attribute is not allowed"),
        ("rounds = [P]", "List is not allowed"),
        ("rounds = (lambda: P)()", "Lambda is not allowed"),
        ("rounds = __import__(P)", "there is no '__import__' here"),
    ],
)
def test_unreadable_cost_is_explained(text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the text is compared below
        parse_cost(text, {})

    assert complaint in str(error.value)


def test_missing_cost_names_the_algorithm() -> None:
    def silent(call: Call) -> Steps:
        """Do nothing."""
        yield ()

    marked = Algorithm("silent", "bcast", silent, Need.NOTHING, Promise.NOTHING, "", {}, {})

    with pytest.raises(ValueError, match=r"bcast\.silent: no line 'Cost: "):
        stated(marked)


def test_commas_in_calls_do_not_cut() -> None:
    statements = parse_cost("rounds <= max(P, log(n, radix)), sent = min(n, 2 * P)", {"radix": 2})

    assert statements == [
        Statement("rounds", "<=", "max(P, log(n, radix))"),
        Statement("sent", "=", "min(n, 2 * P)"),
    ]
    assert evaluate(statements[0].expression, 3, 16, {"radix": 2}) == 4


def test_segment_parameter_gives_cells() -> None:
    assert evaluate("n / m", 4, 64, {"segment": 64}, cell_bytes=8) == 8
    assert evaluate("n / m", 4, 64, {"segment": 0}, cell_bytes=8) == 1
    assert evaluate("2 if P > 3 else 1", 4, 64, {}) == 2


def test_equality_is_exact_and_bounds_are_bounds() -> None:
    counted = Count(rounds=3)

    assert Statement("rounds", "=", "").holds(counted, 3.0)
    assert not Statement("rounds", "=", "").holds(counted, 4)
    assert Statement("rounds", "<=", "").holds(counted, 4)
    assert not Statement("rounds", "<=", "").holds(counted, 2)


@given(st.integers(2, 20), st.integers(0, 6))
def test_logarithm_of_a_power_is_exact(base: int, exponent: int) -> None:
    assert log(base**exponent, base) == exponent
    assert math.ceil(log(base**exponent + 1, base)) == exponent + 1


@given(st.sampled_from(FAMILIES), st.integers(1, 70), st.integers(0, 500), st.integers(1, 4))
def test_bounds_are_monotonous(family: str, P: int, n: int, ports: int) -> None:
    bound = lower_bound(family, P, n, ports)

    assert bound.rounds <= lower_bound(family, P, n, 1).rounds
    assert bound.rounds <= lower_bound(family, P + 2, n, ports).rounds
    assert bound.volume <= 2 * n
    assert P > 1 or bound == Bound(0, 0)


@pytest.mark.parametrize(
    ("counted", "met"),
    [
        (Count(rounds=3, sent=8), "rounds"),
        (Count(rounds=4, sent=7, received=7), "volume"),
        (Count(rounds=3, sent=7), "both"),
        (Count(rounds=4, received=8), ""),
    ],
)
def test_optimal_is_what_meets_a_bound(counted: Count, met: str) -> None:
    assert lower_bound("allgather", 8, 8).met_by(counted) == met


def test_command_line_shows_costs(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["cost", "--collective", "allgather", "--sizes", "7,400"])

    printed = capsys.readouterr().out
    ring = [line.split() for line in printed.splitlines() if line.split()[:1] == ["ring"]]
    assert status == 0
    assert "allgather, P = 7, n = 840: at least 3 rounds (one message at a time), 720" in printed
    assert ring[0] == ["ring", "6", "1", "720", "720", "0", "optimal:", "volume"]
    assert "too long to count; stated: rounds = 399" in " ".join(ring[1])
    assert "needs a power of two" in printed or not any(
        Need.POWER_OF_TWO in a.needs for a in algorithms("allgather").values()
    )


@pytest.mark.parametrize(
    ("family", "cells"), [("neighbor_alltoall", 54), ("neighbor_allgather", 26)]
)
def test_combining_on_a_torus_takes_six_messages_for_26_neighbors(family: str, cells: int) -> None:
    dims = (4, 4, 4)
    steps = [step for step in product((-1, 0, 1), repeat=3) if any(step)]
    around = [
        [rank_at([(a + b) % 4 for a, b in zip(coordinates(rank, dims), step, strict=True)], dims)
         for step in steps]
        for rank in range(64)
    ]  # fmt: skip
    neighbors = with_graph([listed(ranks[::-1], ranks) for ranks in around])
    shape = Shape(family, 64, (1,) * 64, neighbors=neighbors)

    assert count(algorithms(family)["linear"], shape).messages == 26
    counted = count(algorithms(family)["combining"], shape, dims=dims)
    assert (counted.rounds, counted.messages, counted.sent) == (3, 6, cells)
