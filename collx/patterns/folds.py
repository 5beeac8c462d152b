"""Groups whose size is not what an algorithm would like: folds, factors, windows and distances.

All functions are pure. Groups of ranks are ranges or lists, their first rank is their leader.
"""

from __future__ import annotations

from typing import NamedTuple

from collx.patterns.digits import group, power_below


def kept(size: int, radix: int) -> int:
    """How many ranks stay in: the largest multiple of the largest power of `radix`.

    At least half of the ranks stay, so that every rank left out finds one for itself.

    >>> kept(13, 2), kept(13, 3), kept(13, 4)
    (8, 9, 12)
    """
    power = power_below(size, radix)
    return size // power * power


def consecutive(size: int, groups: int) -> list[range]:
    """Groups of consecutive ranks, of nearly equal size, the larger ones first.

    >>> consecutive(7, 4)
    [range(0, 2), range(2, 4), range(4, 6), range(6, 7)]
    """
    return [group(index, size, groups) for index in range(groups)]


def modulo(size: int, groups: int) -> list[range]:
    """Groups of the ranks that are equal modulo their number.

    >>> modulo(7, 4)
    [range(0, 7, 4), range(1, 7, 4), range(2, 7, 4), range(3, 7, 4)]
    """
    return [range(index, size, groups) for index in range(groups)]


class BinaryBlock(NamedTuple):
    """One of the blocks of consecutive ranks whose sizes are the powers of two in the size.

    The vector is cut into as many parts as the largest block has ranks. Each rank of a block owns
    some of them; `larger` are the ranks of the next larger block that own the same parts, and
    `smaller` (none or one) is the rank of the next smaller block that owns these and more.
    """

    ranks: range
    parts: range
    larger: range
    smaller: range


def binary_block(rank: int, size: int) -> BinaryBlock:
    """The binary block that a rank is in, with its parts and partners.

    >>> binary_block(9, 13)
    BinaryBlock(ranks=range(8, 12), parts=range(2, 4), larger=range(2, 4), smaller=range(12, 13))
    """
    blocks = _binary_blocks(size)
    index = next(i for i, ranks in enumerate(blocks) if rank in ranks)
    ranks, finest = blocks[index], len(blocks[0])
    place, width = rank - ranks.start, finest // len(ranks)
    larger, smaller = range(0), range(0)
    if index > 0:
        ratio = len(blocks[index - 1]) // len(ranks)
        larger = blocks[index - 1][place * ratio : (place + 1) * ratio]
    if index + 1 < len(blocks):
        owner = place * len(blocks[index + 1]) // len(ranks)
        smaller = blocks[index + 1][owner : owner + 1]
    return BinaryBlock(ranks, range(place * width, (place + 1) * width), larger, smaller)


def _binary_blocks(size: int) -> list[range]:
    """The blocks, the largest first."""
    blocks, start = [], 0
    while start < size:
        blocks.append(range(start, start + power_below(size - start)))
        start = blocks[-1].stop
    return blocks


def factors(size: int, base: int) -> tuple[int, ...]:
    """`base` as often as it divides `size`, and what is left; `base` 0 stands for `size`.

    >>> factors(12, 2), factors(12, 4), factors(7, 2), factors(12, 0)
    ((2, 2, 3), (4, 3), (7,), (12,))
    """
    found: list[int] = []
    while base > 1 and size % base == 0:
        found.append(base)
        size //= base
    return (*found, size) if size > 1 else tuple(found)


class Fibre(NamedTuple):
    """The ranks that differ from one rank in one digit only, and that digit."""

    ranks: range
    digit: int


def fibres(rank: int, size: int, base: int) -> list[Fibre]:
    """For each of the `factors` of `size`, the ranks that differ in that digit, lowest first.

    >>> fibres(4, 6, 2)
    [Fibre(ranks=range(4, 6), digit=0), Fibre(ranks=range(0, 6, 2), digit=2)]
    """
    found, stride = [], 1
    for factor in factors(size, base):
        digit = rank // stride % factor
        first = rank - digit * stride
        found.append(Fibre(range(first, first + factor * stride, stride), digit))
        stride *= factor
    return found


class Message(NamedTuple):
    """In a window plan: how far a message goes, and whether it holds the sender's own part."""

    distance: int
    own: bool


def window_plan(size: int, ports: int = 1) -> list[list[Message]]:
    """Rounds after which each rank holds the window of all `size` ranks up to itself.

    A rank holds the values of the `width - 1` ranks before it. What it receives is a window next
    to that: with the sender's own value `width` values, without it one less. Planned backwards:
    as many messages without as the last window would otherwise be too wide.

    >>> for messages in window_plan(7): print([tuple(message) for message in messages])
    [(1, True)]
    [(2, True)]
    [(3, False)]
    >>> for messages in window_plan(7, ports=2): print([tuple(message) for message in messages])
    [(1, True), (2, True)]
    [(2, False), (4, False)]
    """
    plan: list[list[Message]] = []
    while size > 1:
        width = -(-size // (ports + 1))
        shorter = (ports + 1) * width - size
        plan.append(_window_round(width, ports, shorter))
        size = width
    return plan[::-1]


def _window_round(width: int, ports: int, shorter: int) -> list[Message]:
    messages, covered = [], width - 1
    for port in range(ports):
        own = port < ports - shorter
        if own or width > 1:
            messages.append(Message(covered + own, own))
            covered += width - 1 + own
    return messages


def swing_distance(step: int) -> int:
    """The distance of step 0, 1, 2, ... of swing: each about twice the last, sides alternating.

    >>> [swing_distance(step) for step in range(6)]
    [1, -1, 3, -5, 11, -21]
    """
    return (1 + (-(2 << step) if step % 2 else 2 << step)) // 3
