"""Which piece of code combines two operands, for each operator and element type.

The rule, in order:

1. An operator or element type that MPI does not know (float16, bfloat16): the NumPy ufunc.
2. SUM and PROD of integers, SUM of floating point and complex numbers, PROD of floating point
   numbers, MAX and MIN of integers, the bitwise operators, and the logical operators of integers
   and booleans: the NumPy ufunc. It has three addresses, and integers wrap (some MPI libraries
   saturate small ones).
3. Everything else, with `Op.Reduce_local`: MAX and MIN of floating point numbers (what a NaN does
   differs between libraries), PROD of complex numbers, MINLOC, MAXLOC, REPLACE, NO_OP, and
   operators made by the user.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from mpi4py import MPI

Array: TypeAlias = "np.ndarray[Any, Any]"


def _maximum(left: Array, right: Array, into: Array) -> None:
    np.maximum(left, right, out=into)


def _minimum(left: Array, right: Array, into: Array) -> None:
    np.minimum(left, right, out=into)


UFUNCS: dict[int, tuple[Callable[..., Any], str]] = {
    MPI.SUM.handle: (np.add, "biufc"),
    MPI.PROD.handle: (np.multiply, "biuf"),
    MPI.MAX.handle: (_maximum, "biu"),
    MPI.MIN.handle: (_minimum, "biu"),
    MPI.LAND.handle: (np.logical_and, "biu"),
    MPI.LOR.handle: (np.logical_or, "biu"),
    MPI.LXOR.handle: (np.logical_xor, "biu"),
    MPI.BAND.handle: (np.bitwise_and, "biu"),
    MPI.BOR.handle: (np.bitwise_or, "biu"),
    MPI.BXOR.handle: (np.bitwise_xor, "biu"),
}
"""For each operator that NumPy has, `function(left, right, into)` and the kinds of elements."""

_PREDEFINED = (
    *("SUM", "PROD", "MAX", "MIN", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR"),
    *("MINLOC", "MAXLOC", "REPLACE", "NO_OP"),
)
NAMES = {getattr(MPI, name).handle: f"MPI_{name}" for name in _PREDEFINED}
"""The names of the predefined operators."""

MOVES_ONLY = (MPI.REPLACE.handle, MPI.NO_OP.handle)


class Operator(NamedTuple):
    """How to combine elements of one type with one operator.

    Attributes
    ----------
    ufunc : callable or None
        Combines NumPy arrays, `ufunc(left, right, into)`.
    op : MPI.Op
        Used with `Reduce_local` where there is no ufunc.
    commutative : bool
        Whether operands may be exchanged.
    warns : bool
        Whether NumPy may warn about values (overflow, NaN).
    """

    ufunc: Callable[..., Any] | None
    op: MPI.Op
    commutative: bool
    warns: bool


def operator_for(op: MPI.Op, datatype: MPI.Datatype | None, dtype: Any) -> Operator:
    """The operator for elements of this MPI datatype (None: unknown to MPI) and NumPy dtype.

    Raises
    ------
    MPI.Exception
        If MPI does not define the operator for the datatype.
    TypeError
        If the element type is unknown to MPI and the operator is not SUM, PROD, MAX or MIN.
    """
    if datatype is not None and op.is_predefined:
        _check_defined(op, datatype)
    ufunc = _ufunc(op, datatype, dtype)
    warns = ufunc is not None and dtype.kind not in "biu"
    return Operator(ufunc, op, _commutative(op), warns)


def name_of(op: MPI.Op) -> str:
    """MPI's name of an operator, or that it is the user's."""
    return NAMES.get(op.handle, "of the user")


def _commutative(op: MPI.Op) -> bool:
    return bool(op.Is_commutative()) and op.handle not in MOVES_ONLY


def _ufunc(op: MPI.Op, datatype: MPI.Datatype | None, dtype: Any) -> Callable[..., Any] | None:
    ufunc, kinds = UFUNCS.get(op.handle, (None, ""))
    if datatype is not None:
        return ufunc if dtype is not None and dtype.kind in kinds else None
    if ufunc in (np.add, np.multiply, _maximum, _minimum):
        return ufunc
    raise TypeError(f"no MPI datatype for elements of type {dtype}: use SUM, PROD, MAX or MIN")


def _check_defined(op: MPI.Op, datatype: MPI.Datatype) -> None:
    if datatype.is_predefined:
        _check_handle(op.handle, datatype.handle)
    else:
        _apply_once(op, datatype)


@lru_cache(maxsize=1024)
def _check_handle(op: int, datatype: int) -> None:
    _apply_once(MPI.Op.fromhandle(op), MPI.Datatype.fromhandle(datatype))


def _apply_once(op: MPI.Op, datatype: MPI.Datatype) -> None:
    """Let the MPI library say whether it knows the operator for this datatype."""
    extent = max(datatype.Get_extent()[1], datatype.Get_true_extent()[1], 1)
    one, other = bytearray(extent), bytearray(extent)
    op.Reduce_local([one, 1, datatype], [other, 1, datatype])
