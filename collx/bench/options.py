"""The command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from collx.bench.candidates import choices, measurable, usual
from collx.bench.contents import OPERATORS
from collx.buffers import simple
from collx.choice import Choice, parse
from collx.collectives import COLLECTIVES
from collx.operators import operator_for

SIZES = "8,64,512,4K,32K,256K,1M"
BUDGET = 85.0
"""Seconds from the start of the processes, by default: all should be over in two minutes."""
LEAST_BUDGET = 15.0
"""Seconds to take by default where starting took long."""
GRACE = 60.0
"""Seconds beyond the budget after which the benchmark counts as hanging."""

DESCRIPTION = """\
Validate collx's algorithms and time them beside the MPI's own collectives, interleaved repetition
by repetition. Start it with mpiexec; all options are optional."""
EPILOG = """\
A size is the bytes of the whole vector (bcast, reduce, allreduce, scan, exscan) or of the blocks of
all ranks together (the other collectives), rounded up to one element per rank where blocks are
equal. Collectives among neighbours run on a periodic grid of two dimensions, those between groups
on the two halves of the ranks. Exit status: 0 all is well, 1 an algorithm is wrong, 2 wrong usage,
3 it hung."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for.

    Attributes
    ----------
    collectives : tuple of str
        What to measure.
    algorithms : tuple of Choice
        The algorithms to measure; all if empty.
    sizes : tuple of int
        In bytes.
    dtype, op : str
        Names of NumPy and MPI.
    json, csv : str or None
        Files to write.
    list : bool
        Whether to list the algorithms and do nothing else.
    budget : float or None
        Seconds for validation and timing; None for what is left of `BUDGET`.
    timeout : float
        Seconds after which to abort.
    repetitions, seed : int
        Most samples of each cell; seed of contents and order.
    """

    collectives: tuple[str, ...]
    algorithms: tuple[Choice, ...]
    sizes: tuple[int, ...]
    dtype: str
    op: str
    json: str | None
    csv: str | None
    list: bool
    budget: float | None
    timeout: float
    repetitions: int
    seed: int


def read(world: MPI.Intracomm, arguments: Sequence[str] | None) -> Options | int:
    """Read the command line on rank 0 for all; the exit status if there is nothing to do."""
    result: Options | int = 0
    if world.Get_rank() == 0:
        try:
            result = parsed(arguments)
        except SystemExit as end:
            result = int(end.code or 0)
    told: Options | int = world.bcast(result)
    return told


def parsed(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line.

    Raises
    ------
    SystemExit
        After a message, if something is wrong with it.
    """
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    try:
        return _options(given)
    except (ValueError, TypeError, MPI.Exception, OSError) as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m collx.bench", None, DESCRIPTION, EPILOG)
    add = parser.add_argument
    add("--collective", metavar="C,...", help=f"what to measure (default: {','.join(usual())})")
    add("--full", action="store_true", help=f"measure all: {','.join(measurable())}")
    add("--algorithm", metavar="A", action="append", default=[],
        help='only this one, as in "ring(segment=64K)"; may be repeated')  # fmt: skip
    add("--sizes", metavar="N,...", default=SIZES, help="in bytes, or with K, M, G (%(default)s)")
    add("--dtype", default="float64", help="element type, a NumPy name (%(default)s)")
    add("--op", metavar="OP", help=f"operator: {', '.join(OPERATORS)} (SUM)")
    add("--json", metavar="FILE", help="write everything, with all samples, to FILE")
    add("--csv", metavar="FILE", help="write a line for each time measured to FILE")
    add("--list", action="store_true", help="list algorithms, parameters, needs and promises")
    add("--budget", metavar="S", type=float, help="seconds for validation and timing"
        f" (what is left {BUDGET:g} s after the processes were started)")  # fmt: skip
    add(
        "--timeout",
        metavar="S",
        type=float,
        help=f"seconds after which to abort (budget + {GRACE:g})",
    )
    add("--repetitions", metavar="N", type=int, default=50, help="at most (%(default)s)")
    add("--seed", type=int, default=0, help="of contents and order (%(default)s)")
    return parser


def _options(given: dict[str, Any]) -> Options:
    wanted = tuple(parse(text) for text in given["algorithm"])
    dtype, op = _element(given["dtype"], given["op"])
    for limit in ("budget", "timeout", "repetitions"):
        if given[limit] is not None and not given[limit] > 0:
            raise ValueError(f"--{limit} must be more than 0")
    for path in filter(None, (given["json"], given["csv"])):
        open(path, "a").close()
    names = _having(_collectives(given["collective"], given["full"]), wanted)
    if any(COLLECTIVES[name].combines for name in names):
        _check_operator(dtype, op)
    return Options(
        collectives=names,
        algorithms=wanted,
        sizes=_sizes(given["sizes"]),
        dtype=dtype.name,
        op=op,
        timeout=given["timeout"] or (given["budget"] or BUDGET) + GRACE,
        **{name: given[name] for name in ("json", "csv", "list", "budget", "repetitions", "seed")},
    )


def _collectives(text: str | None, full: bool) -> tuple[str, ...]:
    """The collectives of a list.

    Examples
    --------
    >>> _collectives("Bcast,reduce", False)
    ('bcast', 'reduce')
    """
    if text is None:
        return tuple(measurable() if full else usual())
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    if unknown := [name for name in names if name not in measurable()]:
        raise ValueError(f"no collective {unknown[0]!r}; there are: {', '.join(measurable())}")
    return names


def _having(names: tuple[str, ...], wanted: Sequence[Choice]) -> tuple[str, ...]:
    """The collectives that have one of the algorithms."""
    for choice in wanted:
        if not any(list(choices(name, [choice])) for name in names):
            raise ValueError(f"no algorithm {str(choice)!r} of {', '.join(names)}; see --list")
    return tuple(name for name in names if not wanted or list(choices(name, wanted)))


def _sizes(text: str) -> tuple[int, ...]:
    """Sizes in bytes, in order.

    Examples
    --------
    >>> _sizes("64K,8,1K")
    (8, 1024, 65536)
    """
    return tuple(sorted({_size(word.strip()) for word in text.split(",")}))


def _size(word: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", word, re.IGNORECASE)
    if not found or not int(found[1]):
        raise ValueError(f"--sizes: cannot read {word!r}; write sizes like 8,1K,64K,1M")
    return int(found[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[found[2].upper()]


def _element(name: str, op: str | None) -> tuple[np.dtype[Any], str]:
    dtype = np.dtype(name)
    if dtype.kind not in "biufc":
        raise ValueError(f"--dtype: {name} is not a number")
    op = (op or ("LOR" if dtype.kind == "b" else "SUM")).upper()
    if op not in OPERATORS:
        raise ValueError(f"--op: no operator {op!r}; there are: {', '.join(OPERATORS)}")
    return dtype, op


def _check_operator(dtype: np.dtype[Any], op: str) -> None:
    """Raise an error if the operator is not defined for the type."""
    datatype = simple(np.zeros(1, dtype), 0, readonly=True).kind.datatype
    try:
        operator_for(getattr(MPI, op), datatype, dtype)
    except MPI.Exception as error:
        raise ValueError(f"MPI does not define {op} for {dtype.name}") from error
