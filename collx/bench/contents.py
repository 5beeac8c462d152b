"""What all ranks contribute, and what comes of it.

The contents are those of a table of random numbers with a row for each rank, repeated along the
vector; so every rank knows, for any length, what all others contribute.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

PERIOD = 509
"""Numbers in a row of the table: a prime, so that no block or segment is a multiple of it."""
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

    def result(self, ranks: range, start: int, stop: int) -> tuple[Array, Array | None]:
        """Elements of the reduction over some ranks, and how far they may be off."""
        exact, bound = self.reduced(ranks)
        far = _repeated(bound, start, stop) if bound is not None else None
        return _repeated(exact, start, stop), far

    def _reduced(self, ranks: range) -> tuple[Array, Array | None]:
        rows, kind = self._table[ranks.start : ranks.stop], self.dtype.kind
        if kind not in "fc" or self.name not in ("SUM", "PROD"):
            return np.asarray(OPERATORS[self.name].reduce(rows, axis=0)).astype(self.dtype), None
        eps = float(np.finfo(self.dtype).eps)
        if self.name == "SUM":
            return _exact_sum(rows), (len(ranks) - 1) * eps * np.abs(rows).sum(axis=0)
        product = np.prod(rows, axis=0, dtype=np.result_type(self.dtype, np.longdouble))
        return product, 3 * (len(ranks) - 1) * eps * np.abs(product)


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
