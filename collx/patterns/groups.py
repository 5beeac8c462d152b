"""Geometry of the two groups of an inter-communicator."""

from __future__ import annotations

from collections.abc import Sequence

from collx.patterns.digits import group, group_of


def overlaps(sizes: Sequence[int], index: int, others: Sequence[int]) -> list[tuple[int, int, int]]:
    """Where block `index` of one cut of a vector meets the blocks of another cut.

    Returns
    -------
    list of (int, int, int)
        The number of the other block; first cell and end of what they share, in block `index`.

    Examples
    --------
    >>> overlaps((4, 4), 1, (3, 3, 2))
    [(1, 0, 2), (2, 2, 4)]
    """
    start, found, first = sum(sizes[:index]), [], 0
    for block, size in enumerate(others):
        begin, end = max(first - start, 0), min(first + size - start, sizes[index])
        if begin < end:
            found.append((block, begin, end))
        first += size
    return found


def receivers(senders: int, receivers: int) -> list[range]:
    """For each of so many receivers the senders it hears: each sender is heard by one.

    Examples
    --------
    >>> receivers(5, 2), receivers(1, 3)
    ([range(0, 3), range(3, 5)], [range(0, 1), range(0, 0), range(0, 0)])
    """
    used = min(senders, receivers)
    return [group(i, senders, used) if i < used else range(0) for i in range(receivers)]


def receiver_of(sender: int, senders: int, receivers: int) -> int:
    """The receiver that hears this sender.

    Examples
    --------
    >>> [receiver_of(sender, 5, 2) for sender in range(5)]
    [0, 0, 0, 1, 1]
    """
    return group_of(sender, senders, min(senders, receivers))
