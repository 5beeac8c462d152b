"""What there is to run: collectives, algorithms, sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from collx.bench.places import Place, base, call_name, fits, lower
from collx.bench.problems import Problem
from collx.choice import Choice
from collx.choose import RULES, decide
from collx.collectives import COLLECTIVES, Call, Shape, both_groups, call_of
from collx.registry import Algorithm, Promise, algorithms, find
from collx.shapes import balanced

USUAL = (
    *("allreduce", "bcast", "reduce", "allgather", "reduce_scatter_block", "gatherv", "barrier"),
    *("alltoall", "gather", "scatter", "scan", "exscan"),
)
"""What is measured unless all is asked for: each family, most used collectives first."""

EQUAL = ("gather", "scatter", "allgather", "alltoall", "reduce_scatter_block")
"""Collectives whose blocks are all equal, by the names they have on all ranks."""


def measurable() -> list[str]:
    """The collectives that have algorithms."""
    rows = COLLECTIVES.values()
    return [row.name for row in rows if row.family in RULES and algorithms(row.name)]


def fitting(collectives: Iterable[str], ranks: int) -> list[str]:
    """Those of some collectives that there are enough ranks for."""
    return [name for name in collectives if fits(name, ranks)]


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
        """Whether all ranks (of a group) must have bit for bit the same result."""
        if self.choice is None or base(self.collective) != "allreduce":
            return False
        return Promise.SAME_BITS in find(self.collective, self.choice)[0].promises

    @property
    def meaning(self) -> Hashable:
        """Algorithm and all parameters: two names may mean the same."""
        if self.choice is None:
            return None
        marked, parameters = find(self.collective, self.choice)
        return marked.name, str({**marked.defaults, **parameters})

    def bind(self, place: Place, problem: Problem) -> Callable[[], Any]:
        """The call, ready to be made."""
        arguments, keywords = problem.arguments()
        method = call_name(self.collective).capitalize()
        if self.choice is None:
            return partial(getattr(place.native, method), *arguments, **keywords)
        return partial(getattr(place.comm, method), *arguments, **keywords, algorithm=self.name)


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
    if base(collective) == "barrier":
        return [0] * ranks
    if COLLECTIVES[collective].family == "inter_reduce_scatter":
        return _halved(collective, -(-elements // 2), ranks)
    if _is_equal(collective):
        return [-(-elements // ranks)] * ranks
    return _parts(elements, ranks)


def _is_equal(collective: str) -> bool:
    """Whether all blocks are equal."""
    return call_name(collective).removeprefix("neighbor_") in EQUAL


def _parts(elements: int, ranks: int) -> list[int]:
    return [elements // ranks + (rank < elements % ranks) for rank in range(ranks)]


def _halved(collective: str, elements: int, ranks: int) -> list[int]:
    """Blocks that make a vector in each half of the ranks, with at least so many elements.

    Examples
    --------
    >>> _halved("inter_reduce_scatter", 3, 3), _halved("inter_reduce_scatter_block", 3, 3)
    ([3, 2, 1], [4, 2, 2])
    """
    first = lower(ranks)
    multiple = math.lcm(first, ranks - first) if _is_equal(collective) else 1
    total = -(-elements // multiple) * multiple
    return _parts(total, first) + _parts(total, ranks - first)


def uneven_sizes(collective: str, ranks: int) -> list[int]:
    """Few elements, an odd number on each rank or blocks of different sizes, some of them empty."""
    equal = _is_equal(collective)
    if equal or base(collective) not in (
        *("gather", "scatter", "allgather", "alltoall", "reduce_scatter"),
    ):
        return block_sizes(collective, 3 * ranks - (not equal), ranks)
    sizes = tuple((5 * rank + 2) % 4 for rank in range(ranks))
    halved = COLLECTIVES[collective].family == "inter_reduce_scatter"
    return list(balanced(sizes, lower(ranks)) if halved else sizes)


class Facts:
    """What decides which algorithms take a call, and which one collx takes by itself."""

    def __init__(self, problem: Problem) -> None:
        itemsize = problem.data.dtype.itemsize
        scale, cell = (1, itemsize) if problem.row.combines else (itemsize, 1)
        sizes = tuple(scale * count for count in _given(problem.shape))
        shape = replace(problem.shape, sizes=sizes, cell_bytes=cell)
        # The root tells, and any other rank that it exchanges data with.
        others = both_groups(shape.root, shape.size, shape.low)[1] or range(shape.size)
        ranks = dict.fromkeys([shape.root, next((q for q in others if q != shape.root), 0)])
        self.calls: list[Call] = [call_of(shape, rank) for rank in ranks]
        self.collective = problem.collective

    def take(self, marked: Algorithm) -> bool:
        """Whether an algorithm takes the call."""
        return not any(marked.unmet(call) for call in self.calls)

    def own(self) -> Candidate:
        """What collx chooses."""
        return Candidate(self.collective, decide(self.collective, self.calls[0], None).choice)


def _given(shape: Shape) -> Sequence[int]:
    """The blocks, those left out that a collective with a root leaves where they are."""
    if shape.collective not in ("inter_gather", "inter_scatter"):
        return shape.sizes
    remote = both_groups(shape.root, shape.size, shape.low)[1]
    return [size * (rank in remote) for rank, size in enumerate(shape.sizes)]


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
