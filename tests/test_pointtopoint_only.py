"""collx moves data with point-to-point calls only: counted, at the door of the MPI library."""

import pytest
from interpose import native_calls

NATIVE = """
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
a, b = np.ones(2), np.empty(2)
world.Barrier()
world.Bcast(a)
world.Allreduce(a, b)
world.Sendrecv(a, (world.rank + 1) % world.size, recvbuf=b)
world.Dup().Free()
"""

COLLX = """
from contextlib import suppress

import collx
import numpy as np
from collx.registry import NeedsError
from mpi4py import MPI

comm = collx.Comm(MPI.COMM_WORLD)
one, some = np.ones(4), np.ones(4 * comm.size)
arguments = {
    "barrier": (),
    "bcast": (one,),
    "reduce": (one, np.empty(4)),
    "allreduce": (one, np.empty(4)),
    "allgather": (one, np.empty(4 * comm.size)),
    "gatherv": (one, [np.empty(4 * comm.size), 4 * np.ones(comm.size, int)]),
    "reduce_scatter_block": (some, np.empty(4)),
}
for collective, args in arguments.items():
    for algorithm in collx.available(collective):
        with suppress(NeedsError):
            getattr(comm, collective.capitalize())(*args, algorithm=algorithm)

first = comm.rank == 0
between = comm.Split(first).Create_intercomm(0, comm, int(first))
theirs = np.empty(4 * between.Get_remote_size())
root = MPI.ROOT if first else 0
arguments = {
    "barrier": (),
    "bcast": (one, root),
    "gather": (one, theirs, root),
    "allgather": (one, theirs),
    "alltoall": (theirs.copy(), theirs),
    "reduce": (one, np.empty(4), MPI.SUM, root),
    "allreduce": (one, np.empty(4)),
}
for collective, args in arguments.items():
    for algorithm in collx.available(f"inter_{collective}"):
        getattr(between, collective.capitalize())(*args, algorithm=algorithm)
"""


def test_native_calls_are_counted() -> None:
    size = 3
    calls = native_calls(NATIVE, size)
    assert calls == {"collective": 3 * size, "p2p": size, "communicator": size}


@pytest.mark.parametrize("size", [4, 5])
def test_no_native_collective(size: int) -> None:
    calls = native_calls(COLLX, size)
    assert calls["collective"] == calls["other"] == 0
    assert calls["p2p"] > 0
