"""Exchanges of blocks: who sends which blocks to whom in each round of an allgather.

An allgather is described for one rank as rounds of `Exchange`s. Read backwards, partial sums for
the blocks received go to where these came from, and partial sums for the blocks sent come back:
that is a reduce-scatter of the same cost. Every rank gets every block exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import isqrt
from operator import mul
from typing import NamedTuple, TypeAlias

from collx.patterns.circulant import Slots
from collx.patterns.digits import by_node
from collx.patterns.folds import swing_distance


class Exchange(NamedTuple):
    """One message in each direction: numbers of the blocks in it (none: no message)."""

    to: int
    sent: Sequence[int]
    source: int
    received: Sequence[int]


Rounds: TypeAlias = "list[list[Exchange]]"


def by_slots(rank: int, size: int, rounds: Sequence[Sequence[Slots]]) -> Rounds:
    """Exchanges over circulant skips, from the slots that a reduce-scatter moves in each round.

    Examples
    --------
    >>> by_slots(0, 3, (((2, 3),), ((1, 2),)))[1]
    [Exchange(to=1, sent=range(0, 1), source=2, received=range(2, 3))]
    """
    return [
        [
            Exchange(
                (rank - start) % size,
                range(rank, rank + stop - start),
                (rank + start) % size,
                range(rank + start, rank + stop),
            )
            for start, stop in messages
        ]
        for messages in reversed(rounds)
    ]


def grid_factors(size: int, dimensions: int) -> tuple[int, ...]:
    """`size` as a product of that many nearly equal factors, the smallest first.

    Examples
    --------
    >>> grid_factors(12, 2), grid_factors(12, 3), grid_factors(64, 3), grid_factors(7, 2)
    ((3, 4), (2, 2, 3), (4, 4, 4), (1, 7))
    """
    if dimensions == 1:
        return (size,)
    candidates = (f for f in range(1, isqrt(size) + 1) if f**dimensions <= size)
    smallest = max(f for f in candidates if size % f == 0)
    return tuple(sorted((smallest, *grid_factors(size // smallest, dimensions - 1))))


def largest_divisor(size: int, limit: int) -> int:
    """The largest divisor of `size` up to `limit`.

    Examples
    --------
    >>> largest_divisor(12, 5), largest_divisor(7, 4)
    (4, 1)
    """
    return next(d for d in range(min(size, limit), 0, -1) if size % d == 0)


def mixed_radix(rank: int, factors: Sequence[int], order: str = "doubling") -> Rounds:
    """Exchanges in which ranks that differ in one digit pass on all they have.

    The rank is written with one digit for each factor, the least significant first; there are as
    many ranks as the product of the factors. With `order="doubling"` the first digit comes
    first, with `"halving"` the last.

    Examples
    --------
    >>> mixed_radix(0, (2, 2))
    [[Exchange(to=1, sent=[0], source=1, received=[1])], \
[Exchange(to=2, sent=[0, 1], source=2, received=[2, 3])]]
    >>> mixed_radix(0, (2, 2), "halving")[1]
    [Exchange(to=1, sent=[0, 2], source=1, received=[1, 3])]
    """
    strides = [1, *accumulate(factors, mul)]
    digits = list(zip(strides, factors, strict=False))
    held, rounds = [rank], []
    for stride, factor in digits if order == "doubling" else reversed(digits):
        digit = rank // stride % factor
        # Nearest lower ranks first, then the higher ones: the order in which operands must join.
        nearest = [*range(digit - 1, -1, -1), *range(digit + 1, factor)]
        hops = [(other - digit) * stride for other in nearest]
        rounds.append(
            [Exchange(rank + hop, held, rank + hop, [h + hop for h in held]) for hop in hops]
        )
        held = sorted(h + hop for hop in (0, *hops) for h in held)
    return rounds


def neighbors(rank: int, size: int) -> Rounds:
    """Exchanges with the two neighbours in turn, two blocks at a time, of an even number of ranks.

    Examples
    --------
    >>> for round_ in neighbors(2, 6): print(*round_)
    Exchange(to=3, sent=[2], source=3, received=[3])
    Exchange(to=1, sent=[2, 3], source=1, received=[0, 1])
    Exchange(to=3, sent=[0, 1], source=3, received=[4, 5])
    """
    forward = 1 if rank % 2 == 0 else -1
    rounds = [[Exchange(rank + forward, [rank], rank + forward, [rank + forward])]]
    pair = sending = rank // 2
    for i in range(1, size // 2):
        peer = (rank + (-forward if i % 2 else forward)) % size
        arriving = pair - forward * (i + 1) // 2 if i % 2 else pair + forward * i // 2
        rounds.append([Exchange(peer, _pair(sending, size), peer, _pair(arriving, size))])
        sending = arriving
    return rounds


def _pair(number: int, size: int) -> list[int]:
    first = 2 * number % size
    return [first, first + 1]


def aggregated_trees(rank: int, size: int, aggregation: int = 0) -> Rounds:
    """Exchanges of the parallel aggregated trees, at most `aggregation` blocks in a message.

    Every block goes down its own binomial tree, far ranks first. A logarithmic phase feeds
    `aggregation` parts of the trees (0: all there are), which then advance together.

    Examples
    --------
    >>> [(e.to, *e.sent) for [e] in aggregated_trees(0, 8, 2)]
    [(4, 0), (1, 4, 0), (2, 4, 0), (1, 2, 6)]
    >>> [(e.to, *e.sent) for [e] in aggregated_trees(0, 7)]
    [(4, 0), (2, 3, 0), (1, 3, 5, 0)]
    """
    return [
        [
            Exchange(
                (rank + distance) % size,
                [(rank + distance - key) % size for key in reversed(keys)],
                (rank - distance) % size,
                [(rank - key) % size for key in reversed(keys)],
            )
        ]
        for distance, keys in tree_steps(size, aggregation)
    ]


@lru_cache(256)
def tree_steps(size: int, aggregation: int) -> tuple[tuple[int, range], ...]:
    """For each round the distance, and which blocks arrive: counted back from the receiver.

    Examples
    --------
    >>> tree_steps(5, 2)
    ((4, range(4, 5, 8)), (1, range(1, 5, 4)), (2, range(2, 5, 4)), (1, range(3, 5, 4)))
    """
    full = 1 << (size - 1).bit_length()
    parts = min(1 << (aggregation.bit_length() - 1), full) if aggregation else full
    apart = full // parts
    steps = []
    distance = full // 2
    while distance >= apart:
        steps.append((distance, range(distance, size, 2 * distance)))
        distance //= 2
    steps += [(x & -x, range(x, size, apart)) for x in range(1, apart)]
    return tuple(step for step in steps if step[1])


def swing(rank: int, size: int, order: str = "halving") -> Rounds:
    """Exchanges at the distances 1, -1, 3, -5, 11, ... of an even number of ranks.

    Even ranks go forward by them, odd ranks back. With `order="halving"` few blocks go far
    and many near; with `"doubling"` each rank holds consecutive blocks all the time.

    Examples
    --------
    >>> for round_ in swing(0, 6): print(*round_)
    Exchange(to=3, sent=[0], source=3, received=[3])
    Exchange(to=5, sent=[0, 3], source=5, received=[2, 5])
    Exchange(to=1, sent=[0, 3], source=1, received=[1, 4])
    >>> for round_ in swing(0, 6, "doubling"): print(*round_)
    Exchange(to=1, sent=[0], source=1, received=[1])
    Exchange(to=5, sent=[0, 1], source=5, received=[4, 5])
    Exchange(to=3, sent=[0, 1], source=3, received=[2, 3])
    """
    gains = _swing_halving(size) if order == "halving" else _swing_doubling(size)
    rounds = []
    for step, offsets in gains:
        distance = swing_distance(step)
        peer = (rank + (distance if rank % 2 == 0 else -distance)) % size
        sent, received = ([*_facing(who, offsets, size)] for who in (peer, rank))
        rounds.append([Exchange(peer, sent, peer, received)])
    return rounds


def _facing(rank: int, offsets: Sequence[int], size: int) -> list[int]:
    """The blocks at these offsets, which even ranks count forward and odd ranks back."""
    return sorted((rank + (d if rank % 2 == 0 else -d)) % size for d in offsets)


@lru_cache(256)
def _swing_halving(size: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """For each step, the last one first, the offsets of the blocks that arrive in it."""
    gains, held = [], [0]
    for step in range((size - 1).bit_length() - 1, -1, -1):
        # The peer counts in the other direction, from itself.
        seen = dict.fromkeys((swing_distance(step) - d) % size for d in held)
        offsets = tuple(d for d in seen if d not in held)
        gains.append((step, offsets))
        held = [*held, *offsets]
    return tuple(gains)


@lru_cache(256)
def _swing_doubling(size: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """For each step, the first one first, the offsets of the blocks that arrive in it."""
    gains, first, stop = [], 0, 1
    for step in range((size - 1).bit_length()):
        count = min(stop - first, size - (stop - first))
        if step % 2 == 0:
            gains.append((step, tuple(range(stop, stop + count))))
            stop += count
        else:
            gains.append((step, tuple(range(first - count, first))))
            first -= count
    return tuple(gains)


def balanced_order(sizes: Sequence[int]) -> list[int]:
    """An order of the ranks in which large and small blocks alternate, at every scale.

    Smallest and largest are paired, then the pairs in the same way, until one list is left.

    Examples
    --------
    >>> balanced_order([9, 1, 1, 5, 2])
    [1, 4, 3, 2, 0]
    """
    lists = [(size, [rank]) for rank, size in enumerate(sizes)]
    while len(lists) > 1:
        lists.sort()
        odd = len(lists) % 2
        alone, paired = lists[:odd], lists[odd:]
        half = len(paired) // 2
        pairs = zip(paired[:half], reversed(paired), strict=False)
        lists = alone + [(small + large, a + b) for (small, a), (large, b) in pairs]
    return lists[0][1]


class Lanes:
    """The place of a rank on its node, and in the lanes that run across the nodes.

    There are as many lanes as ranks on the smallest node, or at most `limit`. The ranks of each
    node are dealt out to the lanes; the first rank of each lane on a node acts for the others.

    Attributes
    ----------
    groups : list of list of int
        The ranks on each node.
    index : int
        Number of this rank's node.
    place : int
        Where this rank stands in `groups[index]`.
    dealt : list of list of list of int
        For each node and each lane the ranks.
    lane : int
        This rank's lane.

    Examples
    --------
    >>> at = Lanes((7, 7, 7, 5, 5), rank=2)
    >>> at.groups, at.dealt, at.lane, at.active, at.ranks
    ([[0, 1, 2], [3, 4]], [[[0, 2], [1]], [[3], [4]]], 0, False, [0, 3])
    """

    def __init__(self, nodes: Sequence[int], rank: int, limit: int = 0) -> None:
        self.groups = by_node(nodes)
        smallest = min(map(len, self.groups))
        self.count = min(limit or smallest, smallest)
        self.dealt = [[group[i :: self.count] for i in range(self.count)] for group in self.groups]
        self.index = next(i for i, group in enumerate(self.groups) if rank in group)
        self.place = self.group.index(rank)
        self.lane = self.place % self.count

    @property
    def group(self) -> list[int]:
        """The ranks on this node."""
        return self.groups[self.index]

    @property
    def active(self) -> bool:
        """Whether this rank acts for its lane."""
        return self.place < self.count

    @property
    def mine(self) -> list[int]:
        """The ranks of this lane on this node."""
        return self.dealt[self.index][self.lane]

    @property
    def ranks(self) -> list[int]:
        """The ranks that act for this lane on each node."""
        return [lanes[self.lane][0] for lanes in self.dealt]
