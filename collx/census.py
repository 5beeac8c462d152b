"""Which algorithms exist elsewhere, and which of ours each of them is.

`census.txt` lists the algorithms of other libraries and of papers. What covers a row is written
beside the algorithm that does, in its `covers` mark; here the two are brought together.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from collx.choice import parse
from collx.collectives import COLLECTIVES
from collx.registry import Algorithm, Need, everything, find


class Reason(Enum):
    """Why collx cannot have an algorithm."""

    ONE_SIDED = "needs one-sided access to memory"
    DEVICE = "needs shared memory, special hardware or device kernels"
    ARRIVAL = "depends on when ranks arrive"
    CLOSED = "is closed: its pattern is not known"
    ENGINE = "is a way to carry out schedules, not a schedule"


class Row(NamedTuple):
    """An algorithm that exists elsewhere.

    Attributes
    ----------
    name : str
        What we call it.
    collectives : tuple of str
        The collectives that have it.
    source : str
        The libraries that have it, with the names and numbers they give it, or the papers.
    kind : str
        `"library"`, `"frontier"` (from papers) or `"hardware"`.
    reason : Reason or None
        Why there is none in collx; None if there is.
    why : str
        The same in a sentence.
    """

    name: str
    collectives: tuple[str, ...]
    source: str
    kind: str = "library"
    reason: Reason | None = None
    why: str = ""


class Cover(NamedTuple):
    """An algorithm of ours with the parameters, as text, that make it the one of a row."""

    algorithm: Algorithm
    parameters: str

    @property
    def choice(self) -> str:
        """The name of the algorithm with these parameters, in the grammar of choices."""
        name = self.algorithm.name
        return f"{name}({self.parameters})" if self.parameters else name

    def check(self) -> None:
        """Raise a ValueError if the parameters cannot be read, or are not the algorithm's."""
        find(self.algorithm.family, parse(self.choice))


@cache
def rows() -> tuple[Row, ...]:
    """All rows of the census, in the order of the file."""
    return tuple(_read(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")))


def _read(text: str) -> Iterator[Row]:
    section = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("["):
            section = line.strip("[]")
        elif not line.startswith("#"):
            yield _row(section, line.split(" | "))


def _row(section: str, entries: list[str]) -> Row:
    """Make a row of the entries of a line.

    Examples
    --------
    >>> _row("bcast", ["arrival-aware", "SimGrid", "ARRIVAL: It probes."]).reason
    <Reason.ARRIVAL: 'depends on when ranks arrive'>
    >>> _row("frontier", ["k-ring", "allgather", "Wilkins et al. 2023"]).kind
    'frontier'
    """
    name, *entries = entries
    kind, collectives = "library", _named(section)
    if section in ("frontier", "hardware"):
        kind, collectives = section, tuple(entries.pop(0).split(", "))
    source, *reasons = entries
    if not reasons:
        return Row(name, collectives, source, kind)
    key, why = reasons[0].split(": ", 1)
    return Row(name, collectives, source, kind, Reason[key], why)


def _named(section: str) -> tuple[str, ...]:
    """Give the collectives that a section is about: `neighbor_*` stands for all that begin so."""
    if not section.endswith("*"):
        return (section,)
    known = (row for row in COLLECTIVES.values() if row.name.startswith(section[:-1]))
    return tuple(row.name for row in known)


def marks(algorithm: Algorithm) -> dict[str, str]:
    """The names of the rows that an algorithm covers, each with parameters as text.

    Examples
    --------
    >>> from collx.registry import algorithms
    >>> marks(algorithms("allreduce")["ring"])["segmented ring"]
    'segment=64K'
    """
    parted = (mark.partition(": ") for mark in algorithm.covers)
    return {name: parameters for name, _, parameters in parted}


def serves(algorithm: Algorithm, collective: str) -> bool:
    """Whether an algorithm can carry out a collective as MPI defines it."""
    unequal = collective in ("allgatherv", "alltoallv", "alltoallw", "reduce_scatter")
    hidden = collective in ("gatherv", "scatterv")
    return (
        algorithm.family == COLLECTIVES[collective].family
        and not (unequal and Need.EQUAL_BLOCKS in algorithm.needs)
        and not (hidden and Need.KNOWN_SIZES in algorithm.needs)
    )


def covering(row: Row, collective: str) -> list[Cover]:
    """The algorithms that cover a row for one of its collectives."""
    return [
        Cover(algorithm, marked[row.name])
        for algorithm in everything()
        if row.name in (marked := marks(algorithm)) and serves(algorithm, collective)
    ]


def covered_by(algorithm: Algorithm) -> list[Row]:
    """The rows that an algorithm covers."""
    marked = marks(algorithm)
    return [
        row
        for row in rows()
        if row.name in marked and any(serves(algorithm, name) for name in row.collectives)
    ]
