"""The buffer arguments of mpi4py's calls, made into memory and regions.

`simple`, `vector` and `typed_vector` read the forms that mpi4py reads, with the same meaning and
the same kinds of errors: a buffer, `[buffer, datatype]`, `[buffer, count, datatype]`,
`[buffer, (counts, displacements), datatype]` and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from collx.schedule import EMPTY, Blocks, Region


class Kind(NamedTuple):
    """What collx has to know of an element type.

    Attributes
    ----------
    datatype : MPI.Datatype or None
        None for NumPy types that MPI does not know, which travel as bytes.
    size, extent : int
        Bytes of data in an element, and from one element to the next.
    lower, true_extent : int
        Where the data of an element begins, and how far they reach.
    dense : bool
        Whether an element in memory looks exactly like its packed form.
    dtype : numpy.dtype or None
        The NumPy type to compute with, if it is a number.
    """

    datatype: MPI.Datatype | None
    size: int
    extent: int
    lower: int
    true_extent: int
    dense: bool
    dtype: Any

    @property
    def key(self) -> tuple[Any, ...]:
        """What a cached plan depends on."""
        handle = self.datatype.handle if self.datatype is not None else 0
        return handle, self.size, self.extent, self.lower, self.true_extent, self.dense, self.dtype


def kind_of(datatype: MPI.Datatype) -> Kind:
    """Describe an MPI datatype."""
    if datatype == MPI.DATATYPE_NULL:
        return Kind(datatype, 0, 0, 0, 0, True, None)
    if datatype.is_predefined:
        return _predefined(datatype.handle)
    return _describe(datatype)


@lru_cache(maxsize=256)
def _predefined(handle: int) -> Kind:
    return _describe(MPI.Datatype.fromhandle(handle))


def _describe(datatype: MPI.Datatype) -> Kind:
    _, extent = datatype.Get_extent()
    lower, true_extent = datatype.Get_true_extent()
    size = datatype.Get_size()
    dense = lower == 0 and size == extent == true_extent and _in_order(datatype)
    return Kind(datatype, size, extent, lower, true_extent, dense, _dtype(datatype))


def _in_order(datatype: MPI.Datatype) -> bool:
    """Whether the data of an element are sure to be packed in the order they have in memory."""
    if datatype.is_predefined:
        return True
    basis, combiner, _ = datatype.decode()
    simple = combiner in ("DUP", "CONTIGUOUS", "RESIZED")
    return bool(simple and kind_of(basis).dense)


def _dtype(datatype: MPI.Datatype) -> Any:
    if not datatype.is_predefined:
        return None
    try:
        dtype = dtlib.to_numpy_dtype(datatype)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return dtype if dtype.kind in "biufc" and dtype.isnative else None


class Part(NamedTuple):
    """`count` elements that begin `offset` bytes into the buffer."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    offset: int
    kind: Kind

    @property
    def nbytes(self) -> int:
        """Bytes of data."""
        return self.count * self.kind.size


class Message(NamedTuple):
    """A parsed buffer argument: one part, or one part for each rank.

    Attributes
    ----------
    memory : MPI.buffer or None
        The whole buffer that the user passed; None for `MPI.BOTTOM`.
    parts : list of Part
        What of it is meant.
    """

    memory: MPI.buffer | None
    parts: list[Part]

    @property
    def device(self) -> bool:
        """Whether the buffer is in the memory of a device, where only MPI can copy."""
        try:
            return self.memory is not None and self.memory[:0] is None
        except BufferError:
            return True

    @property
    def kind(self) -> Kind:
        """The element type of the first part."""
        return self.parts[0].kind

    @property
    def address(self) -> int:
        """Where the buffer begins (0 for `MPI.BOTTOM`)."""
        return self.memory.address if self.memory is not None else 0

    def check_bounds(self, what: str) -> None:
        """Raise a ValueError if the parts reach outside the buffer."""
        if self.memory is None:
            return
        for part in self.parts:
            if not part.nbytes:
                continue
            first = part.offset + part.kind.lower
            last = first + (part.count - 1) * part.kind.extent + part.kind.true_extent
            if max(first, last) > self.memory.nbytes or part.offset < 0:
                raise ValueError(
                    f"message: {what} of {self.memory.nbytes} bytes is too small:"
                    f" {part.count} elements at byte {part.offset} end at byte {last}"
                )


def _memory(buffer: Any, readonly: bool) -> MPI.buffer | None:
    if buffer is None:
        return MPI.buffer.allocate(0)
    if isinstance(buffer, type(MPI.BOTTOM)) and buffer is MPI.BOTTOM:
        return None
    try:
        return MPI.buffer.frombuffer(buffer, readonly)
    except TypeError as error:
        raise TypeError(f"message: expecting buffer or list/tuple, got {buffer!r:.60}") from error


def _kind(buffer: Any, datatype: Any) -> Kind:
    """The element type: the one named, else that of the buffer's format."""
    if isinstance(datatype, str):
        datatype = MPI.Datatype.fromcode(datatype)
    if datatype is not None:
        return kind_of(datatype)
    if buffer is None:
        raise TypeError("message: expecting buffer or list/tuple")
    dtype = buffer.dtype if isinstance(buffer, np.ndarray) else None
    text = MPI.buffer.frombuffer(buffer, True).format if dtype is None else dtype.char
    try:
        if dtype is not None and not (dtype.isnative and dtype.kind in "biufcSV"):
            raise ValueError(dtype)
        return kind_of(MPI.Datatype.fromcode(text.lstrip("@=<")))
    except (ValueError, KeyError):
        return _unknown(buffer, dtype, text)


def _unknown(buffer: Any, dtype: Any, text: str) -> Kind:
    """An element type that MPI does not know: moved as bytes, combined by NumPy."""
    dtype = dtype if dtype is not None else np.asarray(buffer).dtype
    if dtype.hasobject:
        raise KeyError(f"cannot map {text!r} to MPI datatype")
    return Kind(None, dtype.itemsize, dtype.itemsize, 0, dtype.itemsize, True, dtype)


def _unpacked(message: Any, pairs: tuple[type, ...]) -> tuple[Any, Any, Any, Any]:
    """Buffer, counts, displacements and datatype of a specification."""
    if not isinstance(message, (list, tuple)):
        return message, None, None, None
    if not 2 <= len(message) <= 4:
        raise ValueError("message: expecting 2 to 4 items")
    buffer, *middle = message
    datatype = middle.pop() if len(middle) > 1 or _is_datatype(middle[0]) else None
    counts = displs = None
    if len(middle) == 2:
        counts, displs = middle
    elif middle:
        (counts,) = middle
        if isinstance(counts, (list, tuple)) and isinstance(counts, pairs):
            counts, displs = counts
    return buffer, counts, displs, datatype


def _is_datatype(value: Any) -> bool:
    return isinstance(value, (MPI.Datatype, str))


def _entries(memory: MPI.buffer | None, offset: int, kind: Kind) -> int:
    """How many elements fit behind `offset`, for a count that was not given."""
    length = (memory.nbytes if memory is not None else 0) - offset
    if length <= 0:
        return 0
    if kind.datatype == MPI.DATATYPE_NULL:
        raise ValueError("message: cannot infer count, datatype is null")
    if kind.extent <= 0:
        raise ValueError(f"message: cannot infer count, datatype extent {kind.extent}")
    if length % kind.extent:
        raise ValueError(
            f"message: cannot infer count, buffer length {length} is not a multiple of"
            f" datatype extent {kind.extent}"
        )
    return length // kind.extent


def simple(message: Any, blocks: int, *, readonly: bool) -> Message:
    """Read a specification of elements of one type; with `blocks`, that many equal blocks of them.

    A count in the specification is that of one block.
    """
    buffer, count, displ, datatype = _unpacked(message, (list, tuple))
    memory, kind = _memory(buffer, readonly), _kind(buffer, datatype)
    start = index(displ) if displ is not None else 0
    if start < 0:
        raise ValueError(f"message: negative displacement {start}")
    offset = start * kind.extent
    if memory is not None and offset > memory.nbytes:
        raise ValueError(
            f"message: displacement {start} out of bounds,"
            f" number of datatype entries {memory.nbytes // kind.extent}"
        )
    if count is not None:
        number = index(count)
        if number < 0:
            raise ValueError(f"message: negative count {number}")
        if number and buffer is None:
            raise ValueError(f"message: buffer is None but count is {number}")
    else:
        number = _entries(memory, offset, kind)
        if number % max(blocks, 1):
            raise ValueError(
                f"message: cannot infer count, number of entries {number} is not a multiple of"
                f" required number of blocks {blocks}"
            )
        number //= max(blocks, 1)
    step = number * kind.extent
    return Message(memory, [Part(number, offset + i * step, kind) for i in range(max(blocks, 1))])


def vector(message: Any, blocks: int, *, readonly: bool) -> Message:
    """Read a specification with a count and a displacement for each block."""
    buffer, counts, displs, datatype = _unpacked(message, (tuple,))
    memory, kind = _memory(buffer, readonly), _kind(buffer, datatype)
    if counts is None:
        entries = _entries(memory, 0, kind)
        counts = [entries // blocks + (i < entries % blocks) for i in range(blocks)]
    counts = _integers(counts, blocks)
    if displs is None:
        displs = [sum(counts[:i]) for i in range(blocks)] if blocks < 64 else _exclusive(counts)
    elif not isinstance(displs, Sequence) and np.ndim(displs) == 0:
        displs = [index(displs) * i for i in range(blocks)]
    displs = _integers(displs, blocks)
    pairs = zip(counts, displs, strict=True)
    return Message(memory, [Part(count, displ * kind.extent, kind) for count, displ in pairs])


def _exclusive(counts: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(counts[:-1]).tolist()]


def _integers(values: Any, blocks: int) -> list[int]:
    if np.ndim(values) == 0:
        return [index(values)] * blocks
    numbers = [index(value) for value in values]
    if len(numbers) != blocks:
        raise ValueError(f"expecting {blocks} items, got {len(numbers)}")
    return numbers


def typed_vector(message: Any, blocks: int, *, readonly: bool) -> Message:
    """Read a specification with a count, a displacement in bytes and a datatype for each block."""
    if len(message) == 2:
        buffer, types = message
        counts, displs = [1] * blocks, [0] * blocks
    elif len(message) == 3:
        buffer, (counts, displs), types = message
    elif len(message) == 4:
        buffer, counts, displs, types = message
    else:
        raise ValueError("message: expecting 2 to 4 items")
    memory = _memory(buffer, readonly)
    counts, displs = _integers(counts, blocks), _integers(displs, blocks)
    if len(types) != blocks:
        raise ValueError(f"expecting {blocks} items, got {len(types)}")
    kinds = [_kind_if_used(t, count) for t, count in zip(types, counts, strict=True)]
    parts = [Part(c, d, k) for c, d, k in zip(counts, displs, kinds, strict=True)]
    return Message(memory, parts)


def _kind_if_used(datatype: MPI.Datatype, count: int) -> Kind:
    """The type of a slot; that of an empty slot is not looked at."""
    return kind_of(datatype) if count else kind_of(MPI.DATATYPE_NULL)


class Packing(NamedTuple):
    """How the bytes of a message lie in the buffer that a schedule works on.

    Attributes
    ----------
    blocks : Blocks
        The packed bytes of each part, as regions of the buffer.
    packed : bool
        Whether that buffer is a private copy (the types have gaps) or the user's memory.
    nbytes : int
        Bytes in the private copy.
    """

    blocks: Blocks
    packed: bool
    nbytes: int


def packing(message: Message, buffer: int) -> Packing:
    """Lay out a message of a data movement collective."""
    if message.memory is not None and all(p.kind.dense or not p.nbytes for p in message.parts):
        regions = [Region((buffer, p.offset, p.offset + p.nbytes)) for p in message.parts]
        return Packing(Blocks(regions), False, 0)
    whole = sum(part.nbytes for part in message.parts)
    region = Region((buffer, 0, whole)) if whole else EMPTY
    return Packing(region.blocks(part.nbytes for part in message.parts), True, whole)
