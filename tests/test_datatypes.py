"""Datatypes of every shape: gaps, bounds, order, no size, absolute addresses; and large counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mpi4py import MPI

import collx
from collx import engine
from collx.registry import NeedsError

pytestmark = pytest.mark.mpi

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
INT = MPI.INT64_T
GUARD = -7


@pytest.fixture(scope="module")
def comm() -> collx.Comm:
    return collx.Comm(MPI.COMM_WORLD)


def datatypes() -> Iterator[tuple[str, MPI.Datatype, int, list[int]]]:
    """Name, datatype, its extent in integers, and where in an element its integers are."""
    yield "contiguous", INT.Create_contiguous(2), 2, [0, 1]
    yield "gap", INT.Create_vector(2, 1, 2), 3, [0, 2]
    yield "resized", INT.Create_vector(2, 1, 2).Create_resized(0, 40), 5, [0, 2]
    yield "backwards", INT.Create_hindexed([1, 1], [8, 0]), 2, [1, 0]
    yield "lower bound", INT.Create_hindexed([1, 1], [8, 24]).Create_resized(-8, 40), 5, [1, 3]
    yield "struct", MPI.Datatype.Create_struct([1, 1], [0, 16], [INT, INT]), 3, [0, 2]


TYPES = {name: (datatype.Commit(), *rest) for name, datatype, *rest in datatypes()}


def write(name: str, values: np.ndarray, margin: int = 2) -> tuple[np.ndarray, int]:
    """A guarded buffer with the elements of `values` (two columns), and the index of the first."""
    _, extent, places = TYPES[name]
    buffer = np.full(margin * 2 + extent * len(values) + 4, GUARD)
    for i, row in enumerate(values):
        for place, value in zip(places, row, strict=True):
            buffer[margin + i * extent + place] = value
    return buffer, margin


def read(name: str, buffer: np.ndarray, start: int, count: int) -> np.ndarray:
    """The elements in the buffer; everything between and around them must be untouched."""
    _, extent, places = TYPES[name]
    at = np.array([[start + i * extent + place for place in places] for i in range(count)], int)
    rest = np.delete(buffer, at.ravel())
    assert (rest == GUARD).all(), f"{name}: bytes outside the data were written"
    return buffer[at.ravel()].reshape(count, 2)


def spec(name: str, buffer: np.ndarray, start: int, *count: object) -> list[object]:
    return [buffer[start:], *count, TYPES[name][0]]


def choices(name: str) -> Iterator[dict[str, str]]:
    yield {}
    yield from ({"algorithm": algorithm} for algorithm in collx.available(name))


def values(rank: int, count: int) -> np.ndarray:
    return 1000 * rank + np.arange(2 * count).reshape(count, 2)


@pytest.mark.parametrize("theirs", TYPES)
@pytest.mark.parametrize("mine", TYPES)
def test_ranks_may_describe_the_same_data_by_different_types(comm, mine, theirs) -> None:
    count, name = 3, mine if RANK % 2 == 0 else theirs
    for keywords in choices("bcast"):
        full = values(0, count) if RANK == 0 else np.zeros((count, 2), int)
        buffer, start = write(name, full)
        comm.Bcast(spec(name, buffer, start, count), **keywords)
        np.testing.assert_array_equal(read(name, buffer, start, count), values(0, count))
    want = np.concatenate([values(rank, count) for rank in range(SIZE)])
    for keywords in choices("allgather"):
        sent, at = write(mine, values(RANK, count))
        received, start = write(name, np.full((SIZE * count, 2), -1))
        try:
            comm.Allgather(
                spec(mine, sent, at, count), spec(name, received, start, count), **keywords
            )
        except NeedsError:
            continue
        np.testing.assert_array_equal(read(name, received, start, SIZE * count), want)


def test_the_same_bytes_as_elements_or_as_one_type(comm) -> None:
    whole = MPI.INT32_T.Create_contiguous(12).Commit()
    for keywords in choices("bcast"):
        buffer = np.arange(12, dtype="i4") if RANK == 0 else np.zeros(12, "i4")
        comm.Bcast([buffer, 12, MPI.INT32_T] if RANK % 2 else [buffer, 1, whole], **keywords)
        np.testing.assert_array_equal(buffer, np.arange(12))
    whole.Free()


def test_types_without_size_send_nothing(comm) -> None:
    empty = INT.Create_contiguous(0).Commit()
    dummy = np.zeros(8, int)
    for root in range(SIZE):
        at_root = root == RANK
        comm.Scatterv([dummy, [5] * SIZE, [0] * SIZE, empty] if at_root else None,
                      [dummy, 0, INT], root)  # fmt: skip
        comm.Gatherv([dummy, 0, INT],
                     [dummy, [7] * SIZE, [0] * SIZE, empty] if at_root else None, root)  # fmt: skip
        comm.Bcast([dummy, 3, empty], root)
    empty.Free()


def test_absolute_addresses(comm) -> None:
    a, b = np.full(2, RANK), np.full(3, 10 * RANK)
    addresses = [MPI.Get_address(a), MPI.Get_address(b)]
    where = MPI.Datatype.Create_struct([2, 3], addresses, [INT, INT]).Commit()
    for root in range(SIZE):
        a[:], b[:] = RANK, 10 * RANK
        comm.Bcast([MPI.BOTTOM, 1, where], root)
        assert (a == root).all()
        assert (b == 10 * root).all()
    everything = np.zeros((SIZE, 5), int)
    comm.Allgather([MPI.BOTTOM, 1, where], [everything, 5, INT])
    last = SIZE - 1
    assert (everything == [last, last, 10 * last, 10 * last, 10 * last]).all()
    where.Free()


def test_alltoallw_displacements_are_bytes_and_types_are_by_pair(comm) -> None:
    names = list(TYPES)
    kinds = [names[(RANK + rank) % len(names)] for rank in range(SIZE)]
    count = 2
    sent, offsets, types, at = [], [], [], 0
    for rank, name in enumerate(kinds):
        buffer, start = write(name, values(100 * RANK + rank, count))
        sent.append(buffer)
        offsets.append(8 * (at + start))
        types.append(TYPES[name][0])
        at += len(buffer)
    received = [write(name, np.full((count, 2), -1))[0] for name in kinds]
    for keywords in choices("alltoallw"):
        whole = np.concatenate(received)
        try:
            comm.Alltoallw(
                [np.concatenate(sent), [count] * SIZE, offsets, types],
                [whole, [count] * SIZE, offsets, types],
                **keywords,
            )
        except NeedsError:
            continue
        pieces = np.split(whole, np.cumsum([len(each) for each in received])[:-1])
        for rank, (name, piece) in enumerate(zip(kinds, pieces, strict=True)):
            got = read(name, piece, 2, count)
            np.testing.assert_array_equal(got, values(100 * rank + RANK, count), err_msg=name)


def _add_first(left: MPI.buffer, right: MPI.buffer, datatype: MPI.Datatype) -> None:
    """Add the integers of elements with gaps; the operator sees count times extent bytes."""
    name = "gap"
    _, extent, places = TYPES[name]
    assert datatype.Get_extent()[1] == 8 * extent
    a, b = np.frombuffer(left, int), np.frombuffer(right, int)
    for start in range(0, len(b) - max(places), extent):
        for place in places:
            b[start + place] += a[start + place]


@pytest.mark.parametrize("name", ["allreduce", "reduce", "reduce_scatter_block", "scan", "exscan"])
def test_user_operators_on_types_with_gaps(comm, name) -> None:
    op = MPI.Op.Create(_add_first, commute=True)
    blocks = SIZE if name == "reduce_scatter_block" else 1
    everyone = [values(rank, 2 * blocks) for rank in range(SIZE)]
    ranks = {"scan": range(RANK + 1), "exscan": range(RANK)}.get(name, range(SIZE))
    want = sum(everyone[rank] for rank in ranks)
    if blocks > 1:
        want = want[2 * RANK : 2 * RANK + 2]
    for keywords in choices(name):
        sent, at = write("gap", everyone[RANK])
        received, start = write("gap", np.full((2, 2), GUARD))
        method = getattr(comm, name.capitalize())
        try:
            method(spec("gap", sent, at, 2), spec("gap", received, start, 2), op=op, **keywords)
        except NeedsError:
            continue
        if len(ranks) and (name != "reduce" or RANK == 0):
            got = read("gap", received, start, 2)
            np.testing.assert_array_equal(got, want, err_msg=str(keywords))
    op.Free()


def test_messages_longer_than_the_library_takes_are_cut(monkeypatch) -> None:
    monkeypatch.setattr(engine, "LARGEST_MESSAGE", 64)
    comm = collx.Comm(MPI.COMM_WORLD.Dup())
    for name in ("allreduce", "bcast", "allgather"):
        for keywords in choices(name):
            mine = np.arange(100) + RANK
            try:
                if name == "bcast":
                    comm.Bcast(mine, root=0, **keywords)
                    np.testing.assert_array_equal(mine, np.arange(100))
                elif name == "allreduce":
                    total = np.zeros(100, int)
                    comm.Allreduce(mine, total, **keywords)
                    want = sum(np.arange(100) + r for r in range(SIZE))
                    np.testing.assert_array_equal(total, want)
                else:
                    every = np.zeros((SIZE, 100), int)
                    comm.Allgather(mine, every, **keywords)
                    assert (every == np.arange(100) + np.arange(SIZE)[:, None]).all()
            except NeedsError:
                continue
    comm.Free()


def test_error_handlers_are_those_of_the_communicator(comm) -> None:
    seen = []
    handler = MPI.Comm.Create_errhandler(lambda _, code: seen.append(code))
    mine = collx.Comm(MPI.COMM_WORLD.Dup())
    mine.Set_errhandler(handler)
    with pytest.raises(MPI.Exception):
        mine.Bcast(np.zeros(1), root=SIZE)
    assert [MPI.Get_error_class(code) for code in seen] == [MPI.ERR_ROOT]
    mine.Free()
    handler.Free()


def test_reproducible_excludes_what_depends_on_placement(comm) -> None:
    data, total = np.ones(10), np.zeros(10)
    with collx.using(reproducible=True, allreduce="two_level"):
        why = collx.explain(comm, "allreduce", data, total)
        assert why.endswith("reproducible=True passes over two_level")
    with collx.using(allreduce="two_level"):
        assert "two_level" in collx.explain(comm, "allreduce", data, total)


class OnDevice:
    """Looks like an array of a GPU; what is behind it is in the memory of the processor."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 0}


def test_arrays_of_a_device_move_but_are_not_combined(comm) -> None:
    want = np.arange(5) + 10 * np.arange(SIZE)[:, None]
    for keywords in choices("allgather"):
        every = np.zeros((SIZE, 5), int)
        try:
            comm.Allgather(OnDevice(want[RANK].copy()), OnDevice(every), **keywords)
        except NeedsError:
            continue
        np.testing.assert_array_equal(every, want)
    with pytest.raises(TypeError, match="memory of the processor"):
        comm.Allreduce(OnDevice(np.ones(2)), OnDevice(np.zeros(2)))
