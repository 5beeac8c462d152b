"""Operations under way: the same plans, overtaking each other, while blocking calls go on."""

from __future__ import annotations

import random

import numpy as np
import pytest
from mpi4py import MPI

import collx
from collx.arguments import Arguments
from collx.prepare import prepare
from collx.progress import ACTIVE, Operation

pytestmark = pytest.mark.mpi

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank


def start(comm: collx.Comm, mine: np.ndarray, total: np.ndarray, number: int) -> Operation:
    """Start an allreduce with the algorithm number `number` of those that take any call."""
    names = ["ring", "recursive_doubling", "rabenseifner", "tree(segment=64)", "double_tree"]
    name = names[number % len(names)]
    arguments = Arguments("allreduce", mine, total, op=MPI.SUM, algorithm=name)
    entry, _ = prepare(comm._state, arguments)
    memory = MPI.buffer.frombuffer(mine), MPI.buffer.frombuffer(total)
    plan = entry.plan.copy()
    return plan.operation(comm._state.comm, *memory, tag=1000 + 50 * number).start()


def test_operations_finish_in_any_order_between_blocking_calls() -> None:
    comm = collx.Comm(MPI.COMM_WORLD)
    count = 40
    mine = [np.full(10 + i, float(RANK + i)) for i in range(count)]
    totals = [np.zeros(10 + i) for i in range(count)]
    operations = [start(comm, mine[i], totals[i], i) for i in range(count)]
    for _ in range(3):
        total = np.zeros(3)
        comm.Allreduce(np.ones(3), total)
        assert (total == SIZE).all()
    order = list(range(count))
    random.Random(RANK).shuffle(order)
    for i in order:
        operations[i].wait()
        assert (totals[i] == sum(rank + i for rank in range(SIZE))).all()
    assert not ACTIVE


def test_a_rank_that_blocks_elsewhere_does_its_part() -> None:
    comm = collx.Comm(MPI.COMM_WORLD)
    mine, total = np.ones(5), np.zeros(5)
    operation = start(comm, mine, total, 0)
    if RANK == 0:
        operation.wait()
    comm.Barrier()  # the others are here while rank 0 waits for them
    operation.wait()
    assert (total == SIZE).all()


def test_windows_work_in_operations() -> None:
    comm = collx.Comm(MPI.COMM_WORLD)
    mine, every = np.full(3, float(RANK)), np.zeros((SIZE, 3))
    arguments = Arguments("allgather", mine, every, algorithm="linear(window=2)")
    entry, _ = prepare(comm._state, arguments)
    memory = MPI.buffer.frombuffer(mine), MPI.buffer.frombuffer(every)
    operation = entry.plan.copy().operation(comm._state.comm, *memory, tag=9000).start()
    operation.wait()
    assert (every == np.arange(SIZE)[:, None]).all()
