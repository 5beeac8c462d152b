"""Neighbourhoods: the edges of grids and of lists of neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from collx.neighborhood import Edge, Neighborhood


def coordinates(rank: int, dims: Sequence[int]) -> tuple[int, ...]:
    """Where a rank is in a grid, the last coordinate running fastest.

    Examples
    --------
    >>> coordinates(7, (3, 4)), rank_at((1, 3), (3, 4))
    ((1, 3), 7)
    """
    found = []
    for extent in reversed(dims):
        rank, coordinate = divmod(rank, extent)
        found.append(coordinate)
    return tuple(reversed(found))


def rank_at(place: Sequence[int], dims: Sequence[int]) -> int:
    """The rank at a place in a grid."""
    rank = 0
    for coordinate, extent in zip(place, dims, strict=True):
        rank = rank * extent + coordinate
    return rank


def cartesian(dims: Sequence[int], periods: Sequence[int], place: Sequence[int]) -> Neighborhood:
    """The neighbours in a grid: for each dimension the one before and the one after.

    A lane stands for a dimension and a direction. What goes in the positive direction arrives in
    the block of the receiver's negative side, also where both neighbours are the same rank.

    Examples
    --------
    >>> near = cartesian((2, 3), (True, False), (0, 0))
    >>> near.targets
    (Edge(rank=3, lane=0), Edge(rank=3, lane=1), None, Edge(rank=1, lane=3))
    >>> near.sources
    (Edge(rank=3, lane=1), Edge(rank=3, lane=0), None, Edge(rank=1, lane=2))
    """
    sides = [
        _beside(dims, periods, place, dimension, step)
        for dimension in range(len(dims))
        for step in (-1, 1)
    ]
    return Neighborhood(
        tuple(None if rank is None else Edge(rank, side ^ 1) for side, rank in enumerate(sides)),
        tuple(None if rank is None else Edge(rank, side) for side, rank in enumerate(sides)),
        tuple(dims),
    )


def _beside(
    dims: Sequence[int], periods: Sequence[int], place: Sequence[int], dimension: int, step: int
) -> int | None:
    moved = list(place)
    moved[dimension] += step
    if periods[dimension]:
        moved[dimension] %= dims[dimension]
    inside = 0 <= moved[dimension] < dims[dimension]
    return rank_at(moved, dims) if inside else None


def listed(sources: Iterable[int], targets: Iterable[int]) -> Neighborhood:
    """The neighbours that lists name: the k-th edge to a rank is that rank's k-th edge from here.

    Examples
    --------
    >>> listed((1, 1, 0), ()).sources
    (Edge(rank=1, lane=0), Edge(rank=1, lane=1), Edge(rank=0, lane=0))
    """
    return Neighborhood(tuple(_numbered(sources)), tuple(_numbered(targets)))


def _numbered(ranks: Iterable[int]) -> Iterator[Edge]:
    seen: Counter[int] = Counter()
    for rank in ranks:
        yield Edge(rank, seen[rank])
        seen[rank] += 1
