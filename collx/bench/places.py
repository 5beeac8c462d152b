"""Where collectives run: on the world, on a torus of all ranks, or between its two halves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from mpi4py import MPI

from collx.collectives import COLLECTIVES, Collective, Shape
from collx.communicator import Comm
from collx.neighborhood import Neighborhood, with_graph
from collx.patterns.neighbors import cartesian, coordinates


def call_name(collective: str) -> str:
    """MPI's name in lower case, also of a collective between groups."""
    return collective.removeprefix("inter_")


def base(collective: str) -> str:
    """The family of the collective on all ranks that this one resembles.

    Examples
    --------
    >>> base("inter_gatherv"), base("neighbor_alltoallw"), base("reduce_scatter_block")
    ('gather', 'alltoall', 'reduce_scatter')
    """
    return call_name(COLLECTIVES[collective].family).removeprefix("neighbor_")


def kind_of(row: Collective) -> str:
    """What a collective runs on: one of `MAKERS`."""
    return "halves" if row.inter else "torus" if row.sparse else "world"


def fits(collective: str, ranks: int) -> bool:
    """Whether there are enough ranks: two groups need two."""
    return ranks > 1 or not COLLECTIVES[collective].inter


def lower(ranks: int) -> int:
    """Ranks in the lower half."""
    return ranks // 2


def grid(ranks: int) -> list[int]:
    """Rows and columns of the torus."""
    return MPI.Compute_dims(ranks, 2)


@cache
def torus(ranks: int) -> tuple[Neighborhood, ...]:
    """The four neighbours of each rank.

    Examples
    --------
    >>> [edge.rank for edge in torus(6)[0].targets]
    [4, 2, 1, 1]
    """
    places = [coordinates(rank, grid(ranks)) for rank in range(ranks)]
    return with_graph([cartesian(grid(ranks), (True, True), place) for place in places])


def shape_of(collective: str, sizes: Sequence[int], root: int = 0, in_place: bool = False) -> Shape:
    """A call of the collective, with blocks of so many elements."""
    row, ranks = COLLECTIVES[collective], len(sizes)
    return Shape(
        row.family,
        ranks,
        tuple(sizes),
        root,
        in_place,
        sizes_known=_sizes_known(collective),
        low=lower(ranks) if row.inter else 0,
        neighbors=torus(ranks) if row.sparse else (),
    )


def _sizes_known(collective: str) -> bool:
    """Whether the arguments of a rank tell it the sizes of all blocks."""
    if collective in ("allgatherv", "reduce_scatter"):
        return True
    return collective[-1] not in "vw" and collective != "inter_reduce_scatter"


def _torus(world: MPI.Intracomm) -> MPI.Cartcomm:
    return world.Create_cart(grid(world.Get_size()), (True, True))


def _halves(world: MPI.Intracomm) -> MPI.Intercomm:
    first = lower(world.Get_size())
    upper = world.Get_rank() >= first
    half = MPI.Intracomm(world.Split(int(upper)))
    made = half.Create_intercomm(0, world, 0 if upper else first)
    half.Free()
    return made


MAKERS: dict[str, Callable[[MPI.Intracomm], MPI.Comm]] = {
    "world": lambda world: world.Dup(),
    "torus": _torus,
    "halves": _halves,
}
"""How the communicators are made of the world."""


class Place(NamedTuple):
    """A communicator with the MPI's own collectives, and one with collx's."""

    native: Any
    comm: Any


class Places:
    """The communicators that some collectives need; all ranks must make them together.

    Parameters
    ----------
    world
        All ranks.
    collectives
        What is going to run.
    """

    def __init__(self, world: MPI.Intracomm, collectives: Iterable[str]) -> None:
        self._world = world
        kinds = dict.fromkeys(kind_of(COLLECTIVES[name]) for name in collectives)
        self._made = {kind: Place(MAKERS[kind](world), self._own(kind)) for kind in kinds}

    def _own(self, kind: str) -> Any:
        return Comm(MAKERS[kind](self._world))

    def of(self, collective: str) -> Place:
        """Where a collective runs."""
        return self._made[kind_of(COLLECTIVES[collective])]

    def renew(self) -> None:
        """Take new communicators for collx: messages of a wrong algorithm may be left behind."""
        self._made = {
            kind: place._replace(comm=self._own(kind)) for kind, place in self._made.items()
        }
