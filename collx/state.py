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
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from mpi4py import MPI

from collx.neighborhood import Neighborhood
from collx.topology import edges, neighbors_of, numbers

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """A dictionary that forgets what was added first.

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
        The shadow: a duplicate of the communicator that only collx uses. That of an
        inter-communicator is its two groups merged.
    rank, size : int
        Of this process in it.
    low : int
        Of an inter-communicator, the ranks in the group that comes first; otherwise 0.
    entries : Cache
        Prepared calls, by the shape of their arguments.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.low = 0
        if isinstance(comm, MPI.Intercomm):
            self.comm = MPI.Intercomm.Merge(comm)
            first = self.comm.Get_rank() == comm.Get_rank()
            self.low = comm.Get_size() if first else comm.Get_remote_size()
        else:
            self.comm = MPI.Intracomm(comm).Dup()
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)  # errors go to that of the user's communicator
        self.entries: Cache[Any] = Cache(512, lambda entry: entry.free())
        self._nodes: tuple[int, ...] | None = None

    def nodes(self) -> tuple[int, ...]:
        """For each rank the number of its node; all ranks must ask at the same call."""
        if self._nodes is None:
            self._nodes = declared_nodes(self._world_ranks()) or self._exchanged_nodes()
        return self._nodes

    def _world_ranks(self) -> list[int]:
        """For each rank its rank in COMM_WORLD (negative if it is not there)."""
        group, world = self.comm.Get_group(), MPI.COMM_WORLD.Get_group()
        ranks = MPI.Group.Translate_ranks(group, None, world)
        group.Free()
        world.Free()
        return list(ranks)

    def _exchanged_nodes(self) -> tuple[int, ...]:
        """Tell every rank the name of this node, and number the nodes as they come."""
        mine = zlib.crc32(socket.gethostname().encode())
        names = self._told_by_all([mine], [1] * self.size)
        numbers: dict[int, int] = {}
        return tuple(numbers.setdefault(name, len(numbers)) for (name,) in names)

    def _told_by_all(self, mine: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
        """Tell every rank some integers; rank i tells `counts[i]` of them."""
        comm, said = self.comm, np.array(mine, np.int64)
        told = [np.empty(count, np.int64) for count in counts]
        requests = [comm.Irecv(numbers, peer) for peer, numbers in enumerate(told)]
        requests += [comm.Isend(said, peer) for peer in range(self.size)]
        MPI.Request.Waitall(requests)
        return [numbers.tolist() for numbers in told]

    @cached_property
    def neighbors(self) -> Neighborhood:
        """The neighbours of this rank, if the communicator has a topology."""
        return neighbors_of(self.comm)

    def whole_graph(self) -> Neighborhood:
        """The same with the edges of all ranks; all ranks must ask at the same call."""
        if self.neighbors.graph is None:
            mine = numbers(self.neighbors.targets)
            counts = [count for (count,) in self._told_by_all([len(mine)], [1] * self.size)]
            graph = tuple(map(edges, self._told_by_all(mine, counts)))
            self.neighbors = self.neighbors._replace(graph=graph)
        return self.neighbors

    def free(self) -> None:
        """Give back what MPI holds for this state."""
        self.entries.clear()
        self.comm.Free()


def declared_nodes(world_ranks: Sequence[int]) -> tuple[int, ...] | None:
    """The virtual nodes that `COLLX_NODES` declares for these ranks of COMM_WORLD, if it does.

    `COLLX_NODES=3,1,4` puts so many consecutive ranks on each node; `COLLX_NODES=0/1/0/2` names the
    node of each rank.

    Raises
    ------
    ValueError
        If they are not integers, or fewer than the ranks.
    """
    text = os.environ.get("COLLX_NODES")
    if not text:
        return None
    try:
        if "/" in text:
            nodes = [int(word) for word in text.split("/")]
        else:
            counts = [int(word) for word in text.split(",")]
            nodes = [node for node, count in enumerate(counts) for _ in range(count)]
    except ValueError:
        raise ValueError(f"COLLX_NODES={text}: write it as 3,1,4 or as 0/1/0/2") from None
    if max(world_ranks) >= len(nodes):
        raise ValueError(
            f"COLLX_NODES={text} places {len(nodes)} ranks, but there is a rank {max(world_ranks)}"
        )
    return tuple(nodes[rank] for rank in world_ranks)


_LIVE: dict[int, State] = {}


def _freed(comm: MPI.Comm, keyval: int, state: State) -> None:
    _LIVE.pop(id(state), None)
    state.free()


_KEY = MPI.Comm.Create_keyval(delete_fn=_freed)


def state_of(comm: MPI.Comm) -> State:
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
