"""What there is to run: collectives, algorithms, sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from mpi4py import MPI

from collx.bench.problems import Problem
from collx.choice import Choice
from collx.choose import RULES, decide
from collx.collectives import COLLECTIVES, Call, Shape, call_of
from collx.communicator import Comm
from collx.registry import Algorithm, Promise, algorithms, find

USUAL = (
    *("allreduce", "bcast", "reduce", "allgather", "reduce_scatter_block", "gatherv", "barrier"),
    *("alltoall", "gather", "scatter", "scan", "exscan"),
)
"""What is measured unless all is asked for: each family, most used collectives first."""

EQUAL = ("gather", "scatter", "allgather", "alltoall", "reduce_scatter_block")
"""Collectives whose blocks are all equal."""


def measurable() -> list[str]:
    """The collectives that `Comm` has and that have algorithms."""
    own = vars(Comm)
    return [
        row.name
        for row in COLLECTIVES.values()
        if row.name.capitalize() in own and row.family in RULES and algorithms(row.name)
    ]


def usual() -> list[str]:
    """The collectives measured by default."""
    return [name for name in USUAL if name in measurable()]


class Candidate(NamedTuple):
    """Something to run: an algorithm of collx, or (no choice) the MPI's own collective."""

    collective: str
    choice: Choice | None = None

    @property
    def name(self) -> str:
        """The choice in the grammar, or `"native"`."""
        return str(self.choice) if self.choice else "native"

    @property
    def same_bits(self) -> bool:
        """Whether all ranks must have bit for bit the same result."""
        if self.choice is None or self.collective != "allreduce":
            return False
        return Promise.SAME_BITS in find(self.collective, self.choice)[0].promises

    @property
    def meaning(self) -> Hashable:
        """Algorithm and all parameters: two names may mean the same."""
        if self.choice is None:
            return None
        marked, parameters = find(self.collective, self.choice)
        return marked.name, str({**marked.defaults, **parameters})

    def bind(self, native: MPI.Intracomm, comm: Comm, problem: Problem) -> Callable[[], Any]:
        """The call, ready to be made."""
        arguments, keywords = problem.arguments()
        method = self.collective.capitalize()
        if self.choice is None:
            return partial(getattr(native, method), *arguments, **keywords)
        return partial(getattr(comm, method), *arguments, **keywords, algorithm=self.name)


def distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Leave out what is another name for one that came before."""
    first: dict[Hashable, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.meaning, candidate)
    return list(first.values())


def block_sizes(collective: str, elements: int, ranks: int) -> list[int]:
    """Elements per rank so that all ranks together have at least `elements`.

    Examples
    --------
    >>> block_sizes("allgather", 10, 4), block_sizes("gatherv", 10, 4), block_sizes("barrier", 1, 2)
    ([3, 3, 3, 3], [3, 3, 2, 2], [0, 0])
    """
    if collective == "barrier":
        return [0] * ranks
    if collective in EQUAL:
        return [-(-elements // ranks)] * ranks
    return [elements // ranks + (rank < elements % ranks) for rank in range(ranks)]


def uneven_sizes(collective: str, ranks: int) -> list[int]:
    """Few elements, an odd number on each rank or blocks of different sizes, some of them empty."""
    if collective in EQUAL or COLLECTIVES[collective].family not in (
        *("gather", "scatter", "allgather", "alltoall", "reduce_scatter"),
    ):
        return block_sizes(collective, 3 * ranks - (collective not in EQUAL), ranks)
    return [(5 * rank + 2) % 4 for rank in range(ranks)]


class Facts:
    """What decides which algorithms take a call, and which one collx takes by itself."""

    def __init__(self, problem: Problem, nodes: tuple[int, ...] = ()) -> None:
        ranks, row = len(problem.sizes), problem.row
        itemsize = problem.data.dtype.itemsize
        scale, cell = (1, itemsize) if row.combines else (itemsize, 1)
        shape = Shape(
            row.family,
            ranks,
            tuple(scale * count for count in problem.sizes),
            problem.root,
            problem.in_place,
            sizes_known=row.name not in ("gatherv", "scatterv", "alltoallv", "alltoallw"),
            cell_bytes=cell,
        )
        # The root tells, and any other rank.
        others = {problem.root, (problem.root + 1) % ranks}
        self.calls: list[Call] = [call_of(shape, rank) for rank in others]
        self.collective = problem.collective

    def take(self, marked: Algorithm) -> bool:
        """Whether an algorithm takes the call."""
        return not any(marked.unmet(call) for call in self.calls)

    def own(self) -> Candidate:
        """What collx chooses."""
        return Candidate(self.collective, decide(self.collective, self.calls[0], None).choice)


def choices(collective: str, wanted: Sequence[Choice]) -> Iterator[Choice]:
    """The choices that were asked for; by default all algorithms, then parameter values."""
    if wanted:
        yield from (choice for choice in wanted if _exists(collective, choice))
        return
    of_each = [list(marked.choices()) for marked in algorithms(collective).values()]
    yield from (some[0] for some in of_each)
    yield from (choice for some in of_each for choice in some[1:])


def _exists(collective: str, choice: Choice) -> bool:
    try:
        find(collective, choice)
    except ValueError:
        return False
    return True


def spread(items: Sequence[int]) -> list[int]:
    """Reorder so that every beginning is spread over all: first, middle, then farthest from those.

    Examples
    --------
    >>> spread([1, 2, 3, 4, 5, 6, 7])
    [1, 4, 7, 2, 3, 5, 6]
    """
    taken = list(dict.fromkeys([0, (len(items) - 1) // 2]))[: len(items)]
    while len(taken) < len(items):
        rest = [place for place in range(len(items)) if place not in taken]
        taken.append(max(rest, key=lambda place: min(abs(place - other) for other in taken)))
    return [items[place] for place in taken]
