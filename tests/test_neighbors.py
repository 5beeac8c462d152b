"""Neighbourhood collectives on grids and graphs, against what MPI defines and the native ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi4py import MPI

import collx
from collx.collectives import COLLECTIVES

pytestmark = pytest.mark.mpi

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
NAMES = [name for name, row in COLLECTIVES.items() if row.sparse]
SENTINEL = -99


class Topology(NamedTuple):
    """A communicator to make, and for each rank from where each block of its output comes.

    An arrival is (rank, block): what that rank has for its neighbour number `block`; None where
    there is no neighbour.
    """

    make: Callable[[], MPI.Topocomm]
    arrivals: list[list[tuple[int, int] | None]]
    targets: list[list[int | None]]


def grid(dims: list[int], periods: list[bool]) -> Topology:
    """What is sent to the upper side comes from the lower side, dimension by dimension."""
    ranks = np.arange(SIZE).reshape(dims)
    places = list(product(*map(range, dims)))
    lower_upper = [
        [
            rank_at(ranks, place, dimension, step, periods)
            for dimension, step in product(range(len(dims)), (-1, 1))
        ]
        for place in places
    ]
    arrivals = [
        [None if q is None else (q, slot + 1 if slot % 2 == 0 else slot - 1)
         for slot, q in enumerate(sides)]
        for sides in lower_upper
    ]  # fmt: skip
    return Topology(lambda: WORLD.Create_cart(dims, periods), arrivals, lower_upper)


def rank_at(
    ranks: np.ndarray, place: tuple[int, ...], dimension: int, step: int, periods: list[bool]
) -> int | None:
    moved = list(place)
    moved[dimension] += step
    if not periods[dimension] and not 0 <= moved[dimension] < ranks.shape[dimension]:
        return None
    moved[dimension] %= ranks.shape[dimension]
    return int(ranks[tuple(moved)])


def listed(sources: list[list[int]], targets: list[list[int]], make: Any) -> Topology:
    """The k-th edge from a rank is the k-th edge of that rank to here."""

    def slot(source: int, rank: int, k: int) -> int:
        return [slot for slot, to in enumerate(targets[source]) if to == rank][k]

    arrivals = [
        [(q, slot(q, rank, ranks[:i].count(q))) for i, q in enumerate(ranks)]
        for rank, ranks in enumerate(sources)
    ]
    return Topology(make, arrivals, targets)


def graph(neighbors: list[list[int]]) -> Topology:
    index = np.cumsum([len(ranks) for ranks in neighbors]).tolist()
    edges = [rank for ranks in neighbors for rank in ranks]
    return listed(neighbors, neighbors, lambda: WORLD.Create_graph(index, edges))


def distributed(pairs: list[tuple[int, int]], seed: int = 0) -> Topology:
    dice = random.Random(seed)
    sources: list[list[int]] = [[] for _ in range(SIZE)]
    targets: list[list[int]] = [[] for _ in range(SIZE)]
    for source, target in pairs:
        sources[target].append(source)
        targets[source].append(target)
    for ranks in sources + targets:
        dice.shuffle(ranks)
    make = lambda: WORLD.Create_dist_graph_adjacent(sources[RANK], targets[RANK])  # noqa: E731
    return listed(sources, targets, make)


def random_pairs(edges: int, seed: int) -> list[tuple[int, int]]:
    dice = random.Random(seed)
    pairs = [(dice.randrange(SIZE), dice.randrange(SIZE)) for _ in range(edges)]
    return pairs + pairs[:3]


DIMS = [MPI.Compute_dims(SIZE, d) for d in (1, 2, 3)]
RING = [[(r - 1) % SIZE, (r + 1) % SIZE, r, r] for r in range(SIZE)]
MOORE = [
    (r, int(np.ravel_multi_index(np.add(np.unravel_index(r, DIMS[1]), step), DIMS[1], "wrap")))
    for r in range(SIZE)
    for step in product((-1, 0, 1), repeat=2)
]
TOPOLOGIES = {
    "ring": grid(DIMS[0], [True]),
    "line": grid(DIMS[0], [False]),
    "torus": grid(DIMS[1], [True, True]),
    "mesh": grid(DIMS[1], [False, False]),
    "flat": grid([1, SIZE], [True, False]),
    "pipe": grid(DIMS[2], [True, False, True]),
    "graph": graph(RING),
    "no-edges": distributed([]),
    "star": distributed([(0, q) for q in range(SIZE)]),
    "reverse-star": distributed([(q, SIZE - 1) for q in range(SIZE - 1)]),
    "sparse": distributed(random_pairs(SIZE, seed=1), seed=2),
    "dense": distributed(random_pairs(3 * SIZE, seed=3), seed=4),
    "moore": distributed(MOORE),
}


def block(rank: int, slot: int, count: int) -> np.ndarray:
    return 100_000 * rank + 1000 * slot + np.arange(count)


class Case(NamedTuple):
    """How many elements travel: in the block for each target of each rank.

    `empty` is the datatype of blocks without elements, where each block has its own.
    """

    name: str
    topology: Topology
    scale: int
    empty: MPI.Datatype = MPI.DATATYPE_NULL

    def count(self, rank: int, slot: int) -> int:
        if self.name in ("neighbor_allgather", "neighbor_alltoall"):
            return self.scale
        slot = 0 if self.name == "neighbor_allgatherv" else slot
        return self.scale * ((3 * rank + 5 * slot + 1) % 4)

    def sent(self) -> list[np.ndarray]:
        """The blocks of this rank."""
        if "allgather" in self.name:
            return [block(RANK, 0, self.count(RANK, 0))]
        slots = enumerate(self.topology.targets[RANK])
        return [block(RANK, slot, self.filled(q, self.count(RANK, slot))) for slot, q in slots]

    def received(self) -> list[np.ndarray]:
        """The blocks that must arrive; where nothing does, what was there."""
        blocks = []
        for arrival in self.topology.arrivals[RANK]:
            q, slot = arrival or (0, 0)
            slot = 0 if "allgather" in self.name else slot
            count = self.filled(arrival, self.count(q, slot))
            blocks.append(block(q, slot, count) if arrival else np.full(count, SENTINEL))
        return blocks

    def filled(self, neighbor: object, count: int) -> int:
        """A block without neighbour has a size of its own where it may."""
        equal = self.name in ("neighbor_allgather", "neighbor_alltoall")
        return count if neighbor is not None or equal else 2


class Plain:
    """Blocks one after the other."""

    def __init__(self, blocks: list[np.ndarray]) -> None:
        self.array = np.concatenate([np.empty(0, np.int64), *blocks])

    def spec(self, case: Case) -> object:
        return self.array


class Counted(Plain):
    """The same with counts for v and w, and for the others with a count."""

    def __init__(self, blocks: list[np.ndarray]) -> None:
        super().__init__(blocks)
        self.counts = [len(block) for block in blocks]

    def spec(self, case: Case) -> object:
        if case.name.endswith("v") and (self.counts or "allgather" not in case.name):
            return [self.array, self.counts, MPI.INT64_T]
        return [self.array, case.scale, MPI.INT64_T]


class Apart:
    """Blocks in reverse order, each followed by an element that nobody may touch."""

    def __init__(self, blocks: list[np.ndarray]) -> None:
        gap, end = np.full(1, SENTINEL - 1), 1
        parts, self.places = [gap], []
        for block in reversed(blocks):
            self.places.insert(0, end)
            parts += [block, gap]
            end += len(block) + 1
        self.array = np.concatenate(parts)
        self.counts = [len(block) for block in blocks]

    def spec(self, case: Case) -> object:
        if not case.name.endswith("w"):
            return [self.array, (self.counts, self.places), MPI.INT64_T]
        starts = [8 * place for place in self.places]
        types = [MPI.INT64_T if count else case.empty for count in self.counts]
        return [self.array, (self.counts, starts), types]


PAIRS = MPI.INT64_T.Create_vector(2, 1, 2).Commit()


class Derived:
    """Elements of two integers with a gap between them, block after block."""

    def __init__(self, blocks: list[np.ndarray]) -> None:
        values = np.concatenate([np.empty(0, np.int64), *blocks])
        self.array = np.full((len(values), 3), SENTINEL)
        self.array[:, 0], self.array[:, 2] = values, values
        self.counts = [len(block) for block in blocks]

    def spec(self, case: Case) -> object:
        starts = np.cumsum([0, *self.counts])[:-1]
        if case.name.endswith("w"):
            types = [PAIRS] * len(starts)
            return [self.array, self.counts, [24 * start for start in starts], types]
        if case.name.endswith("v"):
            return [self.array, (self.counts, starts.tolist()), PAIRS]
        return [self.array, case.scale, PAIRS]


def forms(name: str) -> Iterator[tuple[type, type]]:
    """How the data lie on the side of the input and of the output."""
    if name == "neighbor_allgatherv":
        yield from ((Plain, Counted), (Plain, Apart))
    elif name.endswith("v"):
        yield from ((Counted, Counted), (Apart, Apart), (Derived, Derived))
    elif name.endswith("w"):
        yield from ((Apart, Apart), (Derived, Derived))
    else:
        yield from ((Plain, Plain), (Counted, Counted), (Derived, Derived))


def choices(name: str) -> Iterator[str]:
    for marked in collx.available(name).values():
        yield from map(str, marked.choices())


def attempt(comm: MPI.Topocomm, case: Case, pair: tuple[type, type], **keywords: Any) -> None:
    """Call the collective once, and look at all of both buffers."""
    send, kept = pair[0](case.sent()), pair[0](case.sent())
    recv = pair[1]([np.full(len(each), SENTINEL) for each in case.received()])
    want = pair[1](case.received())
    getattr(comm, case.name.capitalize())(send.spec(case), recv.spec(case), **keywords)
    what = f"{case.name} {keywords} {[form.__name__ for form in pair]} scale {case.scale}"
    np.testing.assert_array_equal(recv.array, want.array, err_msg=what)
    np.testing.assert_array_equal(send.array, kept.array, err_msg=what)


@pytest.fixture(params=TOPOLOGIES)
def topology(request, monkeypatch) -> Iterator[tuple[Topology, MPI.Topocomm, collx.Comm]]:
    nodes = "/".join(str(rank % 3) for rank in range(SIZE))
    monkeypatch.setenv("COLLX_NODES", nodes if SIZE > 1 else "1")
    native = TOPOLOGIES[request.param].make()
    yield TOPOLOGIES[request.param], native, collx.Comm(native)
    native.Free()


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_gives_what_mpi_defines(topology, name) -> None:
    shape, native, comm = topology
    *simple, hardest = forms(name)
    for choice in choices(name):
        attempt(comm, Case(name, shape, 1), hardest, algorithm=choice)
    for scale, pair in [*product([1], simple), (150, hardest), (0, hardest)]:
        case = Case(name, shape, scale)
        if pair != (Plain, Plain):  # Open MPI cannot do without a count
            attempt(native, case._replace(empty=MPI.INT64_T), pair)  # nor with the null type
        for algorithm in collx.available(name):
            attempt(comm, case, pair, algorithm=algorithm)
        for _ in range(2):  # the second call finds the plan of the first
            attempt(comm, case, pair)


@pytest.mark.parametrize("topology", ["mesh", "graph", "sparse"], indirect=True)
def test_duplicates_have_the_same_neighbors(topology) -> None:
    shape, _, comm = topology
    duplicate = comm.Dup()

    assert type(duplicate) is type(comm)
    attempt(duplicate, Case("neighbor_alltoall", shape, 2), (Plain, Plain))
    duplicate.Free()


@pytest.mark.parametrize("topology", ["torus", "star"], indirect=True)
def test_in_place_is_refused(topology) -> None:
    _, _, comm = topology
    for name in NAMES:
        for buffers in ((MPI.IN_PLACE, np.zeros(4)), (np.zeros(4), MPI.IN_PLACE)):
            with pytest.raises(MPI.Exception, match="does not take") as error:
                getattr(comm, name.capitalize())(*buffers)
            assert error.value.Get_error_class() == MPI.ERR_BUFFER


@pytest.mark.parametrize("name", ["neighbor_allgather", "neighbor_alltoall"])
def test_a_rank_without_targets_need_not_know_how_much_the_others_send(name) -> None:
    """Everybody but rank 0 sends there; rank 0 has nothing to send, the others nothing to get."""
    pairs = [(q, 0) for q in range(1, SIZE)]
    comm = collx.Comm(distributed(pairs).make())
    mine = np.full(5 if RANK else 0, RANK)
    everything = np.full(0 if RANK else 5 * (SIZE - 1), SENTINEL)
    for algorithm in (None, *collx.available(name)):
        getattr(comm, name.capitalize())(mine, everything, algorithm=algorithm)
        if RANK == 0:
            assert sorted(everything) == [q for q in range(1, SIZE) for _ in range(5)]
    comm.Free()


def test_ranks_without_neighbors_pass_on_blocks_whose_size_they_cannot_know() -> None:
    """Only the first and the last rank are neighbours; their blocks may travel over the others."""
    ends = {0: SIZE - 1, SIZE - 1: 0}
    targets = [ends[RANK]] if RANK in ends else []
    comm = collx.Comm(WORLD.Create_dist_graph_adjacent(targets, targets))
    mine, theirs = (np.arange(3) + RANK, np.zeros(3, int)) if targets else (None, None)
    for algorithm in ("combining", "combining(dims=(2, 2))", "distance_halving"):
        comm.Neighbor_alltoall(mine, theirs, algorithm=algorithm)
        if targets:
            np.testing.assert_array_equal(theirs, np.arange(3) + ends[RANK])
    comm.Free()


def test_check_mode_compares_blocks_along_edges() -> None:
    comm = collx.Comm(WORLD.Create_cart([SIZE], [True]))
    odd = RANK == SIZE - 1
    with collx.using(check=True):
        comm.Neighbor_alltoall(np.zeros(2), np.zeros(2))
        with pytest.raises(MPI.Exception, match="bytes"):
            comm.Neighbor_alltoall(np.zeros(2), np.zeros(4 if odd else 2))
    comm.Free()
