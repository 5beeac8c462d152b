"""Prove an algorithm right for a shape of call: run all ranks on symbolic contents.

Each cell of a buffer holds an expression: a leaf (rank, cell) of somebody's input, or two
expressions combined. Expressions are hash-consed, so equal expressions are the same number and two
ranks that computed the same bracketing hold the same number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from collx.choice import Choice
from collx.collectives import COLLECTIVES, MEANING, Call, Shape, Term, both_groups, call_of
from collx.interleave import Fault, Interleaving
from collx.lowering import Slots, lowered
from collx.neighborhood import Neighborhood
from collx.registry import Algorithm, NeedsError, Promise
from collx.schedule import (
    EMPTY,
    INPUT,
    OUTPUT,
    SCRATCH,
    Action,
    Combine,
    Copy,
    Recv,
    Region,
    Round,
    Send,
    Transfer,
)

UNWRITTEN = -1


class Expressions:
    """The table of all expressions: numbers for leaves and for combinations."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._cells: list[int] = []
        self._masks: list[int] = []
        self._spans: list[tuple[int, int] | None] = []

    def leaf(self, rank: int, cell: int) -> int:
        """The input cell of a rank."""
        return self._number((-1, rank, cell), cell, 1 << rank, (rank, rank + 1))

    def combine(self, left: int, right: int) -> int:
        """`left op right`.

        Raises
        ------
        ValueError
            If the operands are of different cells or have a contribution in common.
        """
        key = (0, left, right)
        known = self._numbers.get(key)
        if known is not None:
            return known
        if self._cells[left] != self._cells[right]:
            raise ValueError(f"combines cell {self._cells[left]} with cell {self._cells[right]}")
        if twice := self._masks[left] & self._masks[right]:
            raise ValueError(f"counts rank {twice.bit_length() - 1} twice")
        mask = self._masks[left] | self._masks[right]
        return self._number(key, self._cells[left], mask, self._joined(left, right))

    def _number(
        self, key: tuple[int, int, int], cell: int, mask: int, span: tuple[int, int] | None
    ) -> int:
        number = self._numbers.setdefault(key, len(self._cells))
        if number == len(self._cells):
            self._cells.append(cell)
            self._masks.append(mask)
            self._spans.append(span)
        return number

    def _joined(self, left: int, right: int) -> tuple[int, int] | None:
        """The ranks from first to last if both operands, in this order, are consecutive."""
        a, b = self._spans[left], self._spans[right]
        return (a[0], b[1]) if a and b and a[1] == b[0] else None

    def fault(self, number: int, term: Term, ordered: bool) -> str:
        """What is wrong with this content where `term` should be, or ''."""
        if number == UNWRITTEN:
            return "is never written"
        if self._cells[number] != term.cell:
            return f"holds cell {self._cells[number]} and not {term.cell}"
        expected = ((1 << len(term.ranks)) - 1) << term.ranks.start
        if missing := expected & ~self._masks[number]:
            return f"lacks the contribution of rank {missing.bit_length() - 1}"
        if extra := self._masks[number] & ~expected:
            return f"contains rank {extra.bit_length() - 1}, which does not belong there"
        if ordered and self._spans[number] is None:
            return "is combined in another order than that of the ranks"
        return ""


class Memory:
    """The buffers of one rank: for each cell the number of its expression."""

    def __init__(self, call: Call, expressions: Expressions) -> None:
        self.call = call
        self._buffers: dict[int, list[int]] = {}
        self.may_write = call.output
        for region in (call.input, call.output):
            for buffer, _, stop in region.pieces:
                self._grow(buffer, stop)
        for cell, (buffer, at) in enumerate(_cells(call.input)):
            self._buffers[buffer][at] = expressions.leaf(call.rank, cell)

    def _grow(self, buffer: int, size: int) -> list[int]:
        cells = self._buffers.setdefault(buffer, [])
        cells.extend([UNWRITTEN] * (size - len(cells)))
        return cells

    def _buffer(self, buffer: int) -> list[int]:
        cells = self._buffers.get(buffer)
        if cells is not None:
            return cells
        sizes = self.call.scratch_sizes
        if not 0 <= buffer - SCRATCH < len(sizes):
            raise Fault(f"there is no buffer {buffer}")
        return self._grow(buffer, sizes[buffer - SCRATCH])

    def peek(self, region: Region) -> list[int]:
        """The contents, written or not."""
        if len(region.pieces) == 1:
            buffer, start, stop = region.pieces[0]
            return self._buffer(buffer)[max(start, 0) : stop]
        return [n for buffer, a, b in region.pieces for n in self._buffer(buffer)[max(a, 0) : b]]

    def read(self, region: Region) -> list[int]:
        """The contents.

        Raises
        ------
        Fault
            If a cell was never written, or does not exist.
        """
        numbers = self.peek(region)
        if UNWRITTEN in numbers or len(numbers) != len(region):
            raise Fault(f"reads {region} before it is written")
        return numbers

    def make_room(self, region: Region) -> None:
        """Let the slots of the lowering passes (negative buffers) grow to hold this region."""
        for buffer, _, stop in region.pieces:
            if buffer < 0:
                self._grow(buffer, stop)

    def write(self, region: Region, numbers: Sequence[int]) -> None:
        """Replace the contents.

        Raises
        ------
        Fault
            If this is not the rank's output or scratch, or sizes differ.
        """
        if len(numbers) != len(region):
            raise Fault(f"writes {len(numbers)} cells to {region}")
        self.make_room(region)
        done = 0
        for buffer, start, stop in region.pieces:
            cells = self._buffer(buffer)
            if not 0 <= start <= stop <= len(cells) or not self._writable(buffer, start, stop):
                raise Fault(f"writes {region}, which is not its output or scratch")
            cells[start:stop] = numbers[done : done + stop - start]
            done += stop - start

    def _writable(self, buffer: int, start: int, stop: int) -> bool:
        return buffer not in (INPUT, OUTPUT) or any(
            buffer == b and first <= start and stop <= last
            for b, first, last in self.may_write.pieces
        )


def _cells(region: Region) -> Iterator[tuple[int, int]]:
    return ((buffer, at) for buffer, start, stop in region.pieces for at in range(start, stop))


class Symbolic:
    """The watcher that carries symbolic contents from rank to rank and checks every action."""

    def __init__(self, calls: Sequence[Call], shape: Shape) -> None:
        self.expressions = Expressions()
        self.memories = [Memory(call, self.expressions) for call in calls]
        if shape.collective == "bcast":
            self._fill_root(shape)
        self._sent: dict[tuple[int, int], list[int]] = {}
        self._received: dict[tuple[int, int], list[int]] = {}
        self.heard_of = [1 << rank for rank in range(shape.size)]
        """For each rank, the set of ranks that it has a message of, directly or through others."""
        self._passed_on = list(self.heard_of)

    def _fill_root(self, shape: Shape) -> None:
        memory = self.memories[shape.root]
        region = memory.call.output
        leaves = [self.expressions.leaf(shape.root, cell) for cell in range(len(region))]
        memory.write(region, leaves)
        memory.may_write = Region()

    def begin(self, rank: int, index: int, round_: Round) -> None:
        """Check the round for conflicts, take the contents of sends, do the local actions."""
        check_conflicts(round_.actions)
        self._passed_on[rank] = self.heard_of[rank]
        memory = self.memories[rank]
        for action in round_.actions:
            if isinstance(action, Send):
                self._sent[rank, id(action)] = memory.read(action.region)
        for action in round_.actions:
            if isinstance(action, Copy):
                memory.write(action.into, memory.read(action.source))
            elif isinstance(action, Combine):
                left, right = memory.read(action.left), memory.read(action.right)
                self._apply(memory, action.into, left, right)

    def _apply(self, memory: Memory, into: Region, left: list[int], right: list[int]) -> None:
        if not len(left) == len(right) == len(into):
            raise Fault(f"combines {len(left)} and {len(right)} cells into {into}")
        try:
            combined = list(map(self.expressions.combine, left, right))
        except ValueError as error:
            raise Fault(f"{error} in {into}") from None
        memory.write(into, combined)

    def deliver(self, source: int, send: Transfer, to: int, recv: Transfer) -> None:
        """Write a plain receive; keep the message of a combining one for the end of the round."""
        self.heard_of[to] |= self._passed_on[source]
        if not isinstance(recv, Recv):
            return
        numbers = self._sent[source, id(send)]
        if recv.combining:
            self._received[to, id(recv)] = numbers
        else:
            self.memories[to].write(recv.into, numbers)

    def end(self, rank: int, index: int, round_: Round) -> None:
        """Apply the combining receives."""
        memory = self.memories[rank]
        for recv in round_.actions:
            if isinstance(recv, Recv) and recv.combining and recv.into:
                message = self._received[rank, id(recv)]
                left = memory.read(recv.left) if recv.left is not None else message
                right = memory.read(recv.right) if recv.right is not None else message
                self._apply(memory, recv.into, left, right)


SENT, RECEIVED, WRITTEN, READ = range(4)
_CLASH = {
    SENT: (RECEIVED, WRITTEN),
    RECEIVED: (SENT, RECEIVED, WRITTEN, READ),
    WRITTEN: (SENT, RECEIVED),
    READ: (RECEIVED,),
}
_VERBS = {SENT: "sends", RECEIVED: "receives into", WRITTEN: "writes", READ: "reads"}


def check_conflicts(actions: Sequence[Action]) -> None:
    """Check that nothing in flight is touched.

    Raises
    ------
    Fault
        If a region that is being sent is written, or one that is being received is used.
    """
    uses = [(piece, use, region) for use, region in _uses(actions) for piece in region.pieces]
    if len(uses) < 2:
        return
    uses.sort(key=itemgetter(0))
    current, furthest = uses[0][0][0], [(0, EMPTY)] * len(_CLASH)
    for (buffer, start, stop), use, region in uses:
        if buffer != current:
            current, furthest = buffer, [(0, EMPTY)] * len(_CLASH)
        for other in _CLASH[use]:
            if furthest[other][0] > start:
                both = [(use, region), (other, furthest[other][1])]
                (_, flying), (doing, what) = sorted(both, key=itemgetter(0))
                raise Fault(f"{_VERBS[doing]} {what} while {flying} is in flight")
        if stop > furthest[use][0]:
            furthest[use] = stop, region


def _uses(actions: Sequence[Action]) -> Iterator[tuple[int, Region]]:
    """How the regions of a round are used until the wait ends."""
    for action in actions:
        if isinstance(action, Send):
            yield SENT, action.region
        elif isinstance(action, Recv):
            if not action.combining:
                yield RECEIVED, action.into
        elif isinstance(action, (Copy, Combine)):
            yield WRITTEN, action.into
            for region in action[1:]:
                yield READ, region
                if region != action.into and region.overlaps(action.into):
                    raise Fault(f"writes {action.into} while it reads {region}, which overlaps")


def verify(
    algorithm: Algorithm, shape: Shape, *, after_passes: bool = False, **parameters: Any
) -> None:
    """Check one algorithm on one shape of call.

    Parameters
    ----------
    algorithm, shape, **parameters
        What is called.
    after_passes
        Check what the passes of `collx.lowering` make of it, which is what the engine runs.

    Raises
    ------
    Fault
        If it is wrong, or raises an exception; the text names algorithm, number of ranks, rank,
        round and region.
    NeedsError
        If the call does not meet the needs of the algorithm, or of one that a parameter names.
    """
    calls = [call_of(shape, rank) for rank in range(shape.size)]
    try:
        symbolic = Symbolic(calls, shape)
        schedules = [algorithm(call, **parameters) for call in calls]
        if after_passes:
            schedules = [lowered(schedule, Slots()) for schedule in schedules]
        Interleaving(schedules, symbolic).run()
        _check_results(symbolic, shape, Promise.SAME_BITS in algorithm.promises)
    except NeedsError:
        raise
    except Exception as error:
        what = f"{algorithm.family}.{Choice(algorithm.name, tuple(parameters.items()))}"
        kind = "" if isinstance(error, Fault) else f"{type(error).__name__}: "
        raise Fault(f"{what}, {describe(shape)}: {kind}{error}") from error


def describe(shape: Shape) -> str:
    """A shape in a few words."""
    words = [f"P={shape.size}", f"sizes={_short(shape.sizes)}"]
    words += [f"root={shape.root}"] * COLLECTIVES[shape.collective].rooted
    words += ["in place"] * shape.in_place + ["not commutative"] * (not shape.commutative)
    words += [f"groups={shape.low}+{shape.size - shape.low}"] * bool(shape.low)
    words += [f"nodes={_short(shape.nodes)}"] * bool(shape.nodes)
    words += [f"targets={_targets(near)}" for near in shape.neighbors]
    return " ".join(words)


def _targets(near: Neighborhood) -> str:
    return ",".join(str(edge.rank) if edge else "-" for edge in near.targets)


def _short(values: Sequence[int]) -> str:
    if len(set(values)) == 1 and len(values) > 1:
        return f"{len(values)}*{values[0]}"
    return ",".join(map(str, values))


def _check_barrier(symbolic: Symbolic, shape: Shape) -> None:
    """Check that each rank waited for all ranks, or those of the other group."""
    for rank, heard_of in enumerate(symbolic.heard_of):
        local, remote = both_groups(rank, shape.size, shape.low)
        awaited = remote or local
        if silent := ~heard_of & ((1 << awaited.stop) - (1 << awaited.start)):
            other = silent.bit_length() - 1
            raise Fault(f"rank {rank}, at the end: did not wait for rank {other}")


def _check_results(symbolic: Symbolic, shape: Shape, same_bits: bool) -> None:
    if shape.collective in ("barrier", "inter_barrier"):
        _check_barrier(symbolic, shape)
    combines = COLLECTIVES[shape.collective].combines
    results = []
    for rank, memory in enumerate(symbolic.memories):
        numbers = memory.peek(memory.call.output)
        terms = MEANING[shape.collective](shape, rank)
        if shape.collective == "exscan" and rank == 0:
            continue
        if len(numbers) != len(terms):
            raise Fault(f"rank {rank}: the output has {len(numbers)} cells, not {len(terms)}")
        for cell, (number, term) in enumerate(zip(numbers, terms, strict=True)):
            if wrong := symbolic.expressions.fault(
                number, term, ordered=combines and not shape.commutative
            ):
                raise Fault(f"rank {rank}, at the end: cell {cell} of the output {wrong}")
        results.append(numbers)
    if same_bits and combines:
        for group in both_groups(0, shape.size, shape.low):
            _check_same(group, results)


def _check_same(group: range, results: Sequence[Sequence[int]]) -> None:
    for rank in group:
        for cell, number in enumerate(results[rank]):
            if number != results[group[0]][cell]:
                raise Fault(
                    f"rank {rank}, at the end: cell {cell} of the output has other brackets"
                    f" than on rank {group[0]}, against the promise SAME_BITS"
                )
