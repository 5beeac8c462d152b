"""How the ranks of a benchmark agree, without the collectives that are being measured."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

_BARRIER, _MAXIMUM, _END = 0, 1, 2
_TRIES = 2000
"""Tries of all ranks together, before they sleep."""
_NAP = 1e-4
"""Seconds of sleep between further tries."""
_NOTHING = MPI.buffer.allocate(0)


def age() -> float:
    """Seconds since this process was started (0 where the system does not tell)."""
    try:
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError):
        return 0.0


def give_way(tries: int) -> Callable[[list[Any]], None]:
    """Make a wait for ranks that share cores: after some tries it sleeps between them.

    Where many ranks share a core, those that spin keep it from those that have work to do.
    """
    testall, pause, sleep = MPI.Request.Testall, os.sched_yield, time.sleep

    def wait(requests: list[Any]) -> None:
        for _ in range(tries):
            if testall(requests):
                return
            pause()
        while not testall(requests):
            sleep(_NAP)

    return wait


class Meeting:
    """A barrier and a maximum over all ranks by dissemination, on a communicator of its own.

    The maximum is known to all ranks at the end, so decisions made from it are the same everywhere.

    Parameters
    ----------
    world
        The ranks.
    crowded
        Whether ranks share cores.

    Attributes
    ----------
    elapsed : float
        Seconds since the first process was started, as of the last `maximum`: equal on all ranks.
    """

    def __init__(self, world: MPI.Intracomm, crowded: bool = False) -> None:
        self.comm = world.Dup()
        rank, size = world.Get_rank(), world.Get_size()
        self._wait = give_way(max(_TRIES // size, 1)) if crowded else MPI.Request.Waitall
        steps = [2**k for k in range((size - 1).bit_length())]
        self._peers = [((rank - step) % size, (rank + step) % size) for step in steps]
        self._rounds = [self._round(source, to) for source, to in self._peers]
        self._origin = time.monotonic() - age()
        self.elapsed = 0.0

    def _round(self, source: int, to: int) -> list[MPI.Prequest]:
        receive = self.comm.Recv_init(_NOTHING, source, _BARRIER)
        return [receive, self.comm.Send_init(_NOTHING, to, _BARRIER)]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        for requests in self._rounds:
            MPI.Prequest.Startall(requests)
            self._wait(requests)

    def maximum(self, values: Sequence[int] | NDArray[np.int64] = ()) -> NDArray[np.int64]:
        """Elementwise maximum of the integers of all ranks."""
        elapsed = int((time.monotonic() - self._origin) * 1e9)
        mine = np.array([elapsed, *values], np.int64)
        for source, to in self._peers:
            theirs = np.empty_like(mine)
            receive = self.comm.Irecv(theirs, source, _MAXIMUM)
            self._wait([receive, self.comm.Isend(mine, to, _MAXIMUM)])
            mine = np.maximum(mine, theirs)
        self.elapsed = int(mine[0]) / 1e9
        return mine[1:]

    def end(self, last: Callable[[], None]) -> None:
        """Run `last` on rank 0 while the others sleep: spinning they would take its core."""
        peers = range(1, self.comm.Get_size())
        if self.comm.Get_rank() == 0:
            last()
            self._wait([self.comm.Isend(_NOTHING, peer, _END) for peer in peers])
            return
        request = self.comm.Irecv(_NOTHING, 0, _END)
        while not request.Test():
            time.sleep(0.01)

    def free(self) -> None:
        """Give back what MPI holds."""
        for request in (request for requests in self._rounds for request in requests):
            request.Free()
        self.comm.Free()


class Guard:
    """Aborts the job, saying what each rank was doing, if it does not end in time.

    Attributes
    ----------
    doing : str
        What is in progress on this rank.
    """

    def __init__(self, world: MPI.Intracomm, seconds: float) -> None:
        self.doing = "starting"
        self._world, self._status, self._why = world, 3, f"no end after {seconds:g} s"
        self._deadline = self._usual = time.monotonic() + seconds
        self._changed, self._over = threading.Event(), False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._over:
            if not self._changed.wait(max(self._deadline - time.monotonic(), 0)):
                self._abort()
            self._changed.clear()

    def _abort(self) -> None:
        rank = self._world.Get_rank()
        text = f"collx.bench: {self._why}; rank {rank} was in: {self.doing}\n"
        sys.stderr.write(text)
        sys.stderr.flush()
        time.sleep(1.0)  # for the other ranks to say the same
        self._world.Abort(self._status)

    def hurry(self, why: str, seconds: float = 10.0) -> None:
        """After a failure: wait only so long for the other ranks, which may be stuck by it."""
        if self._status != 1:  # later failures may be consequences
            self._status, self._why = 1, why
            self._move(min(self._usual, time.monotonic() + seconds))

    def relax(self) -> None:
        """The other ranks have come: back to the usual time limit."""
        self._status = 3
        self._move(self._usual)

    def _move(self, deadline: float) -> None:
        self._deadline = deadline
        self._changed.set()

    def end(self) -> None:
        """Stop watching."""
        self._over = True
        self._changed.set()
