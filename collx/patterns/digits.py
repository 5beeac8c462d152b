"""Digits of ranks, groups of neighbouring ranks, and the routes of blocks in an alltoall."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import NamedTuple

from collx.patterns.circulant import skips

CACHED = 2**10
"""Results kept of each function whose result grows with the number of ranks."""


def power_below(size: int, radix: int = 2) -> int:
    """The largest power of `radix` that is at most `size`.

    Examples
    --------
    >>> power_below(7), power_below(8), power_below(26, radix=3)
    (4, 8, 9)
    """
    power = 1
    while power * radix <= size:
        power *= radix
    return power


def weights(size: int, radix: int = 2) -> list[int]:
    """The powers of `radix` below `size`: the weights of the digits of ranks.

    Examples
    --------
    >>> weights(9), weights(9, radix=3)
    ([1, 2, 4, 8], [1, 3])
    """
    found, weight = [], 1
    while weight < size:
        found.append(weight)
        weight *= radix
    return found


def group(index: int, size: int, groups: int) -> range:
    """The ranks in group `index` of `groups` groups of consecutive ranks of nearly equal size.

    Examples
    --------
    >>> [group(index, 7, 4) for index in range(4)]
    [range(0, 2), range(2, 4), range(4, 6), range(6, 7)]
    """
    small, larger = divmod(size, groups)
    start = index * small + min(index, larger)
    return range(start, start + small + (index < larger))


def group_of(rank: int, size: int, groups: int) -> int:
    """The index of the `group` that a rank is in.

    Examples
    --------
    >>> [group_of(rank, 7, 4) for rank in range(7)]
    [0, 0, 1, 1, 2, 2, 3]
    """
    small, larger = divmod(size, groups)
    return max(rank // (small + 1), (rank - larger) // small)


def by_node(nodes: Sequence[int]) -> list[list[int]]:
    """The ranks of each node.

    Examples
    --------
    >>> by_node((0, 1, 0, 1, 1))
    [[0, 2], [1, 3, 4]]
    """
    found: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        found.setdefault(node, []).append(rank)
    return list(found.values())


def neighbors_by_node(nodes: Sequence[int]) -> list[list[int]]:
    """The longest runs of consecutive ranks on one node: nodes, cut where the order needs it.

    Examples
    --------
    >>> neighbors_by_node((0, 0, 1, 1, 0))
    [[0, 1], [2, 3], [4]]
    """
    ranks = range(len(nodes))
    return [list(run) for _, run in groupby(ranks, key=nodes.__getitem__)]


class Move(NamedTuple):
    """One message of a route: to whom, from whom the like arrives, and which blocks are in it."""

    to: int
    source: int
    blocks: tuple[int, ...]


class Route(NamedTuple):
    """How the blocks of an alltoall travel, the same for all ranks.

    Block j of a rank is the one for the rank at offset j; all ranks in here are offsets.

    Attributes
    ----------
    rounds
        In each round some blocks j move on, wherever they come from.
    origins
        For each j where its sender is, seen from the rank where it arrives.
    """

    rounds: tuple[tuple[Move, ...], ...]
    origins: tuple[int, ...]


@lru_cache(CACHED)
def digit_route(size: int, factors: tuple[int, ...], carry: bool = True) -> Route:
    """In each round one digit of all offsets is worked off, the lowest first.

    The digits are to the bases `factors`, the last of which is repeated if needed. Without `carry`
    ranks are added digit by digit: then each round takes place in one dimension of a grid.

    Examples
    --------
    >>> for moves in digit_route(5, (2,)).rounds: print([tuple(move) for move in moves])
    [(1, -1, (1, 3))]
    [(2, -2, (2, 3))]
    [(4, -4, (4,))]
    >>> for moves in digit_route(6, (2, 3), carry=False).rounds: print([tuple(m) for m in moves])
    [(1, 1, (1, 3, 5))]
    [(2, 4, (2, 3)), (4, 2, (4, 5))]
    """
    rounds, weight, origins = [], 1, [0] * size
    for factor in _repeated(factors, size):
        moving: list[list[int]] = [[] for _ in range(factor)]
        for j in range(size):
            moving[j // weight % factor].append(j)
        hops = [(z * weight, (z if carry else z - factor) * -weight) for z in range(factor)]
        for (_, back), blocks in zip(hops[1:], moving[1:], strict=True):
            for j in blocks:
                origins[j] += back
        rounds.append(_moves(hops[1:], moving[1:]))
        weight *= factor
    return Route(tuple(rounds), tuple(origins))


def _repeated(factors: tuple[int, ...], size: int) -> tuple[int, ...]:
    while prod(factors) < size:
        factors = (*factors, max(factors[-1], 2))
    return factors


def _moves(hops: list[tuple[int, int]], moving: list[list[int]]) -> tuple[Move, ...]:
    return tuple(
        Move(*hop, tuple(blocks)) for hop, blocks in zip(hops, moving, strict=True) if blocks
    )


@lru_cache(CACHED)
def circulant_route(size: int, ports: int = 1) -> Route:
    """In each round the largest multiple of a skip is worked off from all offsets.

    Examples
    --------
    >>> for moves in circulant_route(5).rounds: print([tuple(move) for move in moves])
    [(3, -3, (3, 4))]
    [(2, -2, (2,))]
    [(1, -1, (1, 4))]
    """
    rounds, rest = [], list(range(size))
    for skip in skips(size, ports)[1:]:
        moving: list[list[int]] = [[] for _ in range(ports + 1)]
        for j, offset in enumerate(rest):
            moving[offset // skip].append(j)
            rest[j] = offset % skip
        hops = [(z * skip, -z * skip) for z in range(1, ports + 1)]
        rounds.append(_moves(hops, moving[1:]))
    return Route(tuple(rounds), tuple(-j for j in range(size)))


@lru_cache(CACHED)
def swing_route(size: int) -> Route:
    """The distances of swing, +1, -1, +3, -5, ...; odd ranks see the ring mirrored.

    A message takes a block to the other kind of ranks, where offsets count the other way.

    Examples
    --------
    >>> for moves in swing_route(6).rounds: print([tuple(move) for move in moves])
    [(1, 1, (1, 4))]
    [(-1, -1, (2, 5))]
    [(3, 3, (2, 3, 4))]
    """
    steps = _swing_steps(size)
    rounds, rest, origins = [], list(range(size)), [0] * size
    for step in range((size - 1).bit_length()):
        hop = _swing(step)
        blocks = [j for j in range(size) if rest[j] and steps[rest[j]] == step]
        for j in blocks:
            rest[j], origins[j] = (hop - rest[j]) % size, hop - origins[j]
        rounds.append(_moves([(hop, hop)], [blocks]))
    return Route(tuple(rounds), tuple(origins))


def _swing_steps(size: int) -> dict[int, int]:
    """For each offset the first step on its way, found from the last step backwards."""
    steps: dict[int, int] = {}
    for step in reversed(range((size - 1).bit_length())):
        for reached in [0, *steps]:
            offset = (_swing(step) - reached) % size
            if offset:
                steps.setdefault(offset, step)
    return steps


def _swing(step: int) -> int:
    power: int = (-2) ** (step + 1)
    return (1 - power) // 3
