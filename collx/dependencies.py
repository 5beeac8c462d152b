"""What each action of a schedule really has to wait for.

Rounds are a coarse order. Here it is refined: an action waits for an earlier one only if one of
them writes what the other one uses. Event-driven progress starts actions in this order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from collx.schedule import TOKEN, Action, Combine, Copy, Recv, Region, Round, Send

Access: TypeAlias = "tuple[int, int, int]"
"""An action that uses a range of a buffer: (start, stop, number of the action)."""


class Step(NamedTuple):
    """An action, and the numbers of the earlier actions that must be complete before it starts."""

    action: Action
    after: frozenset[int]


class _Buffer:
    """Who wrote the cells of one buffer last, and who has read them since."""

    def __init__(self) -> None:
        self.written: list[Access] = []
        self.read: list[Access] = []

    def reading(self, start: int, stop: int, number: int) -> set[int]:
        """Note a read; who has to be waited for."""
        self.read.append((start, stop, number))
        return _overlapping(self.written, start, stop)

    def writing(self, start: int, stop: int, number: int) -> set[int]:
        """Note a write; who has to be waited for."""
        before = _overlapping(self.written, start, stop) | _overlapping(self.read, start, stop)
        self.written = _outside(self.written, start, stop)
        self.read = _outside(self.read, start, stop)
        self.written.append((start, stop, number))
        return before - {number}


def _overlapping(accesses: Iterable[Access], start: int, stop: int) -> set[int]:
    return {number for a, b, number in accesses if a < stop and start < b}


def _outside(accesses: Iterable[Access], start: int, stop: int) -> list[Access]:
    """Without those that a write of this range makes superfluous: whoever follows waits for it."""
    return [access for access in accesses if not (start <= access[0] and access[1] <= stop)]


def refined(rounds: Iterable[Round]) -> list[Step]:
    """The actions of lowered rounds in order, each with what it has to wait for.

    A message without data says that all before it is done: it waits for all, and all wait for it.

    Examples
    --------
    >>> from collx.schedule import INPUT, OUTPUT
    >>> first, second = Region((OUTPUT, 0, 1)), Region((OUTPUT, 1, 2))
    >>> pipeline = [Round((Recv(first, 0),)), Round((Send(first, 2), Recv(second, 0)))]
    >>> [sorted(step.after) for step in refined(pipeline)]
    [[], [0], []]
    """
    steps: list[Step] = []
    buffers: dict[int, _Buffer] = {}
    fence: frozenset[int] = frozenset()
    for round_ in rounds:
        tokens = any(_is_token(action) for action in round_.actions)
        if tokens:
            fence = frozenset(range(len(steps)))
        for action in round_.actions:
            steps.append(Step(action, fence | _conflicts(action, buffers, len(steps))))
        if tokens:
            fence = frozenset(range(len(steps)))
    return steps


def _is_token(action: Action) -> bool:
    region = action.region if isinstance(action, Send) else None
    return (action.into if isinstance(action, Recv) else region) is TOKEN


def _conflicts(action: Action, buffers: dict[int, _Buffer], number: int) -> set[int]:
    reads, writes = _uses(action)
    before: set[int] = set()
    for region in reads:
        for buffer, start, stop in region.pieces:
            before |= buffers.setdefault(buffer, _Buffer()).reading(start, stop, number)
    for region in writes:
        for buffer, start, stop in region.pieces:
            before |= buffers.setdefault(buffer, _Buffer()).writing(start, stop, number)
    return before - {number}


def _uses(action: Action) -> tuple[list[Region], list[Region]]:
    """The regions that an action reads and writes."""
    match action:
        case Send(region=region):
            return [region], []
        case Recv(into=into):
            return [], [into]
        case Copy(into=into, source=source):
            return [source], [into]
        case Combine(into=into, left=left, right=right):
            return [left, right], [into]
    return [], []
