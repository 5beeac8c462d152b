"""A small compiler: from the rounds of an algorithm to rounds that map one to one onto MPI calls.

Each pass takes rounds and gives rounds, in the same vocabulary, so the verifier can check what the
passes put out like any algorithm. After all of them there are only plain receives, every transfer
and every local action has one contiguous piece, and nothing is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from collx.schedule import (
    TOKEN,
    Action,
    Answer,
    Combine,
    Copy,
    Piece,
    Recv,
    Region,
    Round,
    Schedule,
    Send,
)


class Slots:
    """Scratch buffers that the passes ask for; every round uses the same ones again.

    Slot number i is buffer -1 - i.

    Parameters
    ----------
    small
        Messages of at most this many cells that are to be combined land in a slot, and never where
        the result goes: for few elements NumPy is faster with three separate buffers.
    """

    def __init__(self, small: int = 0) -> None:
        self.small = small
        self.sizes: list[int] = []
        self._used = 0

    def new_round(self) -> None:
        """From here on the slots taken so far are free again."""
        self._used = 0

    def take(self, cells: int) -> Region:
        """A buffer of this many cells, good for what becomes of one round."""
        if self._used == len(self.sizes):
            self.sizes.append(0)
        index, self._used = self._used, self._used + 1
        self.sizes[index] = max(self.sizes[index], cells)
        return Region((-1 - index, 0, cells))


def lower(round_: Round, slots: Slots) -> list[Round]:
    """Apply all passes to one round."""
    slots.new_round()
    rounds = [round_]
    for one_pass in PASSES:
        rounds = [part for whole in rounds for part in one_pass(whole, slots)]
    return rounds


def lowered(schedule: Schedule, slots: Slots) -> Schedule:
    """The schedule with every round lowered."""
    answer: Answer = None  # type: ignore[assignment]  # what a generator is first sent
    with suppress(StopIteration):
        while True:
            round_, answer = schedule.send(answer), []
            for part in lower(round_, slots):
                answer = (yield part) or answer


def drop_empty(round_: Round, slots: Slots) -> Iterator[Round]:
    """Leave out transfers of nothing (but tokens) and copies of a region onto itself."""
    kept = tuple(action for action in round_.actions if not _is_empty(action))
    if kept:
        yield round_._replace(actions=kept)


def _is_empty(action: Action) -> bool:
    match action:
        case Send(region=region) | Recv(into=region):
            return not region and region is not TOKEN
        case Copy(into=into, source=source):
            return not into or into == source
        case Combine(into=into):
            return not into
    return False


def land_receives(round_: Round, slots: Slots) -> Iterator[Round]:
    """Make combining receives plain ones, followed by a round that combines.

    The message lands where the result goes if nothing else of the round uses that place and it is
    not small, otherwise in a slot.
    """
    kept: list[Action] = []
    combines: list[Action] = []
    for action in round_.actions:
        if isinstance(action, Recv) and action.combining:
            landing = _landing(action, round_.actions, slots)
            kept.append(Recv(landing, action.source, action.lane))
            left = landing if action.left is None else action.left
            right = landing if action.right is None else action.right
            combines += _combined(action.into, left, right, landing)
        else:
            kept.append(action)
    yield round_._replace(actions=tuple(kept))
    if combines:
        yield Round(tuple(combines))


def _combined(into: Region, left: Region, right: Region, landing: Region) -> list[Action]:
    """Combine into `into`, or beside it if that would overwrite an operand while it is read."""
    if any(into != region and into.overlaps(region) for region in (left, right)):
        return [Combine(landing, left, right), Copy(into, landing)]
    return [Combine(into, left, right)]


def _landing(recv: Recv, actions: Sequence[Action], slots: Slots) -> Region:
    others = [region for a in actions if a is not recv for region in _regions(a)]
    operands = [region for region in (recv.left, recv.right) if region is not None]
    alone = not any(recv.into.overlaps(region) for region in others + operands)
    if alone and len(recv.into.pieces) == 1 and len(recv.into) > slots.small:
        return recv.into
    return slots.take(len(recv.into))


def _regions(action: Action) -> list[Region]:
    return [value for value in action if isinstance(value, Region)]


def pack(round_: Round, slots: Slots) -> Iterator[Round]:
    """Send and receive regions of several pieces through one contiguous slot."""
    before: list[Action] = []
    during: list[Action] = []
    after: list[Action] = []
    for action in round_.actions:
        match action:
            case Send(region=region) if len(region.pieces) > 1:
                slot = slots.take(len(region))
                before.append(Copy(slot, region))
                during.append(action._replace(region=slot))
            case Recv(into=into) if len(into.pieces) > 1:
                slot = slots.take(len(into))
                during.append(action._replace(into=slot))
                after.append(Copy(into, slot))
            case _:
                during.append(action)
    parts = (Round(tuple(before)), Round(tuple(during), round_.window), Round(tuple(after)))
    yield from (part for part in parts if part.actions)


def split_pieces(round_: Round, slots: Slots) -> Iterator[Round]:
    """Split local actions so that each operand is one contiguous piece."""
    yield round_._replace(actions=tuple(a for action in round_.actions for a in _split(action)))


def _split(action: Action) -> Iterator[Action]:
    if not isinstance(action, (Copy, Combine)) or all(len(r.pieces) == 1 for r in action):
        yield action
        return
    for start, stop in _common_pieces(action):
        yield type(action)(*(region.part(start, stop) for region in action))


def _common_pieces(regions: Iterable[Region]) -> Iterator[tuple[int, int]]:
    """The ranges between which no region changes from one piece to the next."""
    cuts = sorted({cut for region in regions for cut in _ends(region.pieces)})
    return zip([0, *cuts], cuts, strict=False)


def _ends(pieces: Iterable[Piece]) -> Iterator[int]:
    end = 0
    for _, start, stop in pieces:
        end += stop - start
        yield end


PASSES: tuple[Callable[[Round, Slots], Iterator[Round]], ...] = (
    drop_empty,
    land_receives,
    pack,
    split_pieces,
)
"""The passes, in order."""


def chunk(round_: Round, cells: int) -> Round:
    """Cut messages of more than `cells` cells into several (for MPIs without large counts)."""
    actions = (part for action in round_.actions for part in _chunks(action, cells))
    return round_._replace(actions=tuple(actions))


def _chunks(action: Action, cells: int) -> list[Action]:
    match action:
        case Send(region=region) if len(region) > cells:
            return [action._replace(region=part) for part in region.segments(cells)]
        case Recv(into=into) if len(into) > cells:
            return [action._replace(into=part) for part in into.segments(cells)]
    return [action]
