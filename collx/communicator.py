"""`Comm`: an mpi4py communicator whose collectives are collx's."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI

from collx.arguments import Arguments
from collx.buffers import simple
from collx.choice import Choice
from collx.choose import settings
from collx.collectives import COLLECTIVES
from collx.prepare import prepare, staged_if_small
from collx.state import State, state_of

Spec: TypeAlias = Any
"""A buffer in any form that mpi4py takes."""
Algorithm: TypeAlias = "str | Choice | None"

_ndarray, _in_place, _settings = np.ndarray, MPI.IN_PLACE, settings.get


def _layout(buffer: Spec) -> Hashable:
    """What a prepared call depends on, for buffers that are quick to look at; else False."""
    if type(buffer) is _ndarray:
        return buffer.dtype, buffer.shape, buffer.strides
    return buffer is None or (buffer is _in_place and 2)


class Comm(MPI.Intracomm):
    """A communicator with collx's collectives.

    Wrapping is collective: all ranks of the communicator must do it, though it does not wait for
    them. The result is the same communicator, not a duplicate. Every collective takes one more
    argument than in mpi4py, `algorithm`: a name with parameters such as `"ring(segment=64K)"`.

    Parameters
    ----------
    comm : MPI.Intracomm
        The communicator to wrap.

    Examples
    --------
    >>> comm = Comm(MPI.COMM_SELF)
    >>> total = np.zeros(2)
    >>> comm.Allreduce(np.ones(2), total)
    >>> total
    array([1., 1.])
    """

    def __new__(cls, comm: MPI.Comm | None = None) -> Comm:
        """Wrap `comm`."""
        made: Comm = MPI.Intracomm.__new__(cls, comm)
        if comm is not None and comm != MPI.COMM_NULL:
            made._state = state_of(made)
        return made

    _state: State

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
        layouts = _layout(send), _layout(recv)
        key = (collective, layouts, root, id(op), algorithm, _settings())
        state = self._state
        entry = state.entries.get(key) if counts is None else None
        if entry is not None:
            entry(send, recv)
            return
        arguments = Arguments(collective, send, recv, root, op, counts, algorithm)
        entry, sides = prepare(state, arguments)
        if counts is None and all(layouts):
            state.entries.add(key, staged_if_small(entry, arguments))
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
    row = COLLECTIVES[name]
    if row.combines and op is None:
        op = MPI.SUM
    arguments = Arguments(name, sendbuf, recvbuf, root, op, None, algorithm)
    decision = prepare(comm._state, arguments)[0].decision
    return f"{name}: {decision.choice}, because of {decision.reason}"
