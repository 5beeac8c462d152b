"""The buffers of one call on one rank, and whether what comes out is right."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

from collx.bench.contents import Array, Data
from collx.bench.places import base, call_name, shape_of
from collx.bench.sides import Layout, sides_of
from collx.collectives import COLLECTIVES

GUARD = 64
"""Bytes before and behind each buffer that must stay as they are."""
_GUARD_BYTE = 0xA5


class Guarded:
    """An array with guard bytes before and behind it."""

    def __init__(self, length: int, dtype: np.dtype[Any]) -> None:
        nbytes = length * dtype.itemsize
        self._raw = np.full(nbytes + 2 * GUARD, _GUARD_BYTE, np.uint8)
        self.array: Array = self._raw[GUARD : GUARD + nbytes].view(dtype)

    def clear(self) -> None:
        """Write something everywhere that is no result."""
        self._raw[:] = _GUARD_BYTE

    def fault(self) -> str:
        """Which guard byte was written to, or `""`."""
        for name, part in (("before", self._raw[:GUARD]), ("behind", self._raw[-GUARD:])):
            if (part != _GUARD_BYTE).any():
                return f"wrote {name} the receive buffer"
        return ""


class Problem:
    """The buffers of one rank for one call.

    Parameters
    ----------
    data, rank
        Contents; this rank.
    collective
        MPI's name in lower case.
    sizes
        Elements in the block of each rank; of a collective on whole vectors their sum counts.
    root, in_place
        The root; whether to use `MPI.IN_PLACE` where MPI allows it.
    """

    def __init__(
        self, data: Data, rank: int, collective: str, sizes: Sequence[int],
        root: int = 0, in_place: bool = False,
    ) -> None:  # fmt: skip
        self.collective, self.sizes, self.root, self.data = collective, sizes, root, data
        self.row, self.rank = COLLECTIVES[collective], rank
        apart = self.row.inter or self.row.sparse
        self.in_place = in_place and not apart and collective not in ("barrier", "bcast")
        self.shape = shape_of(collective, sizes, root, self.in_place)
        self.at = Layout(data, rank, self.shape)
        self.sides = sides_of(self.at)
        self.nbytes = self.shape.total * data.dtype.itemsize
        self._here = self.in_place and (not self.row.rooted or rank == root)
        self._send, self._recv = self._buffers()

    def _buffers(self) -> tuple[Array | None, Guarded | None]:
        send, length, dtype = self.sides.send, self.sides.length, self.data.dtype
        scatters = self.row.family == "scatter"
        if length is None or (self._here and scatters):
            return None if send is None else send.copy(), None
        if self._here and send is not None:
            return None, Guarded(max(length, len(send)), dtype)
        return None if send is None else send.copy(), Guarded(length, dtype)

    @property
    def where(self) -> str:
        """The call in words."""
        rooted = f", root {self.root}" if self.row.rooted else ""
        return f"{self.nbytes} bytes{', in place' if self.in_place else ''}{rooted}"

    def reset(self) -> None:
        """Fill the receive buffer as it must be before a call."""
        if self._recv is None:
            return
        self._recv.clear()
        send, start = self.sides.send, self.sides.own
        fills = self._here or self.row.family == "bcast"
        if fills and send is not None:
            start = start if self._here else 0
            self._recv.array[start : start + len(send)] = send

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What mpi4py's method takes."""
        keywords: dict[str, Any] = {"op": self.data.op} if self.row.combines else {}
        if self.row.rooted:
            keywords["root"] = self._root()
        if call_name(self.collective) == "reduce_scatter":
            keywords["recvcounts"] = self.at.sizes(self.at.local)
        if base(self.collective) == "barrier":
            return (), keywords
        send: Any = MPI.IN_PLACE if self._here else self._send
        recv: Any = self._recv.array if self._recv is not None else None
        if base(self.collective) == "bcast":
            return (send if recv is None else recv,), keywords
        if self._here and recv is None:
            send, recv = self._send, MPI.IN_PLACE
        both = self._spec(send, self.sides.sent), self._spec(recv, self.sides.received)
        return both, keywords

    def _root(self) -> int:
        """The root as MPI names it: in another group, or here."""
        if not self.row.inter:
            return self.root
        if self.at.at_root:
            return MPI.ROOT
        return self.at.remote.index(self.root) if self.at.opposite else MPI.PROC_NULL

    def _spec(self, buffer: Any, counts: list[int] | None) -> Any:
        """Add counts to a side that has blocks of its own sizes."""
        if not isinstance(buffer, np.ndarray) or self.collective[-1] not in "vw" or counts is None:
            return buffer
        if self.collective[-1] == "v":
            return [buffer, counts]
        starts = [start * buffer.itemsize for start in accumulate([0, *counts[:-1]])]
        datatype = MPI.Datatype.fromcode(buffer.dtype.char)
        return [buffer, (counts, starts), [datatype] * len(counts)]

    def fault(self) -> str:
        """What is wrong after a call, or `""`."""
        if self._send is not None and not _same(self._send, self.sides.send):
            return "changed the send buffer"
        if self._recv is None:
            return ""
        expected = self.sides.expected
        wrong = first_wrong(self._recv.array, expected, self.sides.bound)
        return wrong or self._recv.fault()

    def checksum(self) -> int:
        """A number that differs if a bit of the result differs."""
        if self._recv is None or self.sides.expected is None:
            return 0
        return zlib.crc32(_data_bytes(self._recv.array[: len(self.sides.expected)]).tobytes())


def _data_bytes(array: Array) -> Array:
    """The bytes of an array, without those that an 80-bit long double leaves unused."""
    raw = array.view(np.uint8)
    if array.dtype.kind in "fc" and np.finfo(array.dtype).nmant == 63:
        return raw.reshape(-1, array.real.itemsize)[:, :10]
    return raw


def _same(one: Array, other: Array | None) -> bool:
    return other is not None and bool((one.view(np.uint8) == other.view(np.uint8)).all())


def first_wrong(got: Array, expected: Array | None, bound: Array | None) -> str:
    """The first element that is not as expected, in words, or `""`.

    Examples
    --------
    >>> first_wrong(np.array([1, 2, 4]), np.array([1, 2, 3]), None)
    'element 2 is 4, should be 3'
    """
    if expected is None or not len(expected):
        return ""
    got = got[: len(expected)]
    good = got == expected if bound is None else np.abs(got - expected) <= bound
    if good.all():
        return ""
    index = int(np.argmin(good))
    return f"element {index} is {got[index]!s}, should be {expected[index]!s}"
