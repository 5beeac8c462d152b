"""`Comm`: an mpi4py communicator whose collectives are collx's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI

from collx.arguments import Arguments
from collx.buffers import simple
from collx.choice import Choice
from collx.choose import settings
from collx.collectives import COLLECTIVES
from collx.intercomm import BetweenGroups
from collx.prepare import prepare, staged_if_small
from collx.state import State, state_of
from collx.topology import NeighborCollectives

Spec: TypeAlias = Any
"""A buffer in any form that mpi4py takes."""
Algorithm: TypeAlias = "str | Choice | None"

_ndarray, _in_place, _settings = np.ndarray, MPI.IN_PLACE, settings.get


def _layout(buffer: Spec) -> Hashable:
    """What a prepared call depends on, for buffers that are quick to look at; else False."""
    if type(buffer) is _ndarray:
        return buffer.dtype, buffer.shape, buffer.strides
    if type(buffer) in (list, tuple) and buffer and type(buffer[0]) is _ndarray:
        described = tuple(map(_description, buffer[1:]))
        return False not in described and (_layout(buffer[0]), *described)
    return buffer is None or (buffer is _in_place and 2)


def _description(value: Any) -> Hashable:
    """The same for counts, displacements and datatypes."""
    match value:
        case int() | str():
            return repr(value)
        case np.ndarray():
            return value.tobytes(), value.dtype
        case list() | tuple():
            return type(value), *map(_description, value)
        case MPI.Datatype() if value.is_predefined:
            return value.handle, ""
    return False


def _array(buffer: Spec) -> Spec:
    return buffer[0] if type(buffer) in (list, tuple) else buffer


class Comm:
    """A communicator with collx's collectives.

    `Comm(comm)` wraps any mpi4py communicator; the result is of the class for its kind:
    `Intracomm`, `Cartcomm`, `Graphcomm`, `Distgraphcomm` or `Intercomm`, each of which is also the
    mpi4py class of that name. Wrapping is collective: all ranks of the communicator must do it,
    and it may wait for them. The result is the same communicator, not a duplicate.
    Communicators made from it are wrapped as well. Every collective takes one more argument than
    in mpi4py, `algorithm`: a name with parameters such as `"ring(segment=64K)"`.

    Parameters
    ----------
    comm : MPI.Comm
        The communicator to wrap.

    Examples
    --------
    >>> comm = Comm(MPI.COMM_SELF)
    >>> total = np.zeros(2)
    >>> comm.Allreduce(np.ones(2), total)
    >>> total
    array([1., 1.])
    """

    _native: type[Any]
    _state: State

    def __new__(cls, comm: MPI.Comm | None = None) -> Any:
        """Wrap `comm` in the class for its kind."""
        kind: Any = _kind_for(comm) if cls is Comm else cls
        made = kind._native.__new__(kind, comm)
        if comm is not None and comm != MPI.COMM_NULL and not comm.Is_inter():
            made._state = state_of(made)
        return made

    def __getattr__(self, name: str) -> Any:
        """Make the state when it is first needed: between groups, or if mpi4py made the object."""
        if name == "_state":
            self._state = state_of(self)  # type: ignore[arg-type]
            return self._state
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def Free(self) -> None:
        """Free the communicator and all that collx holds for it."""
        self.__dict__.pop("_state", None)
        self._native.Free(self)

    def _call(
        self,
        collective: str,
        send: Spec,
        recv: Spec,
        algorithm: Algorithm,
        root: int = 0,
        op: MPI.Op | None = None,
        counts: Sequence[int] | None = None,
    ) -> None:
        """Run a collective: at once if it was prepared before, otherwise prepare it."""
        arrays = type(send) is type(recv) is _ndarray
        if arrays:  # the common case, without more calls
            layouts: tuple[Hashable, Hashable] = (
                (send.dtype, send.shape, send.strides),
                (recv.dtype, recv.shape, recv.strides),
            )
        else:
            layouts = _layout(send), _layout(recv)
        key = (collective, layouts, root, id(op), algorithm, _settings())
        entry = self._state.entries.get(key) if counts is None else None
        try:
            if entry is not None and arrays:
                entry(send, recv)
            elif entry is not None:
                entry(_array(send), _array(recv))
            else:
                arguments = Arguments(
                    collective, send, recv, root, op, counts, algorithm, self._state.low
                )
                self._prepare_and_run(arguments, key, all(layouts))
        except MPI.Exception as error:
            self._native.Call_errhandler(self, error.Get_error_code())
            raise

    def _prepare_and_run(self, arguments: Arguments, key: Hashable, simple_layouts: bool) -> None:
        entry, sides = prepare(self._state, arguments)
        again = simple_layouts and entry.on_arrays and not _settings().check
        if again and arguments.counts is None:
            self._state.entries.add(key, staged_if_small(entry, arguments, sides))
        entry.run(sides)

    def Barrier(self, algorithm: Algorithm = None) -> None:
        """Wait until all ranks have entered."""
        self._call("barrier", None, None, algorithm)

    def Bcast(self, buf: Spec, root: int = 0, algorithm: Algorithm = None) -> None:
        """Send the buffer of the root to all ranks."""
        self._call("bcast", None, buf, algorithm, root)

    def Gather(
        self, sendbuf: Spec, recvbuf: Spec, root: int = 0, algorithm: Algorithm = None
    ) -> None:
        """Collect equal blocks of all ranks at the root."""
        self._call("gather", sendbuf, self._at(root, recvbuf), algorithm, root)

    def Gatherv(
        self, sendbuf: Spec, recvbuf: Spec, root: int = 0, algorithm: Algorithm = None
    ) -> None:
        """Collect blocks of any size of all ranks at the root."""
        self._call("gatherv", sendbuf, self._at(root, recvbuf), algorithm, root)

    def Scatter(
        self, sendbuf: Spec, recvbuf: Spec, root: int = 0, algorithm: Algorithm = None
    ) -> None:
        """Give each rank an equal block of the root's buffer."""
        self._call("scatter", self._at(root, sendbuf), recvbuf, algorithm, root)

    def Scatterv(
        self, sendbuf: Spec, recvbuf: Spec, root: int = 0, algorithm: Algorithm = None
    ) -> None:
        """Give each rank a block of any size of the root's buffer."""
        self._call("scatterv", self._at(root, sendbuf), recvbuf, algorithm, root)

    def Allgather(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Collect equal blocks of all ranks on all ranks."""
        self._call("allgather", sendbuf, recvbuf, algorithm)

    def Allgatherv(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Collect blocks of any size of all ranks on all ranks."""
        self._call("allgatherv", sendbuf, recvbuf, algorithm)

    def Alltoall(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Send an equal block from each rank to each rank."""
        self._call("alltoall", sendbuf, recvbuf, algorithm)

    def Alltoallv(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Send a block of any size from each rank to each rank."""
        self._call("alltoallv", sendbuf, recvbuf, algorithm)

    def Alltoallw(self, sendbuf: Spec, recvbuf: Spec, algorithm: Algorithm = None) -> None:
        """Send a block of any size and datatype from each rank to each rank."""
        self._call("alltoallw", sendbuf, recvbuf, algorithm)

    def Reduce(
        self,
        sendbuf: Spec,
        recvbuf: Spec,
        op: MPI.Op = MPI.SUM,
        root: int = 0,
        algorithm: Algorithm = None,
    ) -> None:
        """Combine the buffers of all ranks at the root."""
        self._call("reduce", sendbuf, self._at(root, recvbuf), algorithm, root, op)

    def Allreduce(
        self, sendbuf: Spec, recvbuf: Spec, op: MPI.Op = MPI.SUM, algorithm: Algorithm = None
    ) -> None:
        """Combine the buffers of all ranks on all ranks."""
        self._call("allreduce", sendbuf, recvbuf, algorithm, 0, op)

    def Reduce_scatter_block(
        self, sendbuf: Spec, recvbuf: Spec, op: MPI.Op = MPI.SUM, algorithm: Algorithm = None
    ) -> None:
        """Combine the buffers of all ranks and give each rank an equal block of the result."""
        self._call("reduce_scatter_block", sendbuf, recvbuf, algorithm, 0, op)

    def Reduce_scatter(
        self,
        sendbuf: Spec,
        recvbuf: Spec,
        recvcounts: Sequence[int] | None = None,
        op: MPI.Op = MPI.SUM,
        algorithm: Algorithm = None,
    ) -> None:
        """Combine the buffers of all ranks and give each rank a block of `recvcounts` elements.

        Without `recvcounts` the ranks tell each other how long their receive buffers are.
        """
        counts = self._counts(sendbuf, recvbuf) if recvcounts is None else list(recvcounts)
        self._call("reduce_scatter", sendbuf, recvbuf, algorithm, 0, op, counts)

    def Scan(
        self, sendbuf: Spec, recvbuf: Spec, op: MPI.Op = MPI.SUM, algorithm: Algorithm = None
    ) -> None:
        """Combine the buffers of the ranks up to and with this one."""
        self._call("scan", sendbuf, recvbuf, algorithm, 0, op)

    def Exscan(
        self, sendbuf: Spec, recvbuf: Spec, op: MPI.Op = MPI.SUM, algorithm: Algorithm = None
    ) -> None:
        """Combine the buffers of the ranks before this one; rank 0 gets nothing."""
        self._call("exscan", sendbuf, recvbuf, algorithm, 0, op)

    def _at(self, root: int, buffer: Spec) -> Spec:
        """The buffer if this rank is the root, else None: MPI does not look at it."""
        return buffer if self._state.rank == root else None

    def _counts(self, send: Spec, recv: Spec) -> list[int]:
        """The elements that each rank wants to receive."""
        mine = np.array([simple(recv, 0, readonly=False).parts[0].count], np.int64)
        counts = np.empty(self._state.size, np.int64)
        self.Allgather(mine, counts)
        return [int(count) for count in counts]


def _wrapping(native: Callable[..., Any]) -> Callable[..., Any]:
    """A constructor of communicators whose result is wrapped."""

    @wraps(native)
    def method(*arguments: Any, **keywords: Any) -> Any:
        made = native(*arguments, **keywords)
        return Comm(made) if made != MPI.COMM_NULL else made

    return method


CONSTRUCTORS = (
    *("Dup", "Dup_with_info", "Clone", "Create", "Create_group", "Split", "Split_type"),
    *("Create_cart", "Create_graph", "Create_dist_graph", "Create_dist_graph_adjacent"),
    *("Create_intercomm", "Merge", "Sub"),
)
"""Methods of mpi4py's communicators that make communicators."""


def _kind(native: type[Any]) -> Callable[[type[Any]], type[Any]]:
    """Make a class of communicators out of its mpi4py class."""

    def fill(cls: type[Any]) -> type[Any]:
        cls._native = native
        for name in CONSTRUCTORS:
            if hasattr(native, name):
                setattr(cls, name, _wrapping(getattr(native, name)))
        return cls

    return fill


@_kind(MPI.Intracomm)
class Intracomm(Comm, MPI.Intracomm):
    """An intra-communicator with collx's collectives."""


@_kind(MPI.Cartcomm)
class Cartcomm(Comm, NeighborCollectives, MPI.Cartcomm):
    """A communicator with a Cartesian topology and collx's collectives."""


@_kind(MPI.Graphcomm)
class Graphcomm(Comm, NeighborCollectives, MPI.Graphcomm):
    """A communicator with a graph topology and collx's collectives."""


@_kind(MPI.Distgraphcomm)
class Distgraphcomm(Comm, NeighborCollectives, MPI.Distgraphcomm):
    """A communicator with a distributed graph topology and collx's collectives."""


@_kind(MPI.Intercomm)
class Intercomm(BetweenGroups, Comm, MPI.Intercomm):
    """An inter-communicator with collx's collectives: what one group gives the other one gets.

    The groups are merged at the first collective; all ranks of both must call it through collx.
    """


KINDS = (Cartcomm, Graphcomm, Distgraphcomm, Intracomm, Intercomm)


def _kind_for(comm: MPI.Comm | None) -> type[Any]:
    """The class that wraps this communicator.

    Raises
    ------
    TypeError
        If it is no communicator.
    """
    for kind in KINDS:
        if isinstance(comm, kind._native):
            return kind
    raise TypeError(f"expecting an mpi4py communicator, got {comm!r}")


def explain(
    comm: Comm,
    collective: str,
    sendbuf: Spec = None,
    recvbuf: Spec = None,
    root: int = 0,
    op: MPI.Op | None = None,
    algorithm: Algorithm = None,
) -> str:
    """Say which algorithm a call would use, and why.

    All ranks must call it with the arguments of the call; nothing is moved.

    Parameters
    ----------
    comm
        The communicator.
    collective
        MPI's name of the collective, for example `"allreduce"`.
    sendbuf, recvbuf, root, op, algorithm
        The arguments of the call; a broadcast has only `recvbuf`. `op` is `MPI.SUM` for a
        reduction if not given.

    Returns
    -------
    str
        The algorithm with its parameters, and the rule or setting that chose it.
    """
    name = collective.lower()
    if COLLECTIVES[name].combines and op is None:
        op = MPI.SUM
    arguments = Arguments(name, sendbuf, recvbuf, root, op, None, algorithm)
    if isinstance(comm, Intercomm):
        call = comm._between(name, sendbuf, recvbuf, root)
        arguments = call._replace(op=op, algorithm=algorithm)
    decision = prepare(comm._state, arguments)[0].decision
    return f"{name}: {decision.choice}, because of {decision.reason}"
