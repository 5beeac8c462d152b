"""Which shapes of call the verifier and the tests try for each algorithm and number of ranks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, cycle, islice, product
from typing import Any

from collx.collectives import COLLECTIVES, Shape, call_of
from collx.neighborhood import Neighborhood, with_graph
from collx.patterns.exchanges import grid_factors
from collx.patterns.neighbors import cartesian, coordinates, listed
from collx.registry import Algorithm, Need, parse_value

VECTORS = ("bcast", "reduce", "allreduce", "scan", "exscan",
           "inter_bcast", "inter_reduce", "inter_allreduce")  # fmt: skip
UNKNOWN_SIZES = ("gather", "scatter", "neighbor_allgather", "neighbor_alltoall", "inter_gather",
                 "inter_scatter", "inter_allgather", "inter_reduce_scatter")  # fmt: skip
IN_PLACE = ("gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "reduce_scatter",
            "scan", "exscan")  # fmt: skip
CELL_BYTES = 8
"""Bytes in a cell of a reduction here, so that a segment of 8 bytes is one cell."""


def sizes_to_try(family: str, size: int, thorough: bool) -> Iterator[tuple[int, ...]]:
    """Block sizes: few cells, none, fewer than ranks, unequal ones with zeros among them."""
    if family in ("barrier", "inter_barrier"):
        yield (0,) * size
    elif family in VECTORS:
        totals = {0, 1, size - 1, size, size + 1, 2 * size + 3} if thorough else {3, size + 1}
        for total in sorted(totals):
            yield tuple(total // size + (rank < total % size) for rank in range(size))
    else:
        yield (1,) * size
        if thorough:
            yield from ((0,) * size, (3,) * size)
        dice = random.Random(size)
        yield tuple(dice.choice((0, 0, 1, 2, 5)) for _ in range(size))


def roots_to_try(family: str, size: int, every_root: bool) -> tuple[int, ...]:
    """All roots, or the first, one in the middle and the last."""
    if not COLLECTIVES[family].rooted:
        return (0,)
    return tuple(range(size)) if every_root else tuple(sorted({0, size // 2, size - 1}))


def groups_to_try(family: str, size: int) -> tuple[int, ...]:
    """Ranks in the first group of an inter-communicator: one, half, most, all but one."""
    if not COLLECTIVES[family].inter:
        return (0,)
    return tuple(sorted({1, size // 2, 2 * size // 3, size - 1} & set(range(1, size))))


def balanced(sizes: tuple[int, ...], low: int) -> tuple[int, ...]:
    """Block sizes with the same sum in both groups of an inter-communicator.

    Examples
    --------
    >>> balanced((1, 1, 3, 1), 2)
    (1, 3, 3, 1)
    """
    less = sum(sizes[low:]) - sum(sizes[:low])
    changed = list(sizes)
    changed[low - 1] += max(less, 0)
    changed[-1] += max(-less, 0)
    return tuple(changed)


def nodes_to_try(algorithm: Algorithm, size: int) -> Iterator[tuple[int, ...]]:
    """Node maps for the algorithms that look at nodes: one node, even, uneven, interleaved."""
    yield ()
    if Need.NODE_MAP in algorithm.needs and size > 1:
        yield tuple(rank // 4 for rank in range(size))
        yield tuple(max(0, rank - size // 2) // 3 for rank in range(size))
        yield tuple(rank % 3 for rank in range(size))
        yield tuple(range(size))


def neighbors_to_try(family: str, size: int) -> Iterator[tuple[Neighborhood, ...]]:
    """Neighbourhoods of all ranks: everybody, random graphs, meshes and tori in 1 to 3 dimensions.

    Random graphs have repeated edges, loops and, if they are sparse, ranks without neighbours.
    """
    yield ()
    if COLLECTIVES[family].sparse:
        dice = random.Random(size)
        yield from (random_graph(size, edges, dice) for edges in (0, size, 4 * size))
        for periods in ((True,), (False,), (True, True), (False, True), (False, True, True)):
            dims = grid_factors(size, len(periods))[::-1]
            places = (coordinates(rank, dims) for rank in range(size))
            yield with_graph([cartesian(dims, periods, place) for place in places])


def random_graph(size: int, edges: int, dice: random.Random) -> tuple[Neighborhood, ...]:
    """Neighbourhoods in a random graph, some edges of which occur twice."""
    pairs = [(dice.randrange(size), dice.randrange(size)) for _ in range(edges)]
    pairs += pairs[: size // 2 + 1]
    sources: list[list[int]] = [[] for _ in range(size)]
    targets: list[list[int]] = [[] for _ in range(size)]
    for source, target in pairs:
        sources[target].append(source)
        targets[source].append(target)
    for ranks in sources:
        dice.shuffle(ranks)
    return with_graph(list(map(listed, sources, targets)))


def shapes(
    algorithm: Algorithm, size: int, *, thorough: bool = True, complete: bool = False
) -> Iterator[Shape]:
    """The shapes to try on `size` ranks: those that meet the needs of the algorithm.

    Every pair of two facts (this root and in place, these sizes and this node map, ...) occurs in
    some shape, where the needs allow it. Up to 4 ranks, or if `complete`, every combination of
    all facts does; on more than 20 ranks, every fact. With `thorough` all counts and, up to 9
    ranks, all roots; otherwise a few.
    """
    complete, together = complete or size <= 4, 2 if size <= 20 else 1
    family = algorithm.family
    row = COLLECTIVES[family]
    facts: tuple[Sequence[Any], ...] = (
        list(sizes_to_try(family, size, thorough)),
        roots_to_try(family, size, thorough and size <= 9),
        (False, True) if family in IN_PLACE else (False,),
        (True, False) if row.combines else (True,),
        (True, False) if family in UNKNOWN_SIZES else (True,),
        list(nodes_to_try(algorithm, size)),
        groups_to_try(family, size),
        list(neighbors_to_try(family, size)),
    )
    choices = list(product(*(range(len(values)) for values in facts)))
    random.Random(size).shuffle(choices)
    seen: set[tuple[tuple[int, int], ...]] = set()
    for choice in choices:
        new = set(combinations(enumerate(choice), together))
        if complete or not new <= seen:
            shape = _shape(family, size, *(v[i] for v, i in zip(facts, choice, strict=True)))
            if meets(algorithm, shape):
                seen |= new
                yield shape


def _shape(
    family: str,
    size: int,
    sizes: tuple[int, ...],
    root: int,
    in_place: bool,
    commutative: bool,
    sizes_known: bool,
    nodes: tuple[int, ...],
    low: int,
    neighbors: tuple[Neighborhood, ...],
) -> Shape:
    cell_bytes = CELL_BYTES if COLLECTIVES[family].combines else 1
    if family == "inter_reduce_scatter":
        sizes = balanced(sizes, low)
    facts = root, in_place, sizes_known, commutative, cell_bytes, nodes, low, neighbors
    return Shape(family, size, sizes, *facts)


def meets(algorithm: Algorithm, shape: Shape) -> bool:
    """Whether a shape meets the needs of an algorithm: the root, and any other rank, tells."""
    ranks = {shape.root, (shape.root + 1) % shape.size}
    return not any(algorithm.unmet(call_of(shape, rank)) for rank in ranks)


def parameters_to_try(algorithm: Algorithm) -> Iterator[dict[str, Any]]:
    """The defaults, then each declared value of each parameter; segments of one and three cells."""
    yield {}
    unit = CELL_BYTES if COLLECTIVES[algorithm.family].combines else 1
    for key, values in algorithm.values.items():
        tried = (unit, 3 * unit) if key == "segment" else values
        for value in tried:
            if value != algorithm.defaults[key]:
                yield {key: parse_value(value)}


def cases(
    algorithm: Algorithm, size: int, *, thorough: bool = True, complete: bool = False
) -> Iterator[tuple[Shape, dict[str, Any]]]:
    """The shapes to try, each with some of the parameters: all of them up to 4 ranks.

    On more ranks each shape comes with the defaults and with a part of the other parameters, in
    turn, so that each of them is tried too.
    """
    tried = list(shapes(algorithm, size, thorough=thorough, complete=complete))
    defaults, *others = parameters_to_try(algorithm)
    at_once = len(others)
    if size > 4 and tried and not complete:
        at_once = -(-len(others) // min(len(tried), 3))
    turn = cycle(others)
    for shape in tried:
        yield shape, defaults
        for parameters in islice(turn, at_once):
            yield shape, parameters
