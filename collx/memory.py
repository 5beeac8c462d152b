"""Memory as the engine uses it: as bytes for messages, as elements for NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from collx.buffers import Kind


class Storage(NamedTuple):
    """Memory of one buffer of a call.

    Attributes
    ----------
    memory : MPI.buffer
        Its bytes.
    raw, array : numpy.ndarray
        The same as bytes, and as elements to compute with (None where NumPy cannot).
    origin : int
        The address of cell 0.
    """

    memory: MPI.buffer
    raw: np.ndarray[Any, Any]
    array: np.ndarray[Any, Any] | None
    origin: int


class Cells(NamedTuple):
    """What a cell is in memory: a byte (no kind) or an element of a datatype."""

    unit: int
    kind: Kind | None
    device: bool = False

    @property
    def gaps(self) -> bool:
        """Whether only MPI can copy cells: it knows which bytes are data, and reaches a device."""
        return self.device or (self.kind is not None and not self.kind.dense)

    @property
    def datatype(self) -> MPI.Datatype:
        """The datatype of a cell in messages."""
        known = self.kind is not None and self.kind.datatype is not None
        return self.kind.datatype if known else MPI.BYTE  # type: ignore[union-attr,return-value]

    def storage(self, memory: MPI.buffer) -> Storage:
        """Make memory usable; cell 0 is at its beginning."""
        raw = _NO_BYTES
        if memory.nbytes:
            raw = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]
        dtype = self.kind.dtype if self.kind is not None else None
        array = None
        if dtype is not None:
            array = raw[: memory.nbytes // self.unit * self.unit].view(dtype)
        return Storage(memory, raw, array, memory.address)

    def scratch(self, cells: int) -> Storage:
        """New memory for this many cells."""
        if self.kind is None or self.kind.dense:
            return self.storage(MPI.buffer.frombuffer(np.empty(cells * self.unit, np.uint8)))
        reach = max(self.kind.true_extent, self.unit) + (cells - 1) * abs(self.unit)
        memory = MPI.buffer.frombuffer(np.zeros(max(reach, 0), np.uint8))
        storage = self.storage(memory)
        return storage._replace(origin=storage.origin - self.kind.lower)


_NO_BYTES: np.ndarray[Any, Any] = np.empty(0, np.uint8)
NO_MEMORY = MPI.buffer.allocate(0)
"""A buffer of no bytes."""
BYTES = Cells(1, None)
"""The cells of data movement."""


def at_address(address: int) -> MPI.buffer:
    """Memory at an address, of which only the address matters."""
    return MPI.buffer.fromaddress(address, 1)


def copy_typed(into: Any, source: Any) -> None:
    """Copy elements with gaps, leaving the gaps alone."""
    private_self().Sendrecv(source, 0, 0, into, 0, 0)


_PRIVATE_SELF: list[MPI.Intracomm] = []


def private_self() -> MPI.Intracomm:
    """A communicator of this process alone that no user sees."""
    if not _PRIVATE_SELF:
        _PRIVATE_SELF.append(MPI.COMM_SELF.Dup())
    return _PRIVATE_SELF[0]
