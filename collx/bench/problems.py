"""The buffers of one call on one rank, and what must come out of it.

The contents are those of a table of random numbers with a row for each rank, repeated along the
vector; so every rank knows, for any length, what all others contribute.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from collx.collectives import COLLECTIVES

Array: TypeAlias = NDArray[Any]

PERIOD = 509
"""Numbers in a row of the table: a prime, so that no block or segment is a multiple of it."""
GUARD = 64
"""Bytes before and behind each buffer that must stay as they are."""
_GUARD_BYTE = 0xA5
OPERATORS: dict[str, np.ufunc] = {
    **{"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum},
    **{"LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor},
    **{"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor},
}
"""MPI's names of the operators, and what they must do."""


class Data:
    """The contributions of all ranks, and their exact reductions.

    Parameters
    ----------
    size, seed
        Number of ranks; which random numbers.
    dtype, op
        Element type and operator (one of `OPERATORS`).
    """

    def __init__(self, size: int, dtype: np.dtype[Any], op: str, seed: int = 0) -> None:
        self.size, self.dtype, self.name = size, dtype, op
        self.op: MPI.Op = getattr(MPI, op)
        draw = np.random.default_rng(seed)
        self._table = _numbers(draw, (size, PERIOD), dtype, op)
        self.reduced = cache(self._reduced)

    def values(self, rank: int, start: int, stop: int) -> Array:
        """Elements `start` to `stop` of the contribution of a rank."""
        return _repeated(self._table[rank], start, stop)

    def result(self, ranks: int, start: int, stop: int) -> tuple[Array, Array | None]:
        """Elements of the reduction over the first ranks, and how far they may be off."""
        exact, bound = self.reduced(ranks)
        far = _repeated(bound, start, stop) if bound is not None else None
        return _repeated(exact, start, stop), far

    def _reduced(self, ranks: int) -> tuple[Array, Array | None]:
        rows, kind = self._table[:ranks], self.dtype.kind
        if kind not in "fc" or self.name not in ("SUM", "PROD"):
            return np.asarray(OPERATORS[self.name].reduce(rows, axis=0)).astype(self.dtype), None
        eps = float(np.finfo(self.dtype).eps)
        if self.name == "SUM":
            return _exact_sum(rows), (ranks - 1) * eps * np.abs(rows).sum(axis=0)
        product = np.prod(rows, axis=0, dtype=np.result_type(self.dtype, np.longdouble))
        return product, 3 * (ranks - 1) * eps * np.abs(product)


def _numbers(
    draw: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any], op: str
) -> Array:
    """Random numbers whose reduction over the ranks does not overflow."""
    if dtype.kind == "b":
        return draw.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        if op == "PROD":
            twos: Array = draw.integers(0, 4 * shape[0], shape) == 0
            return np.asarray(1 + twos).astype(dtype)
        most = min(np.iinfo(dtype).max // shape[0], 1000) if op == "SUM" else 100
        return draw.integers(0, max(int(most), 1) + 1, shape).astype(dtype)
    numbers: Array = draw.normal(size=shape)  # of many magnitudes, so that sums are rounded
    if dtype.kind == "c":
        numbers = numbers + 1j * draw.normal(size=shape)
    return (np.exp(numbers / 16) if op == "PROD" else numbers).astype(dtype)


def _repeated(row: Array, start: int, stop: int) -> Array:
    return np.take(row, np.arange(start, stop), mode="wrap")


def _exact_sum(rows: Array) -> Array:
    """Sum over the rows, rounded once."""
    if rows.dtype.itemsize > (16 if rows.dtype.kind == "c" else 8):
        return np.asarray(rows.sum(axis=0))
    if rows.dtype.kind == "c":
        return _exact_sum(rows.real) + 1j * _exact_sum(rows.imag)
    return np.array([math.fsum(column) for column in rows.T.tolist()])


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
    """

    send: Array | None = None
    length: int | None = None
    expected: Array | None = None
    bound: Array | None = None
    own: int = 0


class Layout(NamedTuple):
    """One rank's view of a call: elements per rank, where they begin, their sum, and the root."""

    data: Data
    rank: int
    sizes: Sequence[int]
    starts: Sequence[int]
    total: int
    root: int

    @property
    def at_root(self) -> bool:
        """Whether this rank is the root."""
        return self.rank == self.root


def _bcast(at: Layout) -> Sides:
    expected = at.data.values(at.root, 0, at.total)
    return Sides(expected if at.at_root else None, at.total, expected)


def _gather(at: Layout) -> Sides:
    send = at.data.values(at.rank, 0, at.sizes[at.rank])
    return _allgather(at) if at.at_root else Sides(send)


def _allgather(at: Layout) -> Sides:
    blocks = [at.data.values(rank, 0, count) for rank, count in enumerate(at.sizes)]
    send = blocks[at.rank]
    return Sides(send, at.total, np.concatenate(blocks), own=at.starts[at.rank])


def _scatter(at: Layout) -> Sides:
    start, count = at.starts[at.rank], at.sizes[at.rank]
    send = at.data.values(at.root, 0, at.total) if at.at_root else None
    return Sides(send, count, at.data.values(at.root, start, start + count))


def pairs(sizes: Sequence[int], rank: int) -> list[int]:
    """Elements that a rank exchanges with each other in an alltoall."""
    return [sizes[(rank + other) % len(sizes)] for other in range(len(sizes))]


def _alltoall(at: Layout) -> Sides:
    send = at.data.values(at.rank, 0, at.total)
    counts = pairs(at.sizes, at.rank)
    begins = [sum(pairs(at.sizes, source)[: at.rank]) for source in range(len(counts))]
    values = at.data.values
    blocks = [values(q, b, b + n) for q, (b, n) in enumerate(zip(begins, counts, strict=True))]
    return Sides(send, at.total, np.concatenate(blocks))


def _reduced(at: Layout, ranks: int) -> Sides:
    send = at.data.values(at.rank, 0, at.total)
    return Sides(send, at.total, *(at.data.result(ranks, 0, at.total) if ranks else ()))


def _reduce(at: Layout) -> Sides:
    whole = _reduced(at, len(at.sizes))
    return whole if at.at_root else Sides(whole.send)


def _reduce_scatter(at: Layout) -> Sides:
    start, count = at.starts[at.rank], at.sizes[at.rank]
    send = at.data.values(at.rank, 0, at.total)
    return Sides(send, count, *at.data.result(len(at.sizes), start, start + count))


SIDES: dict[str, Callable[[Layout], Sides]] = {
    "barrier": lambda at: Sides(),
    "bcast": _bcast,
    "gather": _gather,
    "scatter": _scatter,
    "allgather": _allgather,
    "alltoall": _alltoall,
    "reduce": _reduce,
    "allreduce": lambda at: _reduced(at, len(at.sizes)),
    "reduce_scatter": _reduce_scatter,
    "scan": lambda at: _reduced(at, at.rank + 1),
    "exscan": lambda at: _reduced(at, at.rank),
}
"""For each family, what one rank has and gets."""


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
        starts = list(accumulate(sizes, initial=0))
        layout = Layout(data, rank, sizes, starts, starts[-1], root)
        self.sides = SIDES[self.row.family](layout)
        self.nbytes = starts[-1] * data.dtype.itemsize
        self.in_place = in_place and self.row.family not in ("barrier", "bcast")
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
            keywords["root"] = self.root
        if self.collective == "reduce_scatter":
            keywords["recvcounts"] = list(self.sizes)
        if self.row.family == "barrier":
            return (), keywords
        send: Any = MPI.IN_PLACE if self._here else self._send
        recv: Any = self._recv.array if self._recv is not None else None
        if self.row.family == "bcast":
            return (recv,), keywords
        if self._here and recv is None:
            send, recv = self._send, MPI.IN_PLACE
        return (self._spec(send, "send"), self._spec(recv, "recv")), keywords

    def _spec(self, buffer: Any, side: str) -> Any:
        """Add counts to the side that has a block for each rank."""
        many = {"gather": "recv", "scatter": "send", "allgather": "recv", "alltoall": "send recv"}
        if not isinstance(buffer, np.ndarray) or self.collective[-1] not in "vw":
            return buffer
        if side not in many[self.row.family]:
            return buffer
        counts = list(self.sizes)
        if self.row.family == "alltoall":
            counts = pairs(self.sizes, self.rank)
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
