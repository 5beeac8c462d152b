"""Neighbourhood alltoall: every rank has a block for each edge that begins there.

A rank knows its own neighbours and the sizes of its own blocks. Algorithms in which blocks pass
through other ranks need the whole graph, which the ranks tell each other once.
"""

from __future__ import annotations

from collx.collectives import Call
from collx.patterns.exchanges import grid_factors
from collx.patterns.journeys import ByDimension, ByGroup, ByHalves, ByNode, carry, straight
from collx.registry import Need, algorithm
from collx.schedule import Round, Steps


@algorithm(covers=("linear",), window=(0, 1, 4))
def linear(call: Call, window: int = 0) -> Steps:
    """Send each block straight to every neighbour, `window` edges at a time (0: all).

    Cost: rounds = 1, sent = n * (P - 1) / P, messages = P - 1
    Reference: MPI Forum 2012.
    """
    transfers = straight(call, lambda slot: call.input_blocks[slot])
    yield Round(tuple(transfers), 2 * window)


@algorithm(needs=Need.WHOLE_GRAPH, covers=("isomorphic neighbourhoods",), dims=((), (2, 2), (2, 3)))
def combining(call: Call, dims: tuple[int, ...] = ()) -> Steps:
    """Let blocks travel in a grid dimension by dimension, those with the same next hop together.

    On a torus a rank then has as many messages as there are different coordinates among its
    neighbours: 6 and not 26 if it has all 26 around it in three dimensions. The grid is `dims`,
    extended by a dimension if it is too small; without `dims` that of the Cartesian communicator,
    otherwise the ranks in rows and columns. Steps onto places where no rank is are left out.

    Cost: rounds <= 2, sent <= 2 * n * (1 - 1 / P ** 0.5)
    Reference: Träff, Carpen-Amarie, Hunold, Rougier 2015; Träff, Hunold 2019.
    """
    fitting = dims or call.neighbors.dims or grid_factors(call.size, 2)
    yield from carry(call, ByDimension(fitting, call.size), each_edge=True)


@algorithm(needs=Need.WHOLE_GRAPH, smallest=(1, 2, 4))
def distance_halving(call: Call, smallest: int = 1) -> Steps:
    """Hand all blocks for ranks in the other half of a range to an agent there, and halve again.

    The agent is at the same place in the other half. Ranges of up to `smallest` ranks are not
    halved.

    Cost: rounds = ceil(log2(P)), sent <= n * ceil(log2(P)), messages <= ceil(log2(P))
    Reference: after Ghazimirsaeed, Zhou, Ruhela, Bayatpour, Subramoni, Panda 2020.
    """
    yield from carry(call, ByHalves(call.size, smallest), each_edge=True)


@algorithm(needs=Need.WHOLE_GRAPH, covers=("common neighbourhoods",), group=(2, 4, 8))
def common_neighbors(call: Call, group: int = 2) -> Steps:
    """Let `group` ranks that share a neighbour hand their blocks for it to one of them.

    Cost: rounds <= 2, sent <= 1.5 * n, messages <= P - 1
    Reference: Ghazimirsaeed, Mirsadeghi, Afsahi 2019.
    """
    assert call.neighbors.graph is not None
    yield from carry(call, ByGroup(call.neighbors.graph, group), each_edge=True)


@algorithm(needs=Need.WHOLE_GRAPH | Need.NODE_MAP, covers=("locality-aware neighbourhoods",))
def node_aware(call: Call) -> Steps:
    """Send one message from node to node: collected on one, spread on the other.

    Each other node has one rank that sends there, and one that receives from there.

    Cost: rounds <= 3, messages <= 2 * P
    Reference: Bienz, Olson, Gropp 2019; Collom, Li, Bienz 2023.
    """
    yield from carry(call, ByNode(call.nodes), each_edge=True)
