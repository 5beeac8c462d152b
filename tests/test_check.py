"""The check mode: ranks that do not make the same call all get the same error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mpi4py import MPI

import collx

pytestmark = pytest.mark.mpi

ONE, TWO = np.ones(1), np.ones(2)
SIZE = MPI.COMM_WORLD.size
LONG = np.zeros(2 * SIZE)

MISTAKES: dict[str, tuple[str, Callable[[collx.Comm, bool], None]]] = {
    "collective": (
        "calls",
        lambda comm, odd: comm.Barrier() if odd else comm.Bcast(ONE.copy()),
    ),
    "root": ("root 1", lambda comm, odd: comm.Bcast(ONE.copy(), root=int(odd))),
    "operator": (
        "MPI_PROD",
        lambda comm, odd: comm.Allreduce(ONE, ONE.copy(), MPI.PROD if odd else MPI.SUM),
    ),
    "datatype": (
        "datatype",
        lambda comm, odd: comm.Allreduce(ONE.astype("f" if odd else "d"), np.ones(1, "df"[odd])),
    ),
    "length": (
        "elements",
        lambda comm, odd: comm.Allreduce(TWO[: 2 - odd], TWO[: 2 - odd].copy()),
    ),
    "algorithm": (
        "algorithm",
        lambda comm, odd: comm.Allreduce(ONE, ONE.copy(), algorithm="ring" if odd else None),
    ),
    "bcast": ("bytes", lambda comm, odd: comm.Bcast(TWO[: 2 - odd].copy())),
    "gather": ("bytes", lambda comm, odd: comm.Gather(TWO[: 2 - odd], LONG)),
    "gatherv": ("bytes", lambda comm, odd: comm.Gatherv(TWO[: 2 - odd], [LONG, [2] * SIZE])),
    "scatterv": ("bytes", lambda comm, odd: comm.Scatterv([LONG, [2] * SIZE], TWO[: 2 - odd])),
    "allgatherv": ("bytes", lambda comm, odd: comm.Allgatherv(TWO[: 2 - odd], [LONG, [2] * SIZE])),
    "alltoallv": (
        "bytes",
        lambda comm, odd: comm.Alltoallv([LONG.copy(), [2 - odd] * SIZE], [LONG, [2] * SIZE]),
    ),
}


@pytest.fixture(scope="module")
def comm() -> collx.Comm:
    return collx.Comm(MPI.COMM_WORLD)


@pytest.mark.skipif(SIZE == 1, reason="one rank cannot disagree")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_all_ranks_raise_the_same_error(comm, mistake) -> None:
    text, call = MISTAKES[mistake]
    with collx.using(check=True), pytest.raises(MPI.Exception, match="the same call") as error:
        call(comm, comm.rank == 1)
    assert text in str(error.value)
    assert len(set(MPI.COMM_WORLD.allgather(str(error.value)))) == 1
    total = np.zeros(1)
    comm.Allreduce(ONE, total)
    assert total[0] == SIZE


def test_right_calls_pass(comm) -> None:
    with collx.using(check=True):
        for _ in range(2):
            total = np.zeros(3)
            comm.Allreduce(np.ones(3), total)
            assert (total == SIZE).all()
            comm.Bcast(total, root=SIZE - 1)
            comm.Barrier()
            counts = [rank % 3 for rank in range(SIZE)]
            comm.Allgatherv(np.ones(counts[comm.rank]), [np.zeros(sum(counts)), counts])


@pytest.mark.skipif(SIZE < 3, reason="no node with a follower")
@pytest.mark.parametrize(
    ("choice", "text"),
    [("two_level(inter=wrong)", "wrong"), ("two_level(inter=ring)", "commutative")],
)
def test_what_is_wrong_inside_an_algorithm_is_raised_on_all_ranks(
    monkeypatch, choice, text
) -> None:
    monkeypatch.setenv("COLLX_NODES", f"2,{SIZE}")
    comm = collx.Comm(MPI.COMM_WORLD.Dup())
    op = MPI.Op.Create(lambda left, right, datatype: None, commute=False)
    with pytest.raises(ValueError, match=text):
        comm.Allreduce(ONE, ONE.copy(), op, algorithm=choice)
    op.Free()
    comm.Free()
