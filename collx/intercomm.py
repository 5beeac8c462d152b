"""What is different about the collectives of an inter-communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from collx.arguments import Arguments, between
from collx.state import State


class _Undefined:
    """A method that MPI does not define on this kind of communicator."""

    def __get__(self, instance: object, owner: object = None) -> Any:
        raise AttributeError


class BetweenGroups:
    """Makes each collective of `Comm` the one between two groups."""

    _state: State

    Scan = Exscan = _Undefined()

    def _call(
        self,
        collective: str,
        send: Any,
        recv: Any,
        algorithm: Any,
        root: int = 0,
        op: MPI.Op | None = None,
        counts: Sequence[int] | None = None,
    ) -> None:
        try:
            call = self._between(collective, send, recv, root)
        except MPI.Exception as error:
            MPI.Intercomm.Call_errhandler(self, error.Get_error_code())  # type: ignore[arg-type]
            raise
        super()._call(  # type: ignore[misc]
            call.collective, call.send, call.recv, algorithm, call.root, op, counts
        )

    def _between(self, collective: str, send: Any, recv: Any, root: int) -> Arguments:
        state = self._state
        arguments = Arguments(collective, send, recv, root, low=state.low)
        return between(arguments, state.rank, state.size)

    def _at(self, root: int, buffer: Any) -> Any:
        return buffer

    def _counts(self, send: Any, recv: Any) -> list[int]:
        raise ValueError("Reduce_scatter on an inter-communicator needs recvcounts")
