"""Neighbourhood alltoall: every rank has a block for each edge of the graph that begins at it.

A rank knows its own neighbours and the sizes of its own blocks. Algorithms in which blocks pass
through other ranks need to know the whole graph, which the ranks tell each other once.
"""

from __future__ import annotations

from collx.collectives import Call
from collx.patterns.exchanges import grid_factors
from collx.patterns.journeys import ByDimension, ByGroup, ByHalves, ByNode, carry
from collx.patterns.neighbors import in_order
from collx.registry import Need, algorithm
from collx.schedule import Recv, Round, Send, Steps


@algorithm(
    covers="MPICH sched_linear, tsp_linear; Open MPI basic neighbor_alltoall(v, w); libnbc;"
    " SimGrid linear; MVAPICH2",
    window=(0, 1, 4),
)
def linear(call: Call, window: int = 0) -> Steps:
    """Send each block straight to its neighbour, `window` edges at a time (0: all).

    All ranks take the edges in one order, so that none waits in a circle.

    Cost: rounds = 1, sent = n * (P - 1) / P, messages = P - 1
    Reference: MPI standard.
    """
    transfers = [
        Send(call.input_blocks[edge.slot], edge.peer, edge.lane)
        if edge.leaves
        else Recv(call.output_blocks[edge.slot], edge.peer, edge.lane)
        for edge in in_order(call.neighbors, call.rank, call.size)
    ]
    yield Round(tuple(transfers), 2 * window)
