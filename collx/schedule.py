"""What an algorithm says: sends, receives, copies and combinations of regions, in rounds.

A *schedule* is what one rank does in one collective call: a sequence of rounds. A round is the set
of actions that the rank starts together and then waits for. Inside a round the order is:

1. all transfers (`Send`, `Recv`) start;
2. local actions (`Copy`, `Combine`) run in listed order while the transfers are in flight;
3. the rank waits for all transfers;
4. combining receives are applied in listed order.

Nothing here knows MPI, NumPy or any algorithm.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

INPUT, OUTPUT, SCRATCH = 0, 1, 2
"""Numbers of the buffers: the user's input, the user's output, and the first scratch buffer."""

Piece: TypeAlias = "tuple[int, int, int]"
"""One contiguous range of one buffer: (buffer, start, stop), in cells."""


class Region:
    """Cells of one or several buffers, in order.

    A cell is one byte in a data movement collective and one element in a reduction.

    Parameters
    ----------
    *pieces
        Contiguous ranges `(buffer, start, stop)`; neighbours are joined, empty ones dropped.

    Examples
    --------
    >>> region = Region((OUTPUT, 0, 4)) + Region((OUTPUT, 4, 8))
    >>> region
    Region(output[0:8])
    >>> region.part(2, 5), len(region)
    (Region(output[2:5]), 8)
    """

    __slots__ = ("pieces", "size")

    def __init__(self, *pieces: Piece) -> None:
        if len(pieces) > 1 or (pieces and pieces[0][1] == pieces[0][2]):
            pieces = _joined(pieces)
        self.pieces = pieces
        self.size = sum(stop - start for _, start, stop in pieces)

    def __len__(self) -> int:
        return self.size

    def __add__(self, other: Region) -> Region:
        return Region(*self.pieces, *other.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Region) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.pieces)

    def __repr__(self) -> str:
        return f"Region({', '.join(_piece_text(*piece) for piece in self.pieces)})"

    def part(self, start: int, stop: int) -> Region:
        """Cells `start` to `stop` of this region, clipped to it."""
        start, stop = max(start, 0), min(stop, self.size)
        if stop <= start:
            return EMPTY
        if len(self.pieces) == 1:
            buffer, first, _ = self.pieces[0]
            return Region((buffer, first + start, first + stop))
        return Region(*_cut(self.pieces, start, stop))

    def split(self, parts: int) -> Blocks:
        """`parts` consecutive blocks of nearly equal size, the larger ones first."""
        return _EvenBlocks(self, parts)

    def blocks(self, sizes: Iterable[int]) -> Blocks:
        """Consecutive blocks of these sizes."""
        ends = [0, *accumulate(sizes)]
        return Blocks([self.part(a, b) for a, b in pairwise(ends)])

    def overlaps(self, other: Region) -> bool:
        """Whether the two regions have a cell in common."""
        return any(
            a == b and start < end and begin < stop
            for a, start, stop in self.pieces
            for b, begin, end in other.pieces
        )

    def segments(self, cells: int) -> list[Region]:
        """Consecutive segments of at most `cells` cells (0: one segment); none if empty."""
        cells = cells or max(self.size, 1)
        return [self.part(at, at + cells) for at in range(0, self.size, cells)]


def _joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    joined: list[Piece] = []
    for buffer, start, stop in pieces:
        if start == stop:
            continue
        if joined and joined[-1][0] == buffer and joined[-1][2] == start:
            joined[-1] = (buffer, joined[-1][1], stop)
        else:
            joined.append((buffer, start, stop))
    return tuple(joined)


def _cut(pieces: Iterable[Piece], start: int, stop: int) -> Iterator[Piece]:
    for buffer, first, last in pieces:
        size = last - first
        if start < size and stop > 0:
            yield buffer, first + max(start, 0), first + min(stop, size)
        start, stop = start - size, stop - size


def _piece_text(buffer: int, start: int, stop: int) -> str:
    names = {INPUT: "input", OUTPUT: "output"}
    other = f"scratch{buffer - SCRATCH}" if buffer > 0 else f"slot{-1 - buffer}"
    return f"{names.get(buffer, other)}[{start}:{stop}]"


EMPTY = Region()
"""No cells: a transfer of it is left out on both sides."""

TOKEN = Region()
"""A message without data that is sent nevertheless (barriers, go-aheads). Compare with `is`."""


class Blocks:
    """Blocks that stand one after the other, indexed modulo their number.

    `blocks[i]` is one block, `blocks[i:j]` the region of blocks i to j - 1; both wrap around.
    With a negative start this is natural: `blocks[-1:2]` is the last, the first and the second.

    Examples
    --------
    >>> blocks = Region((INPUT, 0, 8)).split(3)
    >>> blocks[0], blocks[-1], blocks[2:4]
    (Region(input[0:3]), Region(input[6:8]), Region(input[6:8], input[0:3]))
    """

    __slots__ = ("_regions", "whole")

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = list(regions)
        self.whole = Region(*(piece for region in regions for piece in region.pieces))

    def __len__(self) -> int:
        return len(self._regions)

    def __iter__(self) -> Iterator[Region]:
        return (self.block(i) for i in range(len(self)))

    def __getitem__(self, index: int | slice) -> Region:
        if isinstance(index, slice):
            return self._range(index.start, index.stop)
        return self.block(index % len(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocks) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"Blocks({', '.join(map(repr, self))})"

    def block(self, index: int) -> Region:
        """Block `index`, which must be in range."""
        return self._regions[index]

    def _range(self, start: int, stop: int) -> Region:
        return self.select(range(start, stop))

    def select(self, indices: Iterable[int]) -> Region:
        """The region made of these blocks, in this order, indices modulo the number of blocks."""
        size = len(self)
        return Region(*(piece for i in indices for piece in self.block(i % size).pieces))

    def regroup(self, groups: Iterable[Iterable[int]]) -> Blocks:
        """Coarser blocks: one for each group of indices."""
        return Blocks([self.select(group) for group in groups])


class _EvenBlocks(Blocks):
    """Blocks of nearly equal size, computed when asked for."""

    __slots__ = ("_larger", "_parts", "_small")

    def __init__(self, whole: Region, parts: int) -> None:
        self.whole, self._parts = whole, parts
        self._small, self._larger = divmod(len(whole), parts)

    def __len__(self) -> int:
        return self._parts

    def _start(self, index: int) -> int:
        return index * self._small + min(index, self._larger)

    def block(self, index: int) -> Region:
        return self.whole.part(self._start(index), self._start(index + 1))

    def _range(self, start: int, stop: int) -> Region:
        if stop <= start:
            return EMPTY
        first, count = start % self._parts, stop - start
        last = first + count
        region = self.whole.part(self._start(first), self._start(min(last, self._parts)))
        if last > self._parts:
            region += self._range(0, last - self._parts)
        return region


class Send(NamedTuple):
    """Send the cells of `region` as one message to rank `to`.

    Messages between two ranks match in order within a `lane`. A `synchronous` send completes only
    when the receiver has begun to receive.
    """

    region: Region
    to: int
    lane: int = 0
    synchronous: bool = False


class Recv(NamedTuple):
    """Receive one message of rank `source` into `into`.

    With `left` the receive combines: `into = left op message`; with `right`,
    `into = message op right`.
    """

    into: Region
    source: int
    lane: int = 0
    left: Region | None = None
    right: Region | None = None

    @property
    def combining(self) -> bool:
        """Whether the message is an operand and not the result."""
        return self.left is not None or self.right is not None


class Copy(NamedTuple):
    """`into = source`."""

    into: Region
    source: Region


class Combine(NamedTuple):
    """`into = left op right`. `into` may be either operand, but must not overlap one in part."""

    into: Region
    left: Region
    right: Region


class SendInts(NamedTuple):
    """Send integers that the algorithm computed (sizes, ranks)."""

    values: tuple[int, ...]
    to: int
    lane: int = 0


class RecvInts(NamedTuple):
    """Receive `count` integers; the `yield` of the round returns one tuple for each `RecvInts`."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    source: int
    lane: int = 0


Action: TypeAlias = "Send | Recv | Copy | Combine | SendInts | RecvInts"
Transfer: TypeAlias = "Send | Recv | SendInts | RecvInts"


def is_message(action: Action) -> bool:
    """Whether an action is a transfer that is carried out: not if it has no cells."""
    if isinstance(action, Send):
        return bool(action.region.pieces) or action.region is TOKEN
    if isinstance(action, Recv):
        return bool(action.into.pieces) or action.into is TOKEN
    return isinstance(action, (SendInts, RecvInts))


class Round(NamedTuple):
    """Actions that start together; at most `window` transfers are outstanding (0: no limit)."""

    actions: tuple[Action, ...]
    window: int = 0


Answer: TypeAlias = "list[tuple[int, ...]]"
Yielded: TypeAlias = "Round | Action | Iterable[Action]"
Steps: TypeAlias = "Generator[Yielded, Answer, None]"
"""What an algorithm function returns: it yields rounds and is sent the integers received."""

Schedule: TypeAlias = "Generator[Round, Answer, None]"
"""The same with every yield made a `Round`."""

ACTIONS = (Send, Recv, Copy, Combine, SendInts, RecvInts)


def as_round(yielded: Yielded) -> Round:
    """Make what an algorithm yields (one action, several, or a round) a `Round`."""
    if isinstance(yielded, Round):
        return yielded
    if isinstance(yielded, ACTIONS):
        return Round((yielded,))
    return Round(tuple(yielded))


def rounds(steps: Steps) -> Schedule:
    """Turn the steps of an algorithm into rounds; rounds without actions are left out."""
    answer: Answer = None  # type: ignore[assignment]  # what a generator is first sent
    with suppress(StopIteration):
        while True:
            round_ = as_round(steps.send(answer))
            answer = (yield round_) if round_.actions else []


def merge(*streams: Steps) -> Steps:
    """Run independent streams side by side: their k-th rounds become one round.

    Each stream gets lanes of its own, so that the streams may overtake each other.
    """
    live = {index: rounds(stream) for index, stream in enumerate(streams)}
    answers: dict[int, Answer] = {}
    while True:
        started = {}
        for index, stream in live.items():
            with suppress(StopIteration):
                started[index] = stream.send(answers.get(index))  # type: ignore[arg-type]
        if not started:
            return
        live = {index: live[index] for index in started}
        got = iter((yield _merged(started, len(streams))) or [])
        answers = {
            index: [next(got) for action in round_.actions if isinstance(action, RecvInts)]
            for index, round_ in started.items()
        }


def _merged(started: dict[int, Round], lanes: int) -> Round:
    actions = [_in_lane(a, i, lanes) for i, round_ in started.items() for a in round_.actions]
    return Round(tuple(actions), max(round_.window for round_ in started.values()))


def _in_lane(action: Action, index: int, lanes: int) -> Action:
    if isinstance(action, (Copy, Combine)):
        return action
    return action._replace(lane=action.lane * lanes + index)


def renumber(steps: Steps, ranks: Sequence[int]) -> Schedule:
    """Replace each peer i by `ranks[i]`: the schedule of a group, seen from outside the group."""
    schedule, answer = rounds(steps), None
    with suppress(StopIteration):
        while True:
            round_ = schedule.send(answer)  # type: ignore[arg-type]
            actions = tuple(_renumbered(action, ranks) for action in round_.actions)
            answer = yield Round(actions, round_.window)


def _renumbered(action: Action, ranks: Sequence[int]) -> Action:
    if isinstance(action, (Send, SendInts)):
        return action._replace(to=ranks[action.to])
    if isinstance(action, (Recv, RecvInts)):
        return action._replace(source=ranks[action.source])
    return action
