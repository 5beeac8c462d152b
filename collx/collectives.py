"""What each MPI collective means, as data, and the call that an algorithm sees.

`COLLECTIVES` has one row for each MPI collective. The communicator's methods, the verifier, the
cost analysis, the tests' reference and the documentation read this table; no algorithm does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import NamedTuple

from collx.neighborhood import NOBODY, Neighborhood, complete
from collx.schedule import EMPTY, INPUT, OUTPUT, SCRATCH, Blocks, Region


class Call:
    """One rank's view of one collective call: what an algorithm is given.

    Attributes
    ----------
    collective : str
        Name of the family, for example `"reduce_scatter"`.
    rank, size, root : int
        MPI's meaning, inside the group that makes the call. On an inter-communicator that is the
        merged group; the root is -1 on ranks that are in its group and have nothing to do.
    input, output : Region
        The cells this rank contributes and the cells it must fill; `EMPTY` where it has none.
        With `MPI.IN_PLACE` both name the same buffer. A broadcast has only an output.
    input_blocks, output_blocks : Blocks
        The same cells cut into one block per rank: the blocks of the collective where it has
        some, nearly equal parts otherwise.
    sizes : sequence of int or None
        Cells in the block of each rank, for the collectives that have blocks; None if this rank
        cannot know them (gatherv and scatterv).
    commutative : bool
        Whether operands may be exchanged.
    cell_bytes : int
        Bytes in a cell: 1 in data movement, the size of the datatype in a reduction.
    nodes : tuple of int
        For each rank of the group, the number of the node it runs on.
    low : int
        On an inter-communicator, ranks 0 to `low - 1` are one group and the others the other; the
        side of a call that has blocks has one for each rank of the `remote` group, but the input
        of an `inter_reduce_scatter` one for each rank of the `local` group. Otherwise 0.
    neighbors : Neighborhood
        For a neighbourhood collective, whom the blocks are for and where they come from: there
        `sizes` is None unless all blocks are equal.
    """

    def __init__(
        self,
        collective: str,
        rank: int,
        size: int,
        root: int = 0,
        *,
        input: Region | Blocks = EMPTY,
        output: Region | Blocks = EMPTY,
        sizes: Sequence[int] | None = None,
        commutative: bool = True,
        cell_bytes: int = 1,
        nodes: tuple[int, ...] | None = None,
        low: int = 0,
        neighbors: Neighborhood = NOBODY,
    ) -> None:
        self.low, self.neighbors = low, neighbors
        self.collective, self.rank, self.size, self.root = collective, rank, size, root
        self.input, self._input_blocks = _whole(input)
        self.output, self._output_blocks = _whole(output)
        self.sizes = sizes
        self.commutative, self.cell_bytes = commutative, cell_bytes
        self.nodes = nodes if nodes is not None else (0,) * size
        self.ranks: Sequence[int] | None = None
        self._scratch_sizes: list[int] = []

    @property
    def input_blocks(self) -> Blocks:
        """The input in blocks."""
        return self._input_blocks or self.input.split(self.size)

    @property
    def output_blocks(self) -> Blocks:
        """The output in blocks."""
        return self._output_blocks or self.output.split(self.size)

    @property
    def local(self) -> range:
        """The group of this rank: its side of an inter-communicator, otherwise all ranks."""
        return both_groups(self.rank, self.size, self.low)[0]

    @property
    def remote(self) -> range:
        """The other group of an inter-communicator."""
        return both_groups(self.rank, self.size, self.low)[1]

    @property
    def opposite(self) -> range:
        """The group across from the root's; an empty one on ranks that have nothing to do."""
        if self.root in self.remote:
            return self.local
        return self.remote if self.rank == self.root else range(0)

    @property
    def left(self) -> int:
        """The rank before this one on the ring."""
        return (self.rank - 1) % self.size

    @property
    def right(self) -> int:
        """The rank after this one on the ring."""
        return (self.rank + 1) % self.size

    @property
    def relative_rank(self) -> int:
        """The rank counted from the root."""
        return (self.rank - self.root) % self.size

    def absolute(self, relative_rank: int) -> int:
        """The rank whose `relative_rank` is this."""
        return (relative_rank + self.root) % self.size

    @property
    def in_place(self) -> bool:
        """Whether input and output have cells in common."""
        return self.input.overlaps(self.output)

    @property
    def scratch_sizes(self) -> Sequence[int]:
        """Cells of each scratch buffer that was asked for so far."""
        return self._scratch_sizes

    def scratch(self, cells: int) -> Region:
        """A new private buffer of this many cells."""
        self._scratch_sizes.append(cells)
        return Region((SCRATCH + len(self._scratch_sizes) - 1, 0, cells))

    def result(self) -> Region:
        """The output where there is one, otherwise scratch for a vector like the input."""
        return self.output if self.rank == self.root else self.scratch(len(self.input))

    def segment_cells(self, segment: int) -> int:
        """Cells in a segment of `segment` bytes (at least one); 0 means not segmented."""
        return max(segment // self.cell_bytes, 1) if segment else 0

    def sub(
        self,
        collective: str,
        *,
        ranks: Sequence[int] | None = None,
        root: int = 0,
        input: Region | Blocks = EMPTY,
        output: Region | Blocks = EMPTY,
        sizes: Sequence[int] | None = None,
    ) -> Call:
        """The call that the group `ranks` makes, as a part of this one.

        Parameters
        ----------
        ranks
            Ranks of this call, in the order of their ranks in the group; all of them by default.
            This rank must be among them.
        root
            Root inside the group.
        input, output
            Regions or blocks of this call's buffers or scratch.
        sizes
            Cells per block; taken from the blocks where they are given.
        """
        members = range(self.size) if ranks is None else ranks
        call = Call(
            collective,
            members.index(self.rank),
            len(members),
            root,
            input=input,
            output=output,
            sizes=sizes if sizes is not None else _sizes(input, output),
            commutative=self.commutative,
            cell_bytes=self.cell_bytes,
            nodes=self.nodes if ranks is None else tuple(self.nodes[rank] for rank in ranks),
        )
        call.ranks = ranks
        call._scratch_sizes = self._scratch_sizes
        return call

    def inside(self) -> Call:
        """The same call as its algorithm sees it: its group is all there is."""
        seen = copy(self)
        seen.ranks = None
        return seen

    def with_input(self, input: Region) -> Call:
        """The same call on a copy of the input that lies in `input`."""
        blocks = self._input_blocks
        call = self.sub(self.collective, root=self.root, output=self._output_blocks or self.output)
        call.sizes = self.sizes
        call.input, call._input_blocks = input, blocks and input.blocks(map(len, blocks))
        return call


def both_groups(rank: int, size: int, low: int) -> tuple[range, range]:
    """The group of a rank and the other one, where ranks below `low` are one group.

    Examples
    --------
    >>> both_groups(1, 5, low=2), both_groups(1, 5, low=0)
    ((range(0, 2), range(2, 5)), (range(0, 5), range(0, 0)))
    """
    first, second = range(low), range(low, size)
    return (first, second) if rank < low else (second, first)


def _whole(region: Region | Blocks) -> tuple[Region, Blocks | None]:
    return (region.whole, region) if isinstance(region, Blocks) else (region, None)


def _sizes(*sides: Region | Blocks) -> Sequence[int] | None:
    return next(([len(b) for b in side] for side in sides if isinstance(side, Blocks)), None)


@dataclass(frozen=True)
class Shape:
    """The facts of one collective call of a whole group, as an observer sees them.

    Attributes
    ----------
    collective : str
        Family name.
    size, root : int
        Ranks in the group, and the root.
    sizes : tuple of int
        Cells in the block of each rank; for a collective on whole vectors their sum is the
        length of the vector. In an alltoall rank i sends `sizes[(i + j) % size]` cells to rank j.
        In an `inter_reduce_scatter` the blocks of each group make a whole vector.
    low : int
        Ranks in the first group of an inter-communicator, otherwise 0.
    neighbors : tuple of Neighborhood
        Of each rank, in a neighbourhood collective; if empty, all are neighbours of one another.
    """

    collective: str
    size: int
    sizes: tuple[int, ...]
    root: int = 0
    in_place: bool = False
    sizes_known: bool = True
    commutative: bool = True
    cell_bytes: int = 1
    nodes: tuple[int, ...] = ()
    low: int = 0
    neighbors: tuple[Neighborhood, ...] = ()

    def __post_init__(self) -> None:
        if len(self.sizes) != self.size:
            raise ValueError(f"{self.size} ranks need {self.size} block sizes, got {self.sizes}")
        if COLLECTIVES[self.collective].inter != (0 < self.low < self.size):
            raise ValueError(f"{self.collective} on {self.size} ranks, {self.low} in one group")
        if COLLECTIVES[self.collective].sparse and not self.neighbors:
            object.__setattr__(self, "neighbors", complete(self.size))

    @property
    def total(self) -> int:
        """Cells in a whole vector, or in the blocks of all ranks."""
        return sum(self.sizes)

    def pair(self, source: int, to: int) -> int:
        """Cells that rank `source` sends to rank `to` in an alltoall."""
        return self.sizes[(source + to) % self.size]

    def along(self, source: int, to: int, lane: int) -> int:
        """Cells that travel along an edge in a neighbourhood collective."""
        if self.collective == "neighbor_allgather":
            return self.sizes[source]
        return self.sizes[(source + to + lane) % self.size]


class Term(NamedTuple):
    """What one cell of a result holds: cell `cell` of the inputs of `ranks`, combined in order."""

    ranks: range
    cell: int


Terms = list[Term]


class Collective(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    name : str
        MPI's name in lower case.
    family : str
        The collective whose algorithms carry it out (gatherv is a gather with other block sizes).
    rooted, combines : bool
        Whether there is a root; whether there is an operator.
    inter : bool
        Whether it is the one between the two groups of an inter-communicator.
    sparse : bool
        Whether blocks go to neighbours only.
    """

    name: str
    family: str
    rooted: bool = False
    combines: bool = False
    inter: bool = False
    sparse: bool = False


COLLECTIVES = {
    row.name: row
    for row in (
        Collective("barrier", "barrier"),
        Collective("bcast", "bcast", rooted=True),
        Collective("gather", "gather", rooted=True),
        Collective("gatherv", "gather", rooted=True),
        Collective("scatter", "scatter", rooted=True),
        Collective("scatterv", "scatter", rooted=True),
        Collective("allgather", "allgather"),
        Collective("allgatherv", "allgather"),
        Collective("alltoall", "alltoall"),
        Collective("alltoallv", "alltoall"),
        Collective("alltoallw", "alltoall"),
        Collective("reduce", "reduce", rooted=True, combines=True),
        Collective("allreduce", "allreduce", combines=True),
        Collective("reduce_scatter", "reduce_scatter", combines=True),
        Collective("reduce_scatter_block", "reduce_scatter", combines=True),
        Collective("scan", "scan", combines=True),
        Collective("exscan", "exscan", combines=True),
        Collective("neighbor_allgather", "neighbor_allgather", sparse=True),
        Collective("neighbor_allgatherv", "neighbor_allgather", sparse=True),
        Collective("neighbor_alltoall", "neighbor_alltoall", sparse=True),
        Collective("neighbor_alltoallv", "neighbor_alltoall", sparse=True),
        Collective("neighbor_alltoallw", "neighbor_alltoall", sparse=True),
        Collective("inter_barrier", "inter_barrier", inter=True),
        Collective("inter_bcast", "inter_bcast", rooted=True, inter=True),
        Collective("inter_gather", "inter_gather", rooted=True, inter=True),
        Collective("inter_gatherv", "inter_gather", rooted=True, inter=True),
        Collective("inter_scatter", "inter_scatter", rooted=True, inter=True),
        Collective("inter_scatterv", "inter_scatter", rooted=True, inter=True),
        Collective("inter_allgather", "inter_allgather", inter=True),
        Collective("inter_allgatherv", "inter_allgather", inter=True),
        Collective("inter_alltoall", "inter_alltoall", inter=True),
        Collective("inter_alltoallv", "inter_alltoall", inter=True),
        Collective("inter_alltoallw", "inter_alltoall", inter=True),
        Collective("inter_reduce", "inter_reduce", rooted=True, combines=True, inter=True),
        Collective("inter_allreduce", "inter_allreduce", combines=True, inter=True),
        *(
            Collective(f"inter_{name}", "inter_reduce_scatter", combines=True, inter=True)
            for name in ("reduce_scatter", "reduce_scatter_block")
        ),
    )
}
"""The collectives of MPI, by name; those on inter-communicators have `inter_` before it."""

FAMILIES = tuple(dict.fromkeys(row.family for row in COLLECTIVES.values()))
"""The distinct families: one module of `collx.algorithms` each."""


def _only(rank: int) -> range:
    return range(rank, rank + 1)


def _vector(shape: Shape, ranks: range) -> Terms:
    return [Term(ranks, cell) for cell in range(shape.total)]


def _block(shape: Shape, block: int, ranks: range) -> Terms:
    start = sum(shape.sizes[:block])
    return [Term(ranks, cell) for cell in range(start, start + shape.sizes[block])]


def _gathered(shape: Shape) -> Terms:
    return [Term(_only(q), cell) for q in range(shape.size) for cell in range(shape.sizes[q])]


def _exchanged(shape: Shape, rank: int) -> Terms:
    terms = []
    for source in range(shape.size):
        start = sum(shape.pair(source, to) for to in range(rank))
        terms += [Term(_only(source), start + i) for i in range(shape.pair(source, rank))]
    return terms


def _from_neighbors(shape: Shape, rank: int) -> Terms:
    terms = []
    for edge in filter(None, shape.neighbors[rank].sources):
        start = 0
        if shape.collective == "neighbor_alltoall":
            others = filter(None, shape.neighbors[edge.rank].targets)
            before = takewhile((rank, edge.lane).__ne__, others)
            start = sum(shape.along(edge.rank, *other) for other in before)
        cells = shape.along(edge.rank, rank, edge.lane)
        terms += [Term(_only(edge.rank), start + i) for i in range(cells)]
    return terms


def _groups(shape: Shape, rank: int) -> tuple[range, range]:
    return both_groups(rank, shape.size, shape.low)


def _is_opposite(shape: Shape, rank: int) -> bool:
    """Whether a rank of an inter-communicator is in the group that has not the root."""
    return shape.root in _groups(shape, rank)[1]


def _inter_gathered(shape: Shape, rank: int) -> Terms:
    remote = _groups(shape, rank)[1]
    return [Term(_only(q), cell) for q in remote for cell in range(shape.sizes[q])]


def _inter_block(shape: Shape, rank: int, ranks: range) -> Terms:
    start = sum(shape.sizes[_groups(shape, rank)[0].start : rank])
    return [Term(ranks, cell) for cell in range(start, start + shape.sizes[rank])]


def _inter_exchanged(shape: Shape, rank: int) -> Terms:
    local, remote = _groups(shape, rank)
    terms = []
    for source in remote:
        start = sum(shape.pair(source, to) for to in range(local.start, rank))
        terms += [Term(_only(source), start + i) for i in range(shape.pair(source, rank))]
    return terms


MEANING: dict[str, Callable[[Shape, int], Terms]] = {
    "barrier": lambda shape, rank: [],
    "bcast": lambda shape, rank: _vector(shape, _only(shape.root)),
    "gather": lambda shape, rank: _gathered(shape) if rank == shape.root else [],
    "scatter": lambda shape, rank: _block(shape, rank, _only(shape.root)),
    "allgather": lambda shape, rank: _gathered(shape),
    "alltoall": _exchanged,
    "reduce": lambda shape, rank: _vector(shape, range(shape.size)) if rank == shape.root else [],
    "allreduce": lambda shape, rank: _vector(shape, range(shape.size)),
    "reduce_scatter": lambda shape, rank: _block(shape, rank, range(shape.size)),
    "scan": lambda shape, rank: _vector(shape, range(rank + 1)),
    "exscan": lambda shape, rank: _vector(shape, range(rank)),
    "neighbor_allgather": _from_neighbors,
    "neighbor_alltoall": _from_neighbors,
    "inter_barrier": lambda shape, rank: [],
    "inter_bcast": lambda shape, rank: (
        _vector(shape, _only(shape.root)) if _is_opposite(shape, rank) else []
    ),
    "inter_gather": lambda shape, rank: _inter_gathered(shape, rank) if rank == shape.root else [],
    "inter_scatter": lambda shape, rank: (
        _inter_block(shape, rank, _only(shape.root)) if _is_opposite(shape, rank) else []
    ),
    "inter_allgather": _inter_gathered,
    "inter_alltoall": _inter_exchanged,
    "inter_reduce": lambda shape, rank: (
        _vector(shape, _groups(shape, rank)[1]) if rank == shape.root else []
    ),
    "inter_allreduce": lambda shape, rank: _vector(shape, _groups(shape, rank)[1]),
    "inter_reduce_scatter": lambda shape, rank: _inter_block(shape, rank, _groups(shape, rank)[1]),
}
"""For each family, what the output of a rank must hold at the end (exscan, rank 0: anything)."""


def _side(buffer: int, cells: int) -> Region:
    return Region((buffer, 0, cells))


def _blocks(buffer: int, sizes: Sequence[int]) -> Blocks:
    return _side(buffer, sum(sizes)).blocks(sizes)


def _slots(buffer: int, sizes: Sequence[int | None]) -> Blocks:
    """Blocks with a gap of one cell where there is none."""
    ends = [0, *accumulate(1 if size is None else size for size in sizes)]
    spans = zip(ends, ends[1:], sizes, strict=False)
    return Blocks([EMPTY if size is None else Region((buffer, a, b)) for a, b, size in spans])


def call_of(shape: Shape, rank: int) -> Call:
    """The call of one rank, its data packed one block after the other."""
    input, output = (_inter_sides if shape.low else _sides)(shape, rank)
    known = shape.sizes_known and (not shape.neighbors or len(set(shape.sizes)) == 1)
    idle = shape.low and COLLECTIVES[shape.collective].rooted and not _has_part(shape, rank)
    return Call(
        shape.collective,
        rank,
        shape.size,
        -1 if idle else shape.root,
        input=input,
        output=output,
        sizes=shape.sizes if known and not idle else None,
        commutative=shape.commutative,
        cell_bytes=shape.cell_bytes,
        nodes=shape.nodes or None,
        low=shape.low,
        neighbors=shape.neighbors[rank] if shape.neighbors else NOBODY,
    )


def _has_part(shape: Shape, rank: int) -> bool:
    """Whether a rank takes part in a rooted collective on an inter-communicator."""
    return rank == shape.root or _is_opposite(shape, rank)


def _inter_sides(shape: Shape, rank: int) -> tuple[Region | Blocks, Region | Blocks]:
    """Input and output of a rank in a collective on an inter-communicator."""
    local, remote = _groups(shape, rank)
    at_root, opposite = rank == shape.root, _is_opposite(shape, rank)
    own, theirs = shape.sizes[rank], shape.sizes[remote.start : remote.stop]
    match shape.collective:
        case "inter_bcast":
            vector = _side(INPUT if at_root else OUTPUT, shape.total)
            return (vector if at_root else EMPTY), (vector if opposite else EMPTY)
        case "inter_reduce":
            vector = _side(OUTPUT if at_root else INPUT, shape.total)
            return (vector if opposite else EMPTY), (vector if at_root else EMPTY)
        case "inter_gather":
            blocks = _blocks(OUTPUT, theirs) if at_root else EMPTY
            return (_side(INPUT, own) if opposite else EMPTY), blocks
        case "inter_scatter":
            blocks = _blocks(INPUT, theirs) if at_root else EMPTY
            return blocks, (_side(OUTPUT, own) if opposite else EMPTY)
        case "inter_allgather":
            return _side(INPUT, own), _blocks(OUTPUT, theirs)
        case "inter_alltoall":
            sends = [shape.pair(rank, to) for to in remote]
            receives = [shape.pair(source, rank) for source in remote]
            return _blocks(INPUT, sends), _blocks(OUTPUT, receives)
        case "inter_reduce_scatter":
            return _blocks(INPUT, shape.sizes[local.start : local.stop]), _side(OUTPUT, own)
        case "inter_allreduce":
            return _side(INPUT, shape.total), _side(OUTPUT, shape.total)
        case _:
            return EMPTY, EMPTY


def _sides(shape: Shape, rank: int) -> tuple[Region | Blocks, Region | Blocks]:
    """Input and output of a rank; in place both name the buffer that MPI says."""
    at_root, own = rank == shape.root, shape.sizes[rank]
    input_buffer = OUTPUT if shape.in_place else INPUT
    match shape.collective:
        case "barrier":
            return EMPTY, EMPTY
        case "bcast":
            return EMPTY, _side(OUTPUT, shape.total)
        case "reduce":
            in_place = shape.in_place and at_root
            output = _side(OUTPUT, shape.total) if at_root else EMPTY
            return _side(OUTPUT if in_place else INPUT, shape.total), output
        case "gather":
            blocks = _blocks(OUTPUT, shape.sizes)
            own_block = blocks[rank] if shape.in_place and at_root else _side(INPUT, own)
            return own_block, blocks if at_root else EMPTY
        case "scatter":
            blocks = _blocks(INPUT, shape.sizes)
            own_block = blocks[rank] if shape.in_place and at_root else _side(OUTPUT, own)
            return blocks if at_root else EMPTY, own_block
        case "allgather":
            blocks = _blocks(OUTPUT, shape.sizes)
            return blocks[rank] if shape.in_place else _side(INPUT, own), blocks
        case "alltoall":
            sends = [shape.pair(rank, to) for to in range(shape.size)]
            receives = [shape.pair(source, rank) for source in range(shape.size)]
            return _blocks(input_buffer, sends), _blocks(OUTPUT, receives)
        case "reduce_scatter":
            return _blocks(input_buffer, shape.sizes), _side(OUTPUT, own)
        case "neighbor_allgather" | "neighbor_alltoall":
            near = shape.neighbors[rank]
            sent = [e and shape.along(rank, *e) for e in near.targets]
            received = [e and shape.along(e.rank, rank, e.lane) for e in near.sources]
            together = shape.collective == "neighbor_allgather"
            input = _side(INPUT, own) if together else _slots(INPUT, sent)
            return input, _slots(OUTPUT, received)
        case _:
            return _side(input_buffer, shape.total), _side(OUTPUT, shape.total)
