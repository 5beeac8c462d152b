"""Collectives between two groups: every algorithm, every root, groups of different sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi4py import MPI
from reference import SENTINEL

import collx
from collx.collectives import COLLECTIVES
from collx.registry import NeedsError

WORLD = MPI.COMM_WORLD
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(WORLD.size < 2, reason="two groups need two ranks"),
]

NAMES = [row.name.removeprefix("inter_") for row in COLLECTIVES.values() if row.inter]
NAMES.remove("barrier")
LOWS = sorted({1, WORLD.size // 2, WORLD.size - 1} - {0})
"""How many ranks the first group has: those with the lowest ranks in `COMM_WORLD`."""


class Groups(NamedTuple):
    """An inter-communicator, and the ranks in `COMM_WORLD` of both its groups."""

    comm: Any
    ours: range
    theirs: range

    def root(self, root: int) -> int:
        """How this rank names a root."""
        if root in self.ours:
            return MPI.ROOT if root == WORLD.rank else MPI.PROC_NULL
        return self.theirs.index(root)


@pytest.fixture(scope="module", params=LOWS, ids=lambda low: f"{low}+{WORLD.size - low}")
def groups(request: pytest.FixtureRequest) -> Iterator[Groups]:
    low, size = request.param, WORLD.size
    sides = [range(low), range(low, size)]
    ours, theirs = sides if WORLD.rank < low else sides[::-1]
    local = collx.Comm(WORLD).Split(ours.start)
    comm = local.Create_intercomm(0, WORLD, theirs.start)
    yield Groups(comm, ours, theirs)
    comm.Free()
    local.Free()


class Problem:
    """One collective: the blocks of all ranks, what each rank passes, and what it must get."""

    def __init__(self, name: str, groups: Groups, scale: int, root: int = 0) -> None:
        self.name, self.groups, self.scale, self.root = name, groups, scale, root
        self.row = COLLECTIVES[f"inter_{name}"]
        self.opposite = root in groups.theirs
        self.at_root = WORLD.rank == root

    def cells(self, source: int, to: int = 0) -> int:
        """Elements that go from one rank to another; equal ones differ between the directions."""
        if self.name.startswith("alltoall") and self.name[-1] in "vw":
            return (5 * source + 3 * to) % 4 * self.scale
        if self.name[-1] == "v":
            return 5 * source % 4 * self.scale
        ours, theirs = self.groups.ours, self.groups.theirs
        return self.scale * (1 if (ours if ours.start == 0 else theirs).stop > source else 2)

    def counts(self, group: range) -> list[int]:
        """Elements of the result that the ranks of a group get in a reduce-scatter."""
        total = self.scale * len(self.groups.ours) * len(self.groups.theirs)
        counts = [total // len(group)] * len(group)
        if self.name == "reduce_scatter" and len(group) > 1:
            counts[0], counts[-1] = counts[0] + counts[-1], 0
        return counts

    def data(self, rank: int) -> list[np.ndarray]:
        """What a rank gives, in blocks."""
        dice = np.random.default_rng([rank, self.scale])
        others = self.groups.theirs if rank in self.groups.ours else self.groups.ours
        match self.name:
            case "bcast" | "reduce" | "allreduce":
                sizes = [3 * self.scale]
            case "reduce_scatter" | "reduce_scatter_block":
                sizes = [sum(self.counts(self.groups.ours))]
            case "scatter" | "scatterv":
                sizes = [self.cells(to) for to in others]
            case "gather" | "gatherv" | "allgather" | "allgatherv":
                sizes = [self.cells(rank)]
            case _:
                sizes = [self.cells(rank, to) for to in others]
        return [dice.integers(-1000, 1000, size) for size in sizes]

    def want(self) -> list[np.ndarray] | None:
        """What this rank gets, in blocks; None if nothing."""
        ours, theirs = self.groups.ours, self.groups.theirs
        me = ours.index(WORLD.rank)
        if self.row.rooted and not (self.opposite if self.from_root else self.at_root):
            return None
        match self.name:
            case "bcast":
                return self.data(self.root)
            case "scatter" | "scatterv":
                return [self.data(self.root)[me]]
            case "gather" | "gatherv" | "allgather" | "allgatherv":
                return [self.data(q)[0] for q in theirs]
            case "alltoall" | "alltoallv" | "alltoallw":
                return [self.data(q)[me] for q in theirs]
        total = reduce(np.add, [self.data(q)[0] for q in theirs])
        if self.name in ("reduce", "allreduce"):
            return [total]
        return [np.split(total, np.cumsum(self.counts(ours))[:-1])[me]]

    @property
    def from_root(self) -> bool:
        return self.name in ("bcast", "scatter", "scatterv")

    def call(self, comm: Any, **keywords: object) -> np.ndarray | None:
        """Make the call; what this rank got."""
        gives = not self.row.rooted or (self.at_root if self.from_root else self.opposite)
        send, want = self.data(WORLD.rank), self.want()
        sent = np.concatenate(send)
        got = None if want is None else np.full(sum(map(len, want)), SENTINEL)
        specs = [self.spec(sent, send) if gives else None, self.spec(got, want)]
        if self.name == "bcast":
            specs = [sent if gives else got]
        elif self.name == "reduce_scatter":
            specs.append(self.counts(self.groups.ours))
        if self.row.rooted:
            keywords["root"] = self.groups.root(self.root)
        kept = sent.copy()
        getattr(comm, self.name.capitalize())(*specs, **keywords)
        np.testing.assert_array_equal(sent, kept, err_msg="the send buffer was changed")
        return got

    def spec(self, buffer: np.ndarray | None, blocks: Sequence[np.ndarray] | None) -> Any:
        if buffer is None or blocks is None:
            return None
        counts = list(map(len, blocks))
        if self.name == "alltoallw":
            starts = [8 * sum(counts[:i]) for i in range(len(counts))]
            return [buffer, counts, starts, [MPI.INT64_T] * len(counts)]
        return [buffer, counts] if self.name[-1] == "v" and len(blocks) > 1 else buffer


def roots(name: str, groups: Groups) -> list[int]:
    if not COLLECTIVES[f"inter_{name}"].rooted:
        return [0]
    if WORLD.size <= 5:
        return [*range(WORLD.size)]
    return sorted({0, max(groups.ours.start, groups.theirs.start), WORLD.size - 1})


def choices(name: str) -> Iterator[dict[str, str]]:
    """No choice, and all algorithms with default and declared parameters."""
    yield {}
    for algorithm in collx.available(f"inter_{name}").values():
        yield from ({"algorithm": str(choice)} for choice in algorithm.choices())


def check(problem: Problem, comm: Any, **keywords: str) -> None:
    want = problem.want()
    got = problem.call(comm, **keywords)
    if want is not None:
        what = f"{problem.name} {keywords} scale {problem.scale} root {problem.root}"
        np.testing.assert_array_equal(got, np.concatenate(want), err_msg=what)


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_gives_what_numpy_gives(groups: Groups, name: str) -> None:
    for scale in (0, 1, 300):
        for root in roots(name, groups):
            problem = Problem(name, groups, scale, root)
            for choice in choices(name):
                for _ in range(2):  # the second call finds the plan of the first
                    with suppress(NeedsError):
                        check(problem, groups.comm, **choice)


@pytest.mark.parametrize("name", NAMES)
def test_native_collective_gives_what_numpy_gives(groups: Groups, name: str) -> None:
    native = MPI.Intercomm(groups.comm)
    for scale in (1, 300):
        for root in roots(name, groups):
            check(Problem(name, groups, scale, root), native)


def test_no_rank_leaves_a_barrier_before_the_other_group_has_entered(groups: Groups) -> None:
    window = MPI.Win.Allocate(16, 8, comm=WORLD)
    entered = np.frombuffer(window, np.int64)
    mine, other = (0, 1) if groups.ours.start == 0 else (1, 0)
    for choice in choices("barrier"):
        window.Fence()
        entered[:] = 0
        window.Fence()
        window.Lock(0)
        window.Accumulate(np.ones(1, np.int64), 0, mine)
        window.Unlock(0)
        groups.comm.Barrier(**choice)
        count = np.zeros(1, np.int64)
        window.Lock(0)
        window.Get(count, 0, other)
        window.Unlock(0)
        assert count[0] == len(groups.theirs), choice
    window.Free()


def _matrix_product(left: MPI.buffer, right: MPI.buffer, datatype: MPI.Datatype) -> None:
    a = np.frombuffer(left, np.int64).reshape(-1, 2, 2)
    b = np.frombuffer(right, np.int64).reshape(-1, 2, 2)
    b[:] = a @ b


@pytest.mark.parametrize("name", ["reduce", "allreduce", "reduce_scatter_block"])
def test_operands_keep_the_order_of_ranks(groups: Groups, name: str) -> None:
    op = MPI.Op.Create(_matrix_product, commute=False)
    datatype = MPI.INT64_T.Create_contiguous(4).Commit()
    blocks = len(groups.ours) * len(groups.theirs)
    data = np.random.default_rng(5).integers(-1, 2, (WORLD.size, blocks, 2, 2))
    want = reduce(np.matmul, [data[q] for q in groups.theirs])
    if name == "reduce_scatter_block":
        want = np.split(want, len(groups.ours))[groups.ours.index(WORLD.rank)]
    for root in roots(name, groups):
        keywords: dict[str, Any] = {"root": groups.root(root)} if name == "reduce" else {}
        for choice in choices(name):
            got = np.zeros_like(want)
            try:
                getattr(groups.comm, name.capitalize())(
                    [data[WORLD.rank].copy(), datatype], [got, datatype], op, **keywords, **choice
                )
            except NeedsError:
                continue
            if name != "reduce" or root == WORLD.rank:
                np.testing.assert_array_equal(got, want, err_msg=f"{choice} root {root}")
    op.Free()
    datatype.Free()


def test_types_with_gaps(groups: Groups) -> None:
    datatype = MPI.INT64_T.Create_vector(2, 1, 2).Commit()
    for root in roots("bcast", groups):
        for choice in choices("bcast"):
            buffer = np.full(3, SENTINEL if root in groups.theirs else root)
            groups.comm.Bcast([buffer, 1, datatype], groups.root(root), **choice)
            if root in groups.theirs:
                assert buffer.tolist() == [root, SENTINEL, root], choice
    datatype.Free()


def test_arguments_that_are_not_significant_are_not_looked_at(groups: Groups) -> None:
    for root in range(WORLD.size):
        name, mine = groups.root(root), np.full(2, WORLD.rank)
        everything = np.zeros((len(groups.theirs), 2), int)
        groups.comm.Gather(
            mine if root in groups.theirs else "no buffer",
            everything if root == WORLD.rank else "no buffer",
            name,
        )
        if root == WORLD.rank:
            assert everything[:, 1].tolist() == [*groups.theirs]
        groups.comm.Reduce(mine if root in groups.theirs else None, mine.copy(), root=name)
        groups.comm.Bcast("no buffer" if name == MPI.PROC_NULL else mine, name)
        assert mine[0] == (root if root in groups.theirs else WORLD.rank)


def test_wrong_calls_are_refused(groups: Groups) -> None:
    comm, one = groups.comm, np.zeros(1)
    with pytest.raises(MPI.Exception, match="nor one of the") as error:
        comm.Bcast(one, len(groups.theirs))
    assert error.value.Get_error_class() == MPI.ERR_ROOT
    with pytest.raises(MPI.Exception, match=r"no MPI\.IN_PLACE"):
        comm.Allreduce(MPI.IN_PLACE, one)
    with pytest.raises(ValueError, match="there are: "):
        comm.Allreduce(one, np.zeros(1), algorithm="no_such")
    with pytest.raises(ValueError, match="needs recvcounts"):
        comm.Reduce_scatter(one, np.zeros(1))
    with pytest.raises(ValueError, match="mismatch in send count 1 and receive count 2"):
        comm.Allreduce(one, np.zeros(2))
    with pytest.raises(ValueError, match="mismatch in send count 1 and sum"):
        comm.Reduce_scatter(one, one.copy(), [2] * len(groups.ours))
    assert not hasattr(comm, "Scan")
    assert not hasattr(comm, "Exscan")
    comm.Barrier()


def test_what_is_made_from_it_is_wrapped(groups: Groups) -> None:
    merged = groups.comm.Merge(groups.ours.start > 0)
    assert isinstance(merged, collx.Comm)
    assert not merged.Is_inter()
    total = np.zeros(1)
    merged.Allreduce(np.ones(1), total)
    assert total[0] == WORLD.size
    copy = groups.comm.Dup()
    assert isinstance(copy, collx.Comm)
    assert copy.Is_inter()
    copy.Allreduce(np.ones(1), total)
    assert total[0] == len(groups.theirs)
    copy.Free()
    merged.Free()


def test_choices_come_from_settings_too(groups: Groups) -> None:
    comm, one, total = groups.comm, np.ones(1), np.zeros(1)
    assert "built-in rule" in collx.explain(comm, "Allreduce", one, total)
    with collx.using(inter_allreduce="reduce_exchange_bcast(reduce=linear)"):
        assert "(reduce=linear)" in collx.explain(comm, "allreduce", one, total)
        comm.Allreduce(one, total)
    with collx.using(allreduce="ring"):  # is about intra-communicators
        assert "ring" not in collx.explain(comm, "allreduce", one, total)
    with collx.using(reproducible=True):
        comm.Allreduce(one, total)
    assert total[0] == len(groups.theirs)


def test_check_mode(groups: Groups) -> None:
    with collx.using(check=True):
        for name in NAMES:
            for root in roots(name, groups):
                check(Problem(name, groups, 1, root), groups.comm)
        groups.comm.Barrier()
        wrong = np.zeros(2 if WORLD.rank == 0 else 3)
        with pytest.raises(MPI.Exception, match="sends 16 bytes to rank"):
            groups.comm.Bcast(wrong, groups.root(0))


def test_both_directions_in_turn_do_not_mix(groups: Groups) -> None:
    for k in range(40):
        root = k % WORLD.size
        buffer = np.full(2, k if WORLD.rank == root else -1)
        groups.comm.Bcast(buffer, groups.root(root))
        assert (buffer == (k if WORLD.rank == root or root in groups.theirs else -1)).all()
        total = np.zeros(3)
        groups.comm.Allreduce(np.full(3, float(k)), total)
        assert (total == k * len(groups.theirs)).all()
