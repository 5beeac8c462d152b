"""What each rank has in a call, and what it must get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from collx.bench.contents import Array, Data
from collx.bench.places import base
from collx.collectives import Shape, both_groups
from collx.neighborhood import Edge, Edges


class Sides(NamedTuple):
    """What one rank has: its contribution, its output's length, and what must come out.

    Attributes
    ----------
    send : array or None
        Contents of the send buffer; None if there is none.
    length : int or None
        Elements of the receive buffer; None if there is none.
    expected, bound : array or None
        What must come out at the beginning of the receive buffer, and how far it may be off.
    own : int
        Where in place the own contribution lies in the receive buffer.
    sent, received : list of int or None
        Elements of each block of a side that has blocks of its own sizes.
    """

    send: Array | None = None
    length: int | None = None
    expected: Array | None = None
    bound: Array | None = None
    own: int = 0
    sent: list[int] | None = None
    received: list[int] | None = None


class Layout(NamedTuple):
    """One rank's view of a call."""

    data: Data
    rank: int
    shape: Shape

    @property
    def local(self) -> range:
        """The ranks of the own group: all, if there are no two groups."""
        return both_groups(self.rank, self.shape.size, self.shape.low)[0]

    @property
    def remote(self) -> range:
        """The ranks that data come from and go to: those of the other group, or all."""
        return both_groups(self.rank, self.shape.size, self.shape.low)[1] or self.local

    @property
    def at_root(self) -> bool:
        """Whether this rank is the root."""
        return self.rank == self.shape.root

    @property
    def opposite(self) -> bool:
        """Whether this rank exchanges data with the root."""
        return self.shape.root in self.remote

    @property
    def block(self) -> tuple[int, int]:
        """Where the block of this rank begins and ends among those of its group."""
        start = sum(self.sizes(self.local)[: self.rank - self.local.start])
        return start, start + self.shape.sizes[self.rank]

    def sizes(self, ranks: range) -> list[int]:
        """The blocks of some ranks."""
        return list(self.shape.sizes[ranks.start : ranks.stop])


def _part(sides: Sides, gives: bool, takes: bool) -> Sides:
    """Only the sides that this rank has in a collective with a root."""
    some = sides if takes else Sides(sides.send, sent=sides.sent)
    return some if gives else some._replace(send=None)


def _bcast(at: Layout) -> Sides:
    whole = at.data.values(at.shape.root, 0, at.shape.total)
    return _part(Sides(whole, len(whole), whole), at.at_root, at.opposite)


def _allgather(at: Layout) -> Sides:
    sizes = at.sizes(at.remote)
    blocks = [at.data.values(q, 0, count) for q, count in zip(at.remote, sizes, strict=True)]
    send = at.data.values(at.rank, 0, at.shape.sizes[at.rank])
    return Sides(send, sum(sizes), np.concatenate(blocks), None, at.block[0], received=sizes)


def _scatter(at: Layout) -> Sides:
    sizes, (start, stop) = at.sizes(at.remote), at.block
    send = at.data.values(at.shape.root, 0, sum(sizes))
    piece = at.data.values(at.shape.root, start, stop)
    return _part(Sides(send, stop - start, piece, sent=sizes), at.at_root, at.opposite)


def _exchange(at: Layout, sent: list[int], pieces: Sequence[tuple[int, int, int]]) -> Sides:
    """Receive from each source what lies in its contribution between two places."""
    blocks = [at.data.values(*piece) for piece in pieces]
    expected, received = np.concatenate(blocks), [len(block) for block in blocks]
    send = at.data.values(at.rank, 0, sum(sent))
    return Sides(send, len(expected), expected, sent=sent, received=received)


def _alltoall(at: Layout) -> Sides:
    pair, counts, pieces = at.shape.pair, [], []
    for other in at.remote:
        counts.append(pair(at.rank, other))
        start = sum(pair(other, to) for to in range(at.local.start, at.rank))
        pieces.append((other, start, start + counts[-1]))
    return _exchange(at, counts, pieces)


def _edges(edges: Edges) -> list[Edge]:
    return [edge for edge in edges if edge]


def _neighbor_allgather(at: Layout) -> Sides:
    sources = [edge.rank for edge in _edges(at.shape.neighbors[at.rank].sources)]
    sides = _exchange(at, [at.shape.sizes[at.rank]], [(q, 0, at.shape.sizes[q]) for q in sources])
    return sides._replace(sent=None)


def _neighbor_alltoall(at: Layout) -> Sides:
    near, along, pieces = at.shape.neighbors, at.shape.along, []
    for source, lane in _edges(near[at.rank].sources):
        before = takewhile((at.rank, lane).__ne__, _edges(near[source].targets))
        start = sum(along(source, *edge) for edge in before)
        pieces.append((source, start, start + along(source, at.rank, lane)))
    return _exchange(at, [along(at.rank, *edge) for edge in _edges(near[at.rank].targets)], pieces)


def _reduced(at: Layout, ranks: range) -> Sides:
    total = at.shape.total
    send = at.data.values(at.rank, 0, total)
    return Sides(send, total, *(at.data.result(ranks, 0, total) if ranks else ()))


def _reduce_scatter(at: Layout) -> Sides:
    start, stop = at.block
    send = at.data.values(at.rank, 0, sum(at.sizes(at.local)))
    return Sides(send, stop - start, *at.data.result(at.remote, start, stop))


SIDES: dict[str, Callable[[Layout], Sides]] = {
    "barrier": lambda at: Sides(),
    "bcast": _bcast,
    "gather": lambda at: _part(_allgather(at), at.opposite, at.at_root),
    "scatter": _scatter,
    "allgather": _allgather,
    "alltoall": _alltoall,
    "reduce": lambda at: _part(_reduced(at, at.remote), at.opposite, at.at_root),
    "allreduce": lambda at: _reduced(at, at.remote),
    "reduce_scatter": _reduce_scatter,
    "scan": lambda at: _reduced(at, range(at.rank + 1)),
    "exscan": lambda at: _reduced(at, range(at.rank)),
    "neighbor_allgather": _neighbor_allgather,
    "neighbor_alltoall": _neighbor_alltoall,
}
"""For each family, what one rank has and gets; between groups it is the same with the other one."""


def sides_of(at: Layout) -> Sides:
    """What one rank has and gets."""
    family = at.shape.collective
    return SIDES[family if family in SIDES else base(family)](at)
