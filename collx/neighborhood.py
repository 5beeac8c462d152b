"""With whom a rank exchanges blocks in a neighbourhood collective."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias


class Edge(NamedTuple):
    """The far end of an edge: the rank there, and a lane that tells parallel edges apart.

    Both ends of an edge name the same lane.
    """

    rank: int
    lane: int = 0


Edges: TypeAlias = "tuple[Edge | None, ...]"
"""One edge for each block; None outside a mesh, where a block is neither sent nor touched."""

Graph: TypeAlias = "tuple[tuple[Edge, ...], ...]"
"""For each rank the edges to its targets."""


class Neighborhood(NamedTuple):
    """The neighbours of one rank.

    Attributes
    ----------
    sources, targets : tuple of Edge or None
        From whom each block of the output comes, and to whom each block of the input goes.
    dims : tuple of int
        The grid of a Cartesian communicator; empty for other graphs.
    graph : tuple or None
        The edges of all ranks, for algorithms that need to know.
    """

    sources: Edges
    targets: Edges
    dims: tuple[int, ...] = ()
    graph: Graph | None = None


NOBODY = Neighborhood((), ())
"""No neighbours."""


def with_graph(neighborhoods: list[Neighborhood]) -> tuple[Neighborhood, ...]:
    """The neighbourhoods of all ranks, each with the edges of all."""
    graph = tuple(tuple(edge for edge in near.targets if edge) for near in neighborhoods)
    return tuple(near._replace(graph=graph) for near in neighborhoods)


@lru_cache(64)
def complete(size: int) -> tuple[Neighborhood, ...]:
    """The neighbourhoods of ranks that are all neighbours of one another.

    Examples
    --------
    >>> complete(3)[1].sources
    (Edge(rank=0, lane=0), Edge(rank=2, lane=0))
    """
    others = [tuple(Edge(other) for other in range(size) if other != rank) for rank in range(size)]
    return with_graph([Neighborhood(edges, edges) for edges in others])
