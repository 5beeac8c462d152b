"""Every collective with every algorithm on real MPI, against NumPy and against the native one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from mpi4py import MPI
from reference import SENTINEL, column_counts, expected, inputs, row_counts

import collx
from collx.collectives import COLLECTIVES
from collx.operators import name_of
from collx.registry import Need, NeedsError, Promise

pytestmark = pytest.mark.mpi

WORLD = MPI.COMM_WORLD
FEW = WORLD.size <= 4
"""Where ranks share cores only a little, every count, root and parameter is tried."""
NAMES = [
    name
    for name in COLLECTIVES
    if hasattr(MPI.Intracomm, name.capitalize()) and name not in ("barrier", "alltoallw")
]
IN_PLACE = {name for name in NAMES if name != "bcast"}
VECTORS = ("gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter")


@pytest.fixture(scope="module")
def comm() -> collx.Comm:
    return collx.Comm(MPI.COMM_WORLD)


class Plain:
    """Elements one after the other in a NumPy array."""

    @staticmethod
    def buffer(values: np.ndarray) -> np.ndarray:
        return values.copy()

    @staticmethod
    def spec(array: np.ndarray, *more: object) -> object:
        return [array, *more] if more else array

    @staticmethod
    def values(array: np.ndarray) -> np.ndarray:
        return array


class Derived:
    """Elements of two integers with a gap between them, which must stay as it is."""

    datatype = MPI.INT64_T.Create_vector(2, 1, 2).Commit()

    @classmethod
    def buffer(cls, values: np.ndarray) -> np.ndarray:
        array = np.full((len(values), 3), SENTINEL)
        array[:, 0], array[:, 2] = values, values + 1
        return array

    @classmethod
    def spec(cls, array: np.ndarray, *more: object) -> object:
        return [array, *more, cls.datatype] if more else [array, len(array), cls.datatype]

    @staticmethod
    def values(array: np.ndarray) -> np.ndarray:
        assert (array[:, 1] == SENTINEL).all(), "a gap was overwritten"
        assert (array[:, 2] == array[:, 0] + 1).all()
        return array[:, 0]


def counts_to_try(name: str, size: int) -> list[list[int]]:
    """Elements of the block of each rank."""
    if name in VECTORS:
        ragged = [(7 * rank + 2) % 4 for rank in range(size)]
        return [[1] * size, ragged, [300 * count for count in ragged]][0 if FEW else 1 :]
    if name.startswith(("gather", "scatter", "allgather", "alltoall", "reduce_scatter")):
        return [[0] * size, [1] * size, [3] * size, [700] * size][0 if FEW else 2 :]
    totals = (0, 1, size - 1, 2 * size + 3, 1500 * size)[0 if FEW else 3 :]
    return [[t // size + (r < t % size) for r in range(size)] for t in totals]


def attempt(
    comm: MPI.Intracomm,
    name: str,
    counts: list[int],
    root: int,
    in_place: bool,
    form: type = Plain,
    **keywords: object,
) -> np.ndarray | None:
    """Call the collective; its output on this rank."""
    rank, size = comm.rank, comm.size
    mine = inputs(name, size, counts)[rank]
    want = expected(name, inputs(name, size, counts), counts, rank, root)
    send = form.buffer(mine)
    kept = send.copy()
    recv = form.buffer(np.full(len(want) if want is not None else 0, SENTINEL))
    if want is None and name == "exscan":
        recv = form.buffer(np.full(len(mine), SENTINEL))
    arguments: list[object] = []
    send_spec, recv_spec = form.spec(send), form.spec(recv)
    if name == "bcast":
        buffer = send if rank == root else form.buffer(np.full(len(want), SENTINEL))
        comm.Bcast(form.spec(buffer), root, **keywords)
        return form.values(buffer)
    if name in ("gatherv", "allgatherv"):
        recv_spec = form.spec(recv, counts)
    elif name == "scatterv":
        send_spec = form.spec(send, counts)
    elif name == "alltoallv":
        send_spec = form.spec(send, row_counts(counts, rank))
        recv_spec = form.spec(recv, column_counts(counts, rank))
    elif name in ("gather", "allgather") and form is not Plain:
        recv_spec = form.spec(recv, counts[0])
    elif name == "scatter" and form is not Plain:
        send_spec = form.spec(send, counts[0])
    elif name == "alltoall" and form is not Plain:
        send_spec, recv_spec = form.spec(send, counts[0]), form.spec(recv, counts[0])
    if name == "reduce_scatter":
        arguments = [counts]
    if COLLECTIVES[name].rooted:
        keywords["root"] = root
    if in_place:
        send_spec, recv_spec, recv = in_place_specs(
            name, form, mine, counts, rank, root, (send, send_spec), (recv, recv_spec)
        )
    getattr(comm, name.capitalize())(send_spec, recv_spec, *arguments, **keywords)
    np.testing.assert_array_equal(send, kept, err_msg="the send buffer was changed")
    if want is None:
        return None
    if recv is None:  # the root of a scatter in place
        return want
    return form.values(recv)[: len(want)]


def in_place_specs(name, form, mine, counts, rank, root, sending, receiving):
    """The same call with `MPI.IN_PLACE`: what is sent, received, and where the result is."""
    (_, send_spec), (recv, recv_spec) = sending, receiving
    at_root = rank == root or not COLLECTIVES[name].rooted
    if not at_root:
        return send_spec, recv_spec, recv
    if name in ("scatter", "scatterv"):
        return send_spec, MPI.IN_PLACE, None
    if name in ("gather", "gatherv", "allgather", "allgatherv"):
        start = sum(counts[:rank])
        recv[start : start + counts[rank]] = form.buffer(mine)
        return MPI.IN_PLACE, recv_spec, recv
    if name == "alltoallv":
        buffer = form.buffer(mine)
        return MPI.IN_PLACE, form.spec(buffer, row_counts(counts, rank)), buffer
    buffer = form.buffer(mine)
    if name == "alltoall" and form is not Plain:
        return MPI.IN_PLACE, form.spec(buffer, counts[0]), buffer
    return MPI.IN_PLACE, form.spec(buffer), buffer


def algorithms_of(name: str) -> Iterator[str]:
    """All algorithms with default and declared parameters, and the one that collx chooses."""
    yield ""
    for algorithm in collx.available(name).values():
        yield from map(str, algorithm.choices() if FEW else [algorithm.name])


def roots(name: str) -> list[int]:
    if not COLLECTIVES[name].rooted:
        return [0]
    return sorted({0, WORLD.size - 1, WORLD.size // 2}) if FEW else [WORLD.size - 2]


@pytest.mark.parametrize("in_place", [False, True], ids=["", "in-place"])
@pytest.mark.parametrize("form", [Plain, Derived])
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_gives_what_numpy_gives(comm, name, form, in_place) -> None:
    if in_place and name not in IN_PLACE:
        pytest.skip("MPI has no such call")
    if form is Derived and COLLECTIVES[name].combines:
        pytest.skip("no predefined operator takes a derived datatype")
    for counts in counts_to_try(name, comm.size):
        for root in roots(name):
            data = inputs(name, comm.size, counts)
            want = expected(name, data, counts, comm.rank, root)
            for choice in algorithms_of(name):
                keywords = {"algorithm": choice} if choice else {}
                try:
                    for _ in range(2):  # the second call finds the plan of the first
                        got = attempt(comm, name, counts, root, in_place, form, **keywords)
                except NeedsError:
                    continue
                if want is not None:
                    message = f"{name} {choice}, counts {counts}, root {root}"
                    np.testing.assert_array_equal(got, want, err_msg=message)


@pytest.mark.parametrize("name", NAMES)
def test_the_native_collective_gives_what_numpy_gives(name) -> None:
    for counts in counts_to_try(name, WORLD.size):
        want = expected(name, inputs(name, WORLD.size, counts), counts, WORLD.rank, 0)
        got = attempt(WORLD, name, counts, 0, False)
        if want is not None:
            np.testing.assert_array_equal(got, want)


def test_no_rank_leaves_a_barrier_before_all_have_entered(comm) -> None:
    window = MPI.Win.Allocate(8, comm=MPI.COMM_WORLD)
    entered = np.frombuffer(window, np.int64)
    for choice in algorithms_of("barrier"):
        window.Fence()
        entered[0] = 0
        window.Fence()
        window.Lock(0)
        window.Accumulate(np.ones(1, np.int64), 0)
        window.Unlock(0)
        try:
            comm.Barrier(**({"algorithm": choice} if choice else {}))
        except NeedsError:
            continue
        count = np.zeros(1, np.int64)
        window.Lock(0)
        window.Get(count, 0)
        window.Unlock(0)
        assert count[0] == comm.size, choice
    window.Free()


def _matrix_product(left: MPI.buffer, right: MPI.buffer, datatype: MPI.Datatype) -> None:
    a = np.frombuffer(left, np.int64).reshape(-1, 2, 2)
    b = np.frombuffer(right, np.int64).reshape(-1, 2, 2)
    b[:] = a @ b


@pytest.mark.parametrize("name", ["reduce", "allreduce", "reduce_scatter_block", "scan", "exscan"])
def test_operands_keep_the_order_of_ranks(comm, name) -> None:
    op = MPI.Op.Create(_matrix_product, commute=False)
    datatype = MPI.INT64_T.Create_contiguous(4).Commit()
    rank, size = comm.rank, comm.size
    blocks = size if name == "reduce_scatter_block" else 1
    ranks = range({"scan": rank + 1, "exscan": rank}.get(name, size))
    dice = np.random.default_rng(3)
    data = dice.integers(-1, 2, (size, 2 * blocks, 2, 2))
    want = data[0] if ranks else None
    for q in ranks[1:]:
        want = want @ data[q]
    if want is not None and blocks > 1:
        want = want[2 * rank : 2 * rank + 2]
    for choice in algorithms_of(name):
        for root in roots(name):
            recv = np.zeros((2, 2, 2), np.int64)
            keywords = {"algorithm": choice} if choice else {}
            if name == "reduce":
                keywords["root"] = root
            try:
                getattr(comm, name.capitalize())(
                    [data[rank].copy(), datatype], [recv, datatype], op=op, **keywords
                )
            except NeedsError:
                continue
            if want is not None and (name != "reduce" or rank == root):
                np.testing.assert_array_equal(recv, want, err_msg=f"{name} {choice} root {root}")
    op.Free()
    datatype.Free()


def test_all_ranks_get_the_same_bits_where_promised(comm) -> None:
    data = np.random.default_rng(comm.rank).normal(size=97) * 10.0 ** np.arange(97)
    for algorithm in collx.available("allreduce").values():
        if Promise.SAME_BITS not in algorithm.promises:
            continue
        for choice in map(str, algorithm.choices()):
            result = np.empty_like(data)
            try:
                comm.Allreduce(data, result, algorithm=choice)
            except NeedsError:
                continue
            assert len(set(WORLD.allgather(result.tobytes()))) == 1, choice


OPERATORS = [MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN, MPI.LAND, MPI.LOR, MPI.LXOR,
             MPI.BAND, MPI.BOR, MPI.BXOR]  # fmt: skip
TYPES = "bhilqBHILQ?fdgFD"


def outcome(comm, mine: np.ndarray, total: np.ndarray, op: MPI.Op) -> int:
    """The error class that the call ends with."""
    try:
        comm.Allreduce(mine, total, op)
    except MPI.Exception as error:
        return error.Get_error_class()
    return MPI.SUCCESS


def test_operators_are_the_native_ones(comm) -> None:
    for code in TYPES:
        for op in OPERATORS:
            dice = np.random.default_rng([comm.rank, ord(code)])
            mine = dice.integers(0, 3, 40).astype(code)
            native, ours = np.zeros(40, code), np.zeros(40, code)
            assert outcome(comm, mine, ours, op) == outcome(WORLD, mine, native, op)
            np.testing.assert_array_equal(ours, native, err_msg=f"{code} {name_of(op)}")


@pytest.mark.parametrize("op", [MPI.MINLOC, MPI.MAXLOC], ids=["MINLOC", "MAXLOC"])
@pytest.mark.parametrize(
    ("datatype", "value"),
    [(MPI.DOUBLE_INT, "d"), (MPI.FLOAT_INT, "f"), (MPI.LONG_INT, "l"), (MPI.SHORT_INT, "h"),
     (MPI.INT_INT, "i"), (MPI.LONG_DOUBLE_INT, "g")],
    ids=lambda p: p if isinstance(p, str) else p.Get_name(),
)  # fmt: skip
def test_value_and_location(comm, op, datatype, value) -> None:
    pair = np.dtype([("value", value), ("index", "i")], align=True)
    mine = np.zeros(5, pair)
    mine["value"] = [(comm.rank * 3 + i) % 4 for i in range(5)]
    mine["index"] = comm.rank
    for choice in algorithms_of("allreduce"):
        ours, native = np.zeros(5, pair), np.zeros(5, pair)
        WORLD.Allreduce([mine, 5, datatype], [native, 5, datatype], op)
        keywords = {"algorithm": choice} if choice else {}
        try:
            comm.Allreduce([mine, 5, datatype], [ours, 5, datatype], op, **keywords)
        except NeedsError:
            continue
        for field in ("value", "index"):
            np.testing.assert_array_equal(ours[field], native[field], err_msg=choice)


@pytest.mark.parametrize("code", ["e", "f", "d", "g", "F", "D", "b", "h", "Q"])
def test_any_numpy_dtype(comm, code) -> None:
    mine = np.arange(6).astype(code) + np.array(comm.rank, code)
    total, want = np.zeros(6, code), np.zeros(6, code)
    for rank in range(comm.size):
        want = want + (np.arange(6).astype(code) + np.array(rank, code))
    comm.Allreduce(mine, total)
    np.testing.assert_allclose(total, want, rtol=1e-2)
    everyone = np.zeros((comm.size, 6), code)
    comm.Allgather(mine, everyone)
    np.testing.assert_array_equal(everyone[comm.rank], mine)


def test_structured_arrays_move(comm) -> None:
    record = np.dtype([("name", "S3"), ("x", "f8"), ("n", "i2")])
    mine = np.zeros(4, record)
    if comm.rank == comm.size - 1:
        mine[:] = [(b"abc", 0.5, 7)] * 4
    comm.Bcast(mine, root=comm.size - 1)
    assert mine.tolist() == [(b"abc", 0.5, 7)] * 4


def test_fortran_order_travels_as_memory_and_strided_arrays_are_refused(comm) -> None:
    fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4) + comm.rank)
    total = np.zeros((3, 4), order="F")
    for _ in range(2):
        comm.Allreduce(fortran, total)
    np.testing.assert_array_equal(total, sum(fortran - comm.rank + r for r in range(comm.size)))
    with pytest.raises((ValueError, BufferError)):
        comm.Allreduce(np.zeros(8)[::2], np.zeros(4))
    with pytest.raises((ValueError, BufferError)):
        comm.Allreduce(np.zeros(4), np.zeros(8)[::2])


def test_send_buffers_may_be_read_only(comm) -> None:
    mine = np.full(3, float(comm.rank))
    mine.flags.writeable = False
    total = np.zeros(3)
    for _ in range(2):
        comm.Allreduce(mine, total)
    comm.Bcast(mine if comm.rank == 0 else np.zeros(3), root=0)
    comm.Allgather(bytes([comm.rank]), bytearray(comm.size))
    with pytest.raises((ValueError, BufferError, TypeError)):
        comm.Allreduce(total, mine)


def test_overlapping_buffers_are_refused(comm) -> None:
    buffer = np.zeros(100_000)
    for send, recv in ((buffer, buffer), (buffer[:60_000], buffer[40_000:])):
        with pytest.raises(MPI.Exception) as error:
            comm.Allreduce(send, recv)
        assert error.value.Get_error_class() == MPI.ERR_BUFFER
        assert "MPI.IN_PLACE" in str(error.value)


def test_wrong_arguments_are_refused_before_anything_is_sent(comm) -> None:
    with pytest.raises(MPI.Exception) as error:
        comm.Bcast(np.zeros(1), root=comm.size)
    assert error.value.Get_error_class() == MPI.ERR_ROOT
    with pytest.raises(ValueError, match="there are: "):
        comm.Allreduce(np.zeros(1), np.zeros(1), algorithm="no_such")
    with pytest.raises(ValueError, match="mismatch in send count 2 and receive count 3"):
        comm.Allreduce(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="too small"):
        comm.Allreduce([np.zeros(2), 3, MPI.DOUBLE], [np.zeros(3), 3, MPI.DOUBLE])
    with pytest.raises(TypeError):
        comm.Allreduce(3, np.zeros(1))
    comm.Barrier()


def test_choices_come_from_argument_settings_and_environment(comm, monkeypatch) -> None:
    mine, total = np.ones(4), np.zeros(4)
    with collx.using(allreduce="ring"):
        assert "ring" in collx.explain(comm, "allreduce", mine, total)
        comm.Allreduce(mine, total)
    monkeypatch.setenv("COLLX_ALLREDUCE", "reduce_bcast")
    assert "COLLX_ALLREDUCE" in collx.explain(comm, "allreduce", mine, total)
    with pytest.raises(ValueError, match="no allreduce algorithm"), collx.using(allreduce="no"):
        pass


def test_many_calls_in_a_row_do_not_mix(comm) -> None:
    for k in range(50):
        total = np.zeros(3)
        comm.Allreduce(np.full(3, float(k)), total)
        assert (total == k * comm.size).all()
        buffer = np.full(2, k if comm.rank == k % comm.size else -1)
        comm.Bcast(buffer, root=k % comm.size)
        assert (buffer == k).all()


def test_user_messages_do_not_meet_ours(comm) -> None:
    request = comm.irecv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)
    for _ in range(5):
        comm.Allreduce(np.ones(3), np.zeros(3))
        comm.Barrier()
    comm.send("hello", dest=(comm.rank + 1) % comm.size, tag=0)
    assert request.wait() == "hello"


def test_event_driven_progress_gives_the_same(comm) -> None:
    for name in NAMES:
        counts = counts_to_try(name, comm.size)[-1]
        root = comm.size - 1 if COLLECTIVES[name].rooted else 0
        want = expected(name, inputs(name, comm.size, counts), counts, comm.rank, root)
        for choice in collx.available(name):
            try:
                with collx.using(event_driven=True):
                    got = attempt(comm, name, counts, root, False, algorithm=choice)
            except NeedsError:
                continue
            if want is not None:
                np.testing.assert_array_equal(got, want, err_msg=f"{name} {choice}")
    for choice in algorithms_of("barrier"):
        with collx.using(event_driven=True), suppress(NeedsError):
            comm.Barrier(**({"algorithm": choice} if choice else {}))


@pytest.mark.parametrize("nodes", ["3,1,4", "1,7", "0/1/0/2/1/0/2/2"])
def test_algorithms_that_look_at_nodes(nodes, monkeypatch) -> None:
    monkeypatch.setenv("COLLX_NODES", nodes)
    comm = collx.Comm(MPI.COMM_WORLD.Dup())
    for name in NAMES:
        for counts in counts_to_try(name, comm.size)[-2:-1]:
            root = comm.size - 1 if COLLECTIVES[name].rooted else 0
            want = expected(name, inputs(name, comm.size, counts), counts, comm.rank, root)
            for algorithm in collx.available(name).values():
                if Need.NODE_MAP not in algorithm.needs:
                    continue
                try:
                    got = attempt(comm, name, counts, root, False, algorithm=algorithm.name)
                except NeedsError:
                    continue
                if want is not None:
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} {algorithm.name}")
    comm.Free()
