"""Every algorithm is right, and the verifier finds what is wrong.

The verifier is checked in three ways: algorithms with one deliberate mistake each must be caught;
random changes to right algorithms must be caught unless NumPy says that they change nothing; and
the meaning of each collective is computed once more with NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy_ranks
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collx.__main__ import main
from collx.collectives import COLLECTIVES, Call, Shape, call_of
from collx.interleave import Fault, Interleaving
from collx.registry import (
    Algorithm,
    Need,
    NeedsError,
    Promise,
    algorithm,
    algorithms,
    everything,
    unregister,
)
from collx.schedule import (
    EMPTY,
    INPUT,
    OUTPUT,
    TOKEN,
    Action,
    Combine,
    Copy,
    Recv,
    RecvInts,
    Region,
    Round,
    Schedule,
    Send,
    SendInts,
    Steps,
    Transfer,
)
from collx.shapes import cases
from collx.verify import verify

Case: TypeAlias = "tuple[Shape, dict[str, Any]]"
ALGORITHMS = {f"{a.family}.{a.name}": a for a in everything()}


def some_cases(wanted: Algorithm, size: int, most: int) -> list[Case]:
    """At most so many of the cases to try, spread over all of them."""
    tried = list(cases(wanted, size, thorough=False))
    return tried[:: -(-len(tried) // most)] if tried else []


@contextmanager
def more_may_be_needed(parameters: dict[str, Any]) -> Iterator[None]:
    """Let an algorithm refuse a case if a parameter names one that needs more than itself."""
    try:
        yield
    except NeedsError:
        assert parameters, "the defaults must need no more than the algorithm says"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_is_right(name: str) -> None:
    for size in (1, 2, 3, 4, 5, 7, 8):
        for shape, parameters in some_cases(ALGORITHMS[name], size, most=40):
            with more_may_be_needed(parameters):
                verify(ALGORITHMS[name], shape, **parameters)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_the_passes_make_of_it_is_right(name: str) -> None:
    for size in (2, 3, 4, 5, 8):
        for shape, parameters in some_cases(ALGORITHMS[name], size, most=12):
            with more_may_be_needed(parameters):
                verify(ALGORITHMS[name], shape, after_passes=True, **parameters)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_numpy_gets_the_same(name: str) -> None:
    for size in (2, 3, 4, 5):
        for shape, parameters in some_cases(ALGORITHMS[name], size, most=6):
            with more_may_be_needed(parameters):
                assert numpy_ranks.wrong(ALGORITHMS[name], shape, parameters, seed=size) == ""


def test_command_line_verifies_a_collective(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["verify", "--collective", "Barrier", "--sizes", "1-5,8", "--jobs", "1"])

    printed = capsys.readouterr().out
    assert status == 0
    assert all(f"barrier.{name}" in printed for name in algorithms("barrier"))
    assert " 0 wrong" in printed.splitlines()[-1]


def test_command_line_verifies_in_several_processes(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["verify", "--algorithm", "allgather.ring", "--max-size", "3", "--jobs", "2"])

    assert status == 0
    assert capsys.readouterr().out.startswith("allgather.ring")


# Deliberate mistakes: what the text of the fault must say, and the algorithm.


class Mistake(NamedTuple):
    """An algorithm with one mistake, what its fault says, and facts of a shape that show it."""

    says: str
    algorithm: Algorithm
    facts: dict[str, Any]


MISTAKES: dict[str, Mistake] = {}


def mistake(
    family: str, says: str, promises: Promise = Promise.NOTHING, **facts: Any
) -> Callable[[Callable[[Call], Steps]], None]:
    """Note an algorithm with a mistake."""

    def mark(function: Callable[[Call], Steps]) -> None:
        marked = algorithm(family=family, promises=promises)(function)
        unregister(marked)
        MISTAKES[marked.name] = Mistake(says, marked, facts)

    return mark


def first_fault(wrong: Algorithm, facts: dict[str, Any]) -> str:
    faults = (
        fault_of(wrong, Shape(wrong.family, size, (2,) * size, **facts)) for size in (2, 3, 4, 5)
    )
    return next(filter(None, faults), "nothing found")


def fault_of(algorithm: Algorithm, shape: Shape) -> str:
    try:
        verify(algorithm, shape)
    except Fault as fault:
        return str(fault)
    return ""


def everybody_sends(call: Call, to: int, source: int) -> Steps:
    """A round of an allgather in which each rank sends its own block."""
    yield Send(call.input, to=to % call.size), Recv(call.output_blocks[source], source % call.size)


@mistake("allgather", r"deadlock: rank \d, round \d waits for rank \d to (send|receive)")
def wrong_peer(call: Call) -> Steps:
    yield Copy(call.output_blocks[call.rank], call.input)
    for k in range(1, call.size):
        yield from everybody_sends(call, call.rank + k + (k > 1), call.rank - k)


@mistake("allgather", r"deadlock: .*, round \d waits for rank \d to receive")
def missing_receive(call: Call) -> Steps:
    yield Copy(call.output_blocks[call.rank], call.input)
    for k in range(1, call.size):
        if call.rank == 0 and k == call.size - 1:
            yield Send(call.input, to=(call.rank + k) % call.size)
        else:
            yield from everybody_sends(call, call.rank + k, call.rank - k)


@mistake("allgather", r"deadlock: rank \d, round \d waits for rank 0 to send")
def missing_send(call: Call) -> Steps:
    yield Copy(call.output_blocks[call.rank], call.input)
    for k in range(1, call.size):
        source = (call.rank - k) % call.size
        sends = [Send(call.input, to=(call.rank + k) % call.size)]
        yield [*sends * (call.rank > 0), Recv(call.output_blocks[source], source)]


@mistake("allgather", r"rank 0, at the end: cell \d of the output is never written")
def missing_exchange(call: Call) -> Steps:
    yield Copy(call.output_blocks[call.rank], call.input)
    for k in range(1, call.size - 1):
        yield from everybody_sends(call, call.rank + k, call.rank - k)


@mistake("allgather", r"deadlock: rank 0, round 0 waits for rank \d to (send|receive)")
def cyclic_waits(call: Call) -> Steps:
    yield Send(call.input, to=call.right)
    yield Recv(call.output_blocks[call.left], source=call.left)


@mistake("allgather", r"rank \d, round 0: no such rank in Send\(.*to=-?\d")
def no_such_peer(call: Call) -> Steps:
    yield Send(TOKEN, to=call.rank + 1)


@mistake("alltoall", r"rank \d, at the end: cell \d of the output (holds cell|lacks)")
def wrong_block(call: Call) -> Steps:
    for k in range(call.size):
        to, source = (call.rank + k) % call.size, (call.rank - k) % call.size
        if call.rank != source:
            yield Send(call.input_blocks[to - 1], to), Recv(call.output_blocks[source], source)
        else:
            yield Copy(call.output_blocks[call.rank], call.input_blocks[call.rank])


@mistake("alltoall", r"rank \d, round \d: Recv\(.* gets Send\(.* of rank \d: sizes differ")
def sizes_differ(call: Call) -> Steps:
    room = call.scratch(len(call.input) + len(call.output))
    yield Send(call.input, to=call.right), Recv(room, source=call.left)


@mistake("reduce", "combined in another order than that of the ranks", commutative=False)
def swapped_operands(call: Call) -> Steps:
    if call.rank != call.root:
        yield Send(call.input, to=call.root)
        return
    own = call.input
    for source in reversed(range(call.rank)):
        yield Recv(call.output, source, left=None, right=own)
        own = call.output
    for source in range(call.rank + 1, call.size):
        yield Recv(call.output, source, right=own)
        own = call.output


@mistake("allreduce", r"rank 0, round 1: counts rank \d twice in Region\(output")
def counted_twice(call: Call) -> Steps:
    for k in range(call.size):
        partial = call.input if k == 0 else call.output
        yield Send(partial, to=call.right), Recv(call.output, source=call.left, left=call.input)


@mistake("allreduce", r"P=3 .*at the end: cell 0 of the output lacks the contribution of rank \d")
def contribution_missing(call: Call) -> Steps:
    yield Send(call.input, to=call.right), Recv(call.output, source=call.left, left=call.input)


@mistake(
    "reduce_scatter", "rank 0, at the end: cell 0 of the output lacks the contribution of rank 1"
)
def own_contribution_only(call: Call) -> Steps:
    yield Copy(call.output, call.input_blocks[call.rank])


@mistake("scan", r"rank 0, at the end: cell 0 of the output contains rank \d, which does not")
def allreduce_for_scan(call: Call) -> Steps:
    yield from next(a for a in algorithms("allreduce").values() if not a.needs)(
        call.sub("allreduce", input=call.input, output=call.output)
    )


@mistake("allreduce", r"rank \d, round 0: combines cell \d with cell \d in Region\(output")
def cells_shifted(call: Call) -> Steps:
    half = call.input.part(1, len(call.input)) + call.input.part(0, 1)
    yield Send(half, to=call.right), Recv(call.output, source=call.left, right=call.input)


@mistake("allreduce", r"rank \d, at the end: .* against the promise SAME_BITS", Promise.SAME_BITS)
def false_promise(call: Call) -> Steps:
    inputs = [call.scratch(len(call.input)) for _ in range(call.size)]
    yield [Send(call.input, to=k) for k in range(call.size)] + [
        Recv(into, source) for source, into in enumerate(inputs)
    ]
    yield Copy(call.output, inputs[call.rank])
    for k in range(1, call.size):
        yield Combine(call.output, call.output, inputs[(call.rank + k) % call.size])


@mistake("allgather", r"rank \d, round 0: reads Region\(output\[.*\]\) before it is written")
def read_before_written(call: Call) -> Steps:
    blocks = call.output_blocks
    yield Send(blocks[call.left], to=call.right), Recv(blocks[call.left - 1], source=call.left)


@mistake("allgather", r"rank \d, round 0: writes Region\(input\[.*not its output or scratch")
def input_written(call: Call) -> Steps:
    yield Copy(Region((INPUT, 0, len(call.input))), call.input)


@mistake("bcast", r"rank 0, round 1: writes Region\(output\[.*not its output or scratch")
def root_written(call: Call) -> Steps:
    if call.rank != call.root:
        yield Recv(call.output, source=call.left)
    yield Send(call.output, to=call.right)
    if call.rank == call.root:
        yield Recv(call.output, source=call.left)


@mistake("bcast", r"rank \d, round 1: writes Region\(output\[0:5\]\), which is not its output")
def beyond_output(call: Call) -> Steps:
    longer = Region((OUTPUT, 0, len(call.output) + 1))
    if call.rank == call.root:
        yield [Send(call.output, to) for to in range(call.size) if to != call.root]
    else:
        room = call.scratch(len(call.output))
        yield Recv(room, source=call.root)
        yield Copy(longer, room + room.part(0, 1))


@mistake("bcast", r"rank 0, round 0: there is no buffer 7")
def no_such_buffer(call: Call) -> Steps:
    yield Copy(Region((7, 0, len(call.output))), call.output)


@mistake("bcast", r"rank 0, round 0: writes Region\(scratch0\[0:4\]\), which is not its output or")
def beyond_scratch(call: Call) -> Steps:
    buffer = call.scratch(len(call.output) - 1).pieces[0][0]
    yield Copy(Region((buffer, 0, len(call.output))), call.output)


@mistake("allgather", r"rank 0, round 1: writes Region\(scratch0.* while Region\(.* is in flight")
def written_while_sent(call: Call) -> Steps:
    saved = call.scratch(len(call.input))
    yield Copy(saved, call.input)
    yield (
        Send(saved, to=call.right),
        Recv(call.output_blocks[call.left], source=call.left),
        Copy(saved, call.input),
    )


@mistake("allgather", r"rank 0, round 0: reads Region\(.* while Region\(.* is in flight")
def read_while_received(call: Call) -> Steps:
    arriving = call.output_blocks[call.left]
    yield (
        Send(call.input, to=call.right),
        Recv(arriving, source=call.left),
        Copy(call.scratch(len(arriving)), arriving),
    )


@mistake("allreduce", r"rank 0, round 0: receives into Region\(scratch0\[.* is in flight")
def received_twice(call: Call) -> Steps:
    room = call.scratch(len(call.input))
    yield [Send(call.input, to) for to in range(call.size) if to != call.rank] + [
        Recv(room, source) for source in range(call.size) if source != call.rank
    ] * (1 + (call.size == 2))


@mistake("allreduce", r"writes Region\(scratch0\[1:\d+\]\) while it reads .*, which overlaps")
def overlapping_operands(call: Call) -> Steps:
    room, theirs = call.scratch(len(call.input) + 1), call.scratch(len(call.input))
    left, into = room.part(0, len(call.input)), room.part(1, len(room))
    yield Copy(left, call.input), Send(call.input, call.right), Recv(theirs, source=call.left)
    yield Combine(into, left, theirs)


@mistake("allgather", r"P=(3|5).* cell \d of the output|P=(3|5).* deadlock|P=(3|5).* before it is")
def off_by_one_for_odd_sizes(call: Call) -> Steps:
    blocks, rank, size = call.output_blocks, call.rank, call.size
    yield Copy(blocks[rank], call.input)
    for k in range(1, size // 2 + 1):
        exchanged = [Send(call.input, (rank + k) % size), Recv(blocks[rank - k], (rank - k) % size)]
        if 2 * k < size - 1:
            source = (rank + k) % size
            exchanged += [Send(call.input, (rank - k) % size), Recv(blocks[source], source)]
        yield exchanged


@mistake("alltoall", r"rank 0, at the end: cell 2 of the output holds cell 1 and not 0")
def overtaking_without_lanes(call: Call) -> Steps:
    yield Copy(call.output_blocks[call.rank], call.input_blocks[call.rank])
    for k in range(1, call.size):
        to, source = (call.rank + k) % call.size, (call.rank - k) % call.size
        send, into = call.input_blocks[to], call.output_blocks[source]
        yield (
            Send(send.part(0, 1), to),
            Send(send.part(1, 2), to),
            Recv(into.part(1, 2), source),
            Recv(into.part(0, 1), source),
        )


@mistake("barrier", r"rank \d, at the end: did not wait for rank \d")
def barrier_too_short(call: Call) -> Steps:
    distance = 1
    while 2 * distance < call.size:
        left, right = (call.rank - distance) % call.size, (call.rank + distance) % call.size
        yield Send(TOKEN, to=right), Recv(TOKEN, source=left)
        distance *= 2


@mistake("barrier", r"rank \d, at the end: did not wait for rank \d")
def barrier_of_nothing(call: Call) -> Steps:
    others = [rank for rank in range(call.size) if rank != call.rank]
    yield [Send(EMPTY, to) for to in others] + [Recv(EMPTY, source) for source in others]


@mistake("barrier", "deadlock: .* waits for rank 0 to send")
def token_and_nothing(call: Call) -> Steps:
    yield [Send(EMPTY, 1)] if call.rank == 0 else [Recv(TOKEN, 0)]


@mistake("barrier", r"RecvInts\(count=1.* gets SendInts\(values=\(1, 2\).*sizes differ")
def too_many_integers(call: Call) -> Steps:
    yield SendInts((1, 2), to=call.right), RecvInts(1, source=call.left)


@mistake("barrier", r"RecvInts\(count=1.* gets Send\(.*sizes differ")
def cells_for_integers(call: Call) -> Steps:
    yield Send(TOKEN, to=call.right), RecvInts(1, source=call.left)


@mistake("reduce_scatter", r"P=2 .* in place: rank 0, round \d: combines cell", in_place=True)
def output_written_too_early(call: Call) -> Steps:
    saved = call.scratch(len(call.output))
    yield Copy(call.output, call.input_blocks[call.rank])
    for k in range(1, call.size):
        to, source = (call.rank + k) % call.size, (call.rank - k) % call.size
        left, right = (call.output, None) if source > call.rank else (None, call.output)
        yield Send(call.input_blocks[to], to), Recv(saved, source)
        yield Combine(call.output, left or saved, right or saved)


@mistake("bcast", r"P=2.*: ZeroDivisionError: .*division.*zero")
def exception_raised(call: Call) -> Steps:
    yield Copy(call.output, call.output.part(0, 1 // (call.size - 2)))


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_caught(name: str) -> None:
    says, wrong, facts = MISTAKES[name]

    fault = first_fault(wrong, facts)

    assert re.match(rf"{wrong.family}\.{name}, P=\d sizes=", fault)
    assert re.search(says, fault)
    assert re.search(r"rank \d, (round \d|at the end)", fault) or "Error" in says


@contextmanager
def registered(marked: Algorithm) -> Iterator[None]:
    again = algorithm(family=marked.family, needs=marked.needs)(marked.function)
    try:
        yield
    finally:
        unregister(again)


def test_command_line_shows_the_whole_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with registered(MISTAKES["missing_send"].algorithm):
        status = main(
            ["verify", "--algorithm", "allgather.missing_send", "--sizes", "1-3", "--jobs", "1"]
        )

    printed = capsys.readouterr().out
    assert status == 1
    assert "allgather.missing_send, P=2 sizes=" in printed
    assert "also wrong on P = 3" in printed
    assert "1 algorithms" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "--collective", "gossip"],
        ["verify", "--algorithm", "bcast.telepathy"],
        ["verify", "--algorithm", "bcast.knomial", "--collective", "gather"],
        ["verify", "--sizes", "0"],
        ["list", "--needs", "luck"],
        ["dance"],
        [],
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)

    assert exit_.value.code == 2


# Random changes to right algorithms.


class Recorder:
    """A watcher that notes where the actions are."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int, int]] = []

    def begin(self, rank: int, index: int, round_: Round) -> None:
        self.places += [(rank, index, i) for i in range(len(round_.actions))]

    def deliver(self, source: int, send: Transfer, to: int, recv: Transfer) -> None: ...

    def end(self, rank: int, index: int, round_: Round) -> None: ...


def with_change(
    original: Algorithm, place: tuple[int, int, int], change: Callable[[Action, int], list[Action]]
) -> Algorithm:
    """The algorithm with another action, or none, in one place."""

    def changed(call: Call, **parameters: object) -> Schedule:
        schedule, answer, index = original(call, **parameters), None, 0
        while True:
            try:
                round_ = schedule.send(answer)  # type: ignore[arg-type]
            except StopIteration:
                return
            if (call.rank, index) == place[:2]:
                actions = list(round_.actions)
                actions[place[2] : place[2] + 1] = change(actions[place[2]], call.size)
                asked = sum(isinstance(a, RecvInts) for a in actions)
                assume(asked == sum(isinstance(a, RecvInts) for a in round_.actions))
                round_ = Round(tuple(actions), round_.window)
            answer = (yield round_) if round_.actions else []
            index += 1

    return Algorithm(
        f"changed_{original.name}",
        original.family,
        changed,
        Need.NOTHING,
        original.promises,
        "",
        {},
        {},
    )


def drop(action: Action, size: int) -> list[Action]:
    return []


def repeat(action: Action, size: int) -> list[Action]:
    return [action, action._replace()]


def change_peer(action: Action, size: int) -> list[Action]:
    if isinstance(action, (Send, SendInts)):
        return [action._replace(to=(action.to + 1) % size)]
    if isinstance(action, (Recv, RecvInts)):
        return [action._replace(source=(action.source + 1) % size)]
    return [action]


def swap_operands(action: Action, size: int) -> list[Action]:
    if isinstance(action, (Recv, Combine)):
        return [action._replace(left=action.right, right=action.left)]
    return [action]


def shift_first_region(action: Action, size: int) -> list[Action]:
    return [_shifted(action, 0)]


def shift_last_region(action: Action, size: int) -> list[Action]:
    return [_shifted(action, -1)]


def _shifted(action: Action, which: int) -> Action:
    regions = {
        name: region
        for name, region in action._asdict().items()
        if isinstance(region, Region) and region
    }
    if not regions:
        return action
    name = list(regions)[which]
    pieces = [(buffer, start + 1, stop + 1) for buffer, start, stop in regions[name].pieces]
    return action._replace(**{name: Region(*pieces)})


CHANGES = (drop, repeat, change_peer, swap_operands, shift_first_region, shift_last_region)


@st.composite
def changed_algorithms(draw: st.DrawFn) -> tuple[Algorithm, Shape]:
    original = draw(st.sampled_from(list(ALGORITHMS.values())))
    few = list(islice(cases(original, draw(st.integers(2, 5)), thorough=False), 40))
    assume(few)
    shape, parameters = draw(st.sampled_from(few))
    recorder = Recorder()
    calls = [call_of(shape, rank) for rank in range(shape.size)]
    try:
        Interleaving([original(call, **parameters) for call in calls], recorder).run()
    except NeedsError:
        assume(False)
    assume(recorder.places)
    place, change = draw(st.sampled_from(recorder.places)), draw(st.sampled_from(CHANGES))

    def configured(call: Call, **_: object) -> Schedule:
        return original(call, **parameters)

    settled = Algorithm(
        original.name, original.family, configured, Need.NOTHING, Promise.NOTHING, "", {}, {}
    )
    return with_change(settled, place, change), shape


@given(changed_algorithms(), st.integers(0, 9))
def test_random_change_is_caught_or_changes_nothing(
    changed: tuple[Algorithm, Shape], seed: int
) -> None:
    algorithm, shape = changed

    if fault := fault_of(algorithm, shape):
        assert f"{algorithm.family}.{algorithm.name}, P={shape.size}" in fault
    else:
        assert numpy_ranks.wrong(algorithm, shape, {}, seed) == ""


def test_numpy_sees_mistakes_too() -> None:
    """The referee of the test above is not blind: it finds wrong results and deadlocks."""
    seen = {
        name: numpy_ranks.wrong(
            MISTAKES[name].algorithm,
            Shape(MISTAKES[name].algorithm.family, 4, (1, 1, 1, 1)),
            {},
            seed=1,
        )
        for name in ("missing_send", "missing_exchange", "counted_twice", "barrier_too_short")
    }

    assert "deadlock" in seen["missing_send"]
    assert "rank" in seen["missing_exchange"]
    assert "rank" in seen["counted_twice"]
    assert "rank" in seen["barrier_too_short"]


def test_operation_of_the_referee_is_associative_and_not_commutative() -> None:
    dice = np.random.default_rng(0)
    a, b, c = (numpy_ranks.random_cells(dice, 20) for _ in range(3))
    op = numpy_ranks.compose

    assert (op(op(a, b), c) == op(a, op(b, c))).all()
    assert (op(a, b) != op(b, a)).any()


def test_every_family_has_a_mistake() -> None:
    families = {wrong.algorithm.family for wrong in MISTAKES.values()}

    assert families >= {"barrier", "bcast", "allgather", "alltoall", "reduce", "allreduce", "scan"}
    assert families <= set(COLLECTIVES)
