"""The arguments of a collective call, read rank by rank as MPI says which are significant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpi4py import MPI

from collx.buffers import Message, simple, typed_vector, vector
from collx.choice import Choice
from collx.collectives import COLLECTIVES, both_groups
from collx.errors import Error
from collx.neighborhood import NOBODY, Edges, Neighborhood


class Arguments(NamedTuple):
    """The arguments of one call of one collective.

    Attributes
    ----------
    collective : str
        MPI's name in lower case.
    send, recv
        Buffer specifications; None where not significant. A broadcast has only `recv`.
    root : int
        The root, 0 where there is none.
    op : MPI.Op or None
        The operator of a reduction.
    counts
        `recvcounts` of a reduce_scatter.
    algorithm
        What the caller asked for.
    low : int
        Between groups, the ranks in the first one. Ranks and roots are those of the merged group;
        the root is -1 on ranks that pass `MPI.PROC_NULL`.
    neighbors : Neighborhood
        Whom the blocks of a neighbourhood collective are for, and where they come from.
    """

    collective: str
    send: Any
    recv: Any
    root: int = 0
    op: MPI.Op | None = None
    counts: Sequence[int] | None = None
    algorithm: str | Choice | None = None
    low: int = 0
    neighbors: Neighborhood = NOBODY

    @property
    def in_place(self) -> bool:
        """Whether a buffer is `MPI.IN_PLACE`."""
        return self.send is MPI.IN_PLACE or self.recv is MPI.IN_PLACE


class Sides(NamedTuple):
    """What a rank reads and what it writes, None where it has nothing."""

    input: Message | None
    output: Message | None


def read(arguments: Arguments, rank: int, size: int) -> Sides:
    """Parse the buffers that are significant on this rank.

    Raises
    ------
    TypeError, ValueError
        If a specification is malformed or a buffer too small.
    Error
        If the root is out of range.
    """
    row = COLLECTIVES[arguments.collective]
    if row.rooted and not row.inter and not 0 <= arguments.root < size:
        raise Error(MPI.ERR_ROOT, f"root {arguments.root} is not one of the {size} ranks")
    sides = READERS[row.family](arguments, rank, size)
    for side, name in zip(sides, ("send buffer", "receive buffer"), strict=True):
        if side is not None:
            side.check_bounds(name)
    return sides


def _read_bcast(arguments: Arguments, rank: int, size: int) -> Sides:
    return Sides(None, simple(arguments.recv, 0, readonly=rank == arguments.root))


def _many(collective: str) -> Callable[..., Message]:
    """The parser for the side of a collective that has a block for each rank."""
    if collective.endswith("w"):
        return typed_vector
    return vector if collective.endswith("v") else simple


def _read_gather(arguments: Arguments, rank: int, size: int) -> Sides:
    output = None
    if rank == arguments.root:
        output = _many(arguments.collective)(arguments.recv, size, readonly=False)
    if arguments.send is MPI.IN_PLACE and rank == arguments.root:
        return Sides(None, output)
    return Sides(simple(arguments.send, 0, readonly=True), output)


def _read_scatter(arguments: Arguments, rank: int, size: int) -> Sides:
    input = None
    if rank == arguments.root:
        input = _many(arguments.collective)(arguments.send, size, readonly=True)
    if arguments.recv is MPI.IN_PLACE and rank == arguments.root:
        return Sides(input, None)
    return Sides(input, simple(arguments.recv, 0, readonly=False))


def _read_allgather(arguments: Arguments, rank: int, size: int) -> Sides:
    output = _many(arguments.collective)(arguments.recv, size, readonly=False)
    in_place = arguments.send is MPI.IN_PLACE
    return Sides(None if in_place else simple(arguments.send, 0, readonly=True), output)


def _read_alltoall(arguments: Arguments, rank: int, size: int) -> Sides:
    parse = _many(arguments.collective)
    output = parse(arguments.recv, size, readonly=False)
    in_place = arguments.send is MPI.IN_PLACE
    return Sides(None if in_place else parse(arguments.send, size, readonly=True), output)


def _read_vectors(arguments: Arguments, rank: int, size: int) -> Sides:
    output = simple(arguments.recv, 0, readonly=False)
    if arguments.send is MPI.IN_PLACE:
        return Sides(None, output)
    return _matching(Sides(simple(arguments.send, 0, readonly=True), output))


def _read_reduce(arguments: Arguments, rank: int, size: int) -> Sides:
    if rank == arguments.root:
        return _read_vectors(arguments, rank, size)
    return Sides(simple(arguments.send, 0, readonly=True), None)


def _read_reduce_scatter(arguments: Arguments, rank: int, size: int) -> Sides:
    in_place = arguments.send is MPI.IN_PLACE
    if arguments.collective == "reduce_scatter_block":
        output = simple(arguments.recv, size if in_place else 0, readonly=False)
        if in_place:
            return Sides(None, output)
        return _matching(Sides(simple(arguments.send, size, readonly=True), output))
    output = simple(arguments.recv, 0, readonly=False)
    return Sides(None if in_place else simple(arguments.send, 0, readonly=True), output)


def between(arguments: Arguments, rank: int, size: int) -> Arguments:
    """The arguments of a call on an inter-communicator, for its two groups merged.

    Buffers that are not significant are left out.

    Raises
    ------
    Error
        If the root is not one of the other group, or a buffer is `MPI.IN_PLACE`.
    """
    if arguments.in_place:
        raise Error(MPI.ERR_BUFFER, "an inter-communicator has no MPI.IN_PLACE; pass both buffers")
    call = arguments._replace(collective=f"inter_{arguments.collective}", root=0)
    if not COLLECTIVES[call.collective].rooted:
        return call
    remote = both_groups(rank, size, arguments.low)[1]
    match arguments.root:
        case MPI.ROOT:
            call = call._replace(root=rank)
        case MPI.PROC_NULL:
            call = call._replace(root=-1)
        case root if 0 <= root < len(remote):
            call = call._replace(root=remote[root])
        case root:
            raise Error(
                MPI.ERR_ROOT,
                f"root {root} is neither MPI.ROOT nor MPI.PROC_NULL nor one of the"
                f" {len(remote)} ranks of the other group",
            )
    if arguments.collective == "bcast":
        call = call._replace(send=arguments.recv)
    gives, takes = _roles(call, rank, size)
    return call._replace(send=call.send if gives else None, recv=call.recv if takes else None)


def _read_neighbors(arguments: Arguments, rank: int, size: int) -> Sides:
    if arguments.in_place:
        raise Error(MPI.ERR_BUFFER, f"{arguments.collective} does not take MPI.IN_PLACE")
    near, many = arguments.neighbors, _many(arguments.collective)
    output = _slots(many, arguments.recv, near.sources, readonly=False)
    if not arguments.collective.startswith("neighbor_allgather"):
        return Sides(_slots(many, arguments.send, near.targets, readonly=True), output)
    return Sides(simple(arguments.send, 0, readonly=True) if near.targets else None, output)


def _slots(
    many: Callable[..., Message], spec: Any, edges: Edges, *, readonly: bool
) -> Message | None:
    """Read a block for each edge; nothing is in those that lead nowhere."""
    if not edges:
        return None
    message = many(spec, len(edges), readonly=readonly)
    parts = zip(message.parts, edges, strict=True)
    return message._replace(parts=[p if edge else p._replace(count=0) for p, edge in parts])


def _read_between(arguments: Arguments, rank: int, size: int) -> Sides:
    """Read a call between groups: blocks are those of the ranks of the other group."""
    row = COLLECTIVES[arguments.collective]
    gives, takes = _roles(arguments, rank, size)
    local, remote = map(len, both_groups(rank, size, arguments.low))
    sent = remote if row.family in ("inter_scatter", "inter_alltoall") else 0
    received = remote if row.family in ("inter_gather", "inter_allgather", "inter_alltoall") else 0
    if arguments.collective == "inter_reduce_scatter_block":
        sent = local
    many = _many(arguments.collective)
    sides = Sides(
        (many if sent else simple)(arguments.send, sent, readonly=True) if gives else None,
        (many if received else simple)(arguments.recv, received, readonly=False) if takes else None,
    )
    both = gives and takes and row.combines and arguments.collective != "inter_reduce_scatter"
    return _matching(sides) if both else sides


def _roles(arguments: Arguments, rank: int, size: int) -> tuple[bool, bool]:
    """Whether a rank gives data to the other group, and whether it takes some from there."""
    row = COLLECTIVES[arguments.collective]
    if not row.rooted:
        return row.name != "inter_barrier", row.name != "inter_barrier"
    at_root = rank == arguments.root
    opposite = arguments.root in both_groups(rank, size, arguments.low)[1]
    from_root = row.family in ("inter_bcast", "inter_scatter")
    return (at_root, opposite) if from_root else (opposite, at_root)


def _matching(sides: Sides) -> Sides:
    """Check that both sides of a reduction are of the same type and count."""
    assert sides.input is not None
    assert sides.output is not None
    sent, received = sides.input.parts[0], sides.output.parts[0]
    if sent.kind.key != received.kind.key:
        raise ValueError("mismatch in send and receive MPI datatypes")
    if sent.count != received.count:
        raise ValueError(f"mismatch in send count {sent.count} and receive count {received.count}")
    return sides


READERS: dict[str, Callable[[Arguments, int, int], Sides]] = {
    "barrier": lambda arguments, rank, size: Sides(None, None),
    "bcast": _read_bcast,
    "gather": _read_gather,
    "scatter": _read_scatter,
    "allgather": _read_allgather,
    "alltoall": _read_alltoall,
    "reduce": _read_reduce,
    "allreduce": _read_vectors,
    "reduce_scatter": _read_reduce_scatter,
    "scan": _read_vectors,
    "exscan": _read_vectors,
    "neighbor_allgather": _read_neighbors,
    "neighbor_alltoall": _read_neighbors,
    **{row.family: _read_between for row in COLLECTIVES.values() if row.inter},
}
"""For each family, how its arguments are read."""
