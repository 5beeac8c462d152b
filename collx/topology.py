"""Communicators with a topology: their neighbours, and the collectives among neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mpi4py import MPI

from collx.choice import Choice
from collx.neighborhood import Edge, Neighborhood
from collx.patterns.neighbors import cartesian, listed

Spec: TypeAlias = Any
Algorithm: TypeAlias = "str | Choice | None"


def neighbors_of(comm: MPI.Comm) -> Neighborhood:
    """The neighbours of this rank.

    Raises
    ------
    MPI.Exception
        If the communicator has no topology.
    """
    match comm.Get_topology():
        case MPI.CART:
            return cartesian(*MPI.Cartcomm(comm).Get_topo())
        case MPI.GRAPH:
            both = MPI.Graphcomm(comm).Get_neighbors(comm.Get_rank())
            return listed(both, both)
        case MPI.DIST_GRAPH:
            sources, targets, _ = MPI.Distgraphcomm(comm).Get_dist_neighbors()
            return listed(sources, targets)
    raise MPI.Exception(MPI.ERR_TOPOLOGY)


def numbers(edges: tuple[Edge | None, ...]) -> list[int]:
    """The edges that there are as a list of integers."""
    return [number for edge in edges if edge for number in edge]


def edges(numbers: list[int]) -> tuple[Edge, ...]:
    """The edges that a list of integers stands for.

    Examples
    --------
    >>> edges(numbers((Edge(3, 1), None, Edge(0))))
    (Edge(rank=3, lane=1), Edge(rank=0, lane=0))
    """
    return tuple(Edge(rank, lane) for rank, lane in zip(numbers[::2], numbers[1::2], strict=True))


class NeighborCollectives:
    """The collectives among neighbours: methods of all communicators with a topology.

    There is a block for each neighbour, in the order in which MPI lists them. A block outside a
    mesh is left as it is. `MPI.IN_PLACE` is not allowed.
    """

    _call: Callable[..., None]

    def Neighbor_allgather(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Send one block to all neighbours; collect equal blocks of all neighbours."""
        self._call("neighbor_allgather", sendbuf, recvbuf, algorithm)

    def Neighbor_allgatherv(
        self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None
    ) -> None:
        """Send one block to all neighbours; collect blocks of any size of all neighbours."""
        self._call("neighbor_allgatherv", sendbuf, recvbuf, algorithm)

    def Neighbor_alltoall(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Exchange equal blocks with all neighbours."""
        self._call("neighbor_alltoall", sendbuf, recvbuf, algorithm)

    def Neighbor_alltoallv(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Exchange blocks of any size with all neighbours."""
        self._call("neighbor_alltoallv", sendbuf, recvbuf, algorithm)

    def Neighbor_alltoallw(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Exchange blocks of any size and datatype with all neighbours."""
        self._call("neighbor_alltoallw", sendbuf, recvbuf, algorithm)
