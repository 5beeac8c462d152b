"""Circulant graphs: every rank talks to the ranks at a few distances, the same for all ranks.

The distances are the *skips* of the group: its size, about half of it, a quarter, ..., 1. Block
`rank + j` (modulo the size) is called *slot* j of a rank.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

Slots = tuple[int, int]
"""Slots `start` to `stop`: one message, between ranks `start` apart."""

CACHED = 2**14
"""Results kept of each function here: enough for a group of that many ranks."""


@lru_cache(CACHED)
def skips(size: int, ports: int = 1) -> tuple[int, ...]:
    """The size, then each time the previous skip divided by `ports + 1`, rounded up, down to 1.

    Examples
    --------
    >>> skips(5), skips(7), skips(17)
    ((5, 3, 2, 1), (7, 4, 2, 1), (17, 9, 5, 3, 2, 1))
    >>> skips(7, ports=2)
    (7, 3, 1)
    """
    chosen = [size]
    while chosen[-1] > 1:
        chosen.append(-(-chosen[-1] // (ports + 1)))
    return tuple(chosen)


@lru_cache(CACHED)
def halving(size: int, ports: int = 1, max_blocks: int = 0) -> tuple[tuple[Slots, ...], ...]:
    """The slots moved in each round of a reduce-scatter: the upper part of those still held.

    With `max_blocks` no message has more blocks than that. An allgather takes the rounds in
    reverse and moves everything the other way.

    Examples
    --------
    >>> halving(5)
    (((3, 5),), ((2, 3),), ((1, 2),))
    >>> halving(9, ports=2)
    (((3, 6), (6, 9)), ((1, 2), (2, 3)))
    >>> halving(9, max_blocks=2)
    (((7, 9),), ((5, 7),), ((3, 5),), ((2, 3),), ((1, 2),))
    """
    rounds, held = [], size
    while held > 1:
        kept = -(-held // (ports + 1))
        if max_blocks:
            kept = max(kept, held - ports * max_blocks)
        rounds.append(_cut(kept, held, -(-(held - kept) // ports)))
        held = kept
    return tuple(rounds)


@lru_cache(CACHED)
def bruck(size: int, radix: int = 2) -> tuple[tuple[Slots, ...], ...]:
    """The same with powers of `radix` as skips: the rounds of Bruck's allgather, last one first.

    Examples
    --------
    >>> bruck(7)
    (((4, 7),), ((2, 4),), ((1, 2),))
    >>> bruck(7, radix=3)
    (((3, 6), (6, 7)), ((1, 2), (2, 3)))
    """
    rounds, held = [], 1
    while held < size:
        rounds.append(_cut(held, min(held * radix, size), held))
        held *= radix
    return tuple(reversed(rounds))


def _cut(start: int, stop: int, step: int) -> tuple[Slots, ...]:
    return tuple((at, min(at + step, stop)) for at in range(start, stop, step))


@lru_cache(CACHED)
def receive_schedule(rank: int, size: int) -> tuple[int, ...]:
    """Which block a rank receives over each skip, smallest skip first, while root 0 broadcasts.

    A round over skip k delivers this block plus the number of skips for every lap over all skips
    done before; negative blocks do not exist. Each rank but the root thus gets exactly one new
    block in every round, and always one that the sender already has.

    Examples
    --------
    >>> [receive_schedule(rank, 5) for rank in range(5)]
    [(-3, -1, -2), (0, -1, -2), (-3, 1, -1), (-2, -3, 2), (-1, -2, 0)]
    >>> [receive_schedule(rank, 6) for rank in range(6)]
    [(-2, -3, -1), (0, -2, -1), (-3, 1, -1), (-2, -3, 2), (-1, -2, 0), (-3, -1, 1)]
    """
    ascending = skips(size)[::-1]
    laps = len(ascending) - 1
    own = _smallest_skip(rank, ascending)
    free = {*range(laps + 1)} - {own}
    found: list[int] = []
    target = size + rank

    def search(position: int, bound: int, largest: int) -> None:
        """Add skips, at most number `largest`, to `position`: nearest paths to the target first."""
        for k in range(largest, -1, -1):
            if len(found) == laps:
                return
            reached = position + ascending[k]
            if k not in free or reached > target - ascending[len(found)] or reached >= bound:
                continue
            if reached <= target - ascending[len(found) + 1]:
                search(reached, bound, k)
            if len(found) == laps or position > target - ascending[len(found) + 1]:
                return
            bound = reached
            found.append(k)
            free.remove(k)

    search(0, 2 * size, laps)
    return tuple(own if k == laps else k - laps for k in found)


def _smallest_skip(rank: int, ascending: tuple[int, ...]) -> int:
    """Number of the smallest skip in the rank written as a sum of skips, large ones first."""
    smallest = len(ascending) - 1
    for k in range(smallest, -1, -1):
        if 0 < ascending[k] <= rank:
            rank -= ascending[k]
            smallest = k
    return smallest


@lru_cache(CACHED)
def send_schedule(rank: int, size: int) -> tuple[int, ...]:
    """Which block a rank sends over each skip: the one that its peer there receives.

    Examples
    --------
    >>> [send_schedule(rank, 5) for rank in range(5)]
    [(0, 1, 2), (-3, -3, 0), (-2, -2, -2), (-1, -1, -2), (-3, -1, -1)]
    >>> [send_schedule(rank, 6) for rank in range(6)]
    [(0, 1, 2), (-3, -3, 0), (-2, -2, 1), (-1, -1, -1), (-3, -3, -1), (-2, -2, -1)]
    """
    ascending = skips(size)[:0:-1]
    return tuple(
        receive_schedule((rank + skip) % size, size)[k] for k, skip in enumerate(ascending)
    )


class BlockRound(NamedTuple):
    """One round of a broadcast of several blocks, for one rank (None: no block in this round)."""

    skip: int
    sent: int | None
    """Block sent to the rank `skip` further on."""
    received: int | None
    """Block received from the rank `skip` further back."""


@lru_cache(CACHED)
def broadcast_rounds(rank: int, size: int, blocks: int) -> tuple[BlockRound, ...]:
    """The rounds of a broadcast of `blocks` blocks from rank 0, as few as there can be.

    There are `blocks - 1 + ceil(log2(size))` rounds, and each rank receives each block once. Read
    backwards, with receives for sends and sends for receives, it is a reduction to rank 0.

    Examples
    --------
    >>> for rank in range(5): print([round_[1:] for round_ in broadcast_rounds(rank, 5, 2)])
    [(0, None), (1, None), (1, None), (1, None)]
    [(None, None), (None, 1), (None, 0), (1, None)]
    [(None, None), (None, None), (None, 1), (None, 0)]
    [(None, 0), (0, None), (None, None), (None, 1)]
    [(None, None), (None, 0), (0, None), (0, 1)]
    >>> [round_.skip for round_ in broadcast_rounds(0, 5, 2)]
    [3, 1, 2, 3]
    """
    ascending = skips(size)[:0:-1]
    laps = len(ascending)
    receiving = _received(rank, size, blocks)
    sending = [_received((rank + skip) % size, size, blocks) for skip in ascending]
    first = -(blocks - 1) % laps
    return tuple(
        BlockRound(ascending[(first + i) % laps], sending[(first + i) % laps][i], received)
        for i, received in enumerate(receiving)
    )


@lru_cache(CACHED)
def _received(rank: int, size: int, blocks: int) -> tuple[int | None, ...]:
    """The block that a rank receives in each round, None where there is nothing new."""
    schedule = receive_schedule(rank, size)
    laps, last = len(schedule), blocks - 1
    first = -last % laps
    received: list[int | None] = []
    for i in range(first, first + last + laps):
        block = schedule[i % laps] + i // laps * laps - first
        # Blocks past the end stand for the last one, which may then have come before.
        new = rank > 0 and block >= 0 and (block < last or last not in received)
        received.append(min(block, last) if new else None)
    return tuple(received)
