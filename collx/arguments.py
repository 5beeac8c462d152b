"""The arguments of a collective call, read rank by rank as MPI says which are significant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpi4py import MPI

from collx.buffers import Message, simple, typed_vector, vector
from collx.choice import Choice
from collx.collectives import COLLECTIVES
from collx.errors import Error


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
    """

    collective: str
    send: Any
    recv: Any
    root: int = 0
    op: MPI.Op | None = None
    counts: Sequence[int] | None = None
    algorithm: str | Choice | None = None

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
    if row.rooted and not 0 <= arguments.root < size:
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


def _matching(sides: Sides) -> Sides:
    """Check that both sides of a reduction are of the same type and count."""
    assert sides.input is not None and sides.output is not None
    sent, received = sides.input.parts[0], sides.output.parts[0]
    if sent.kind.key != received.kind.key:
        raise ValueError("mismatch in send and receive MPI datatypes")
    if sent.count != received.count:
        raise ValueError(
            f"mismatch in send count {sent.count} and receive count {received.count}"
        )
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
}
"""For each family, how its arguments are read."""
