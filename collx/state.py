"""What belongs to a communicator: the shadow communicator, the plans, the node map.

The state lives in an attribute of the MPI communicator, not in the Python object: two objects may
stand for one communicator.
"""

from __future__ import annotations

import atexit
import os
import socket
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np
from mpi4py import MPI

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """A dictionary that forgets what was used least recently.

    Parameters
    ----------
    limit
        How many entries to keep.
    forget
        Called with each value that is dropped.
    """

    def __init__(self, limit: int, forget: Callable[[Value], None]) -> None:
        self._entries: OrderedDict[Hashable, Value] = OrderedDict()
        self._limit, self._forget = limit, forget
        self.get = self._entries.get

    def add(self, key: Hashable, value: Value) -> None:
        """Add an entry, and drop the oldest if there are too many."""
        self._entries[key] = value
        if len(self._entries) > self._limit:
            self._forget(self._entries.popitem(last=False)[1])

    def clear(self) -> None:
        """Drop everything."""
        while self._entries:
            self._forget(self._entries.popitem()[1])


class State:
    """The state of one communicator.

    Attributes
    ----------
    comm : MPI.Intracomm
        The shadow: a duplicate of the communicator that only collx uses.
    rank, size : int
        Of this process in it.
    entries : Cache
        Prepared calls, by the shape of their arguments.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.comm = MPI.Intracomm(comm).Dup()
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)  # errors go to that of the user's communicator
        self.entries: Cache[Any] = Cache(512, lambda entry: entry.free())
        self._nodes: tuple[int, ...] | None = None

    def nodes(self) -> tuple[int, ...]:
        """For each rank the number of its node; all ranks must ask at the same call."""
        if self._nodes is None:
            self._nodes = declared_nodes(self.size) or self._exchanged_nodes()
        return self._nodes

    def _exchanged_nodes(self) -> tuple[int, ...]:
        """Tell every rank the name of this node, and number the nodes as they come."""
        mine = zlib.crc32(socket.gethostname().encode())
        names = np.empty(self.size, np.int64)
        comm, peers = self.comm, range(self.size)
        requests = [comm.Irecv(names[peer : peer + 1], peer) for peer in peers]
        requests += [comm.Isend(np.array([mine]), peer) for peer in peers]
        MPI.Request.Waitall(requests)
        numbers: dict[int, int] = {}
        return tuple(numbers.setdefault(name, len(numbers)) for name in names.tolist())

    def free(self) -> None:
        """Give back what MPI holds for this state."""
        self.entries.clear()
        self.comm.Free()


def declared_nodes(size: int) -> tuple[int, ...] | None:
    """The virtual nodes of `COLLX_NODES=3,1,4`: so many consecutive ranks on each.

    Raises
    ------
    ValueError
        If they are not positive integers, or fewer than the ranks.
    """
    text = os.environ.get("COLLX_NODES")
    if not text:
        return None
    counts = [int(word) for word in text.split(",")]
    nodes = tuple(node for node, count in enumerate(counts) for _ in range(count))
    if len(nodes) < size:
        raise ValueError(f"COLLX_NODES={text} places {len(nodes)} ranks, but there are {size}")
    return nodes[:size]


_LIVE: dict[int, State] = {}


def _freed(comm: MPI.Comm, keyval: int, state: State) -> None:
    _LIVE.pop(id(state), None)
    state.free()


_KEY = MPI.Comm.Create_keyval(delete_fn=_freed)


def state_of(comm: MPI.Intracomm) -> State:
    """The state of a communicator; it is made the first time, on all ranks."""
    state: Any = comm.Get_attr(_KEY)
    if state is None:
        state = State(comm)
        comm.Set_attr(_KEY, state)
        _LIVE[id(state)] = state
    return state  # type: ignore[no-any-return]


def _at_exit() -> None:
    """Free persistent requests that are left; MPI frees the communicators itself."""
    if not MPI.Is_finalized():
        for state in _LIVE.values():
            state.entries.clear()


atexit.register(_at_exit)
