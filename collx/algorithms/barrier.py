"""Barrier: no rank leaves before every rank has entered."""

from __future__ import annotations

from collx.choice import Choice
from collx.collectives import Call
from collx.patterns.digits import by_node, power_below, weights
from collx.patterns.trees import knomial as knomial_tree
from collx.patterns.trees import knomial_levels
from collx.registry import Need, algorithm, run
from collx.schedule import TOKEN, Recv, Send, Steps, renumber


@algorithm(covers=("central/linear",))
def linear(call: Call) -> Steps:
    """Everyone reports to rank 0, which answers everyone.

    Cost: rounds = 2, messages = P - 1
    Reference: folklore.
    """
    others = range(1, call.size)
    if call.rank == 0:
        yield [Recv(TOKEN, source=other) for other in others]
        yield [Send(TOKEN, to=other) for other in others]
    else:
        yield Send(TOKEN, to=0)
        yield Recv(TOKEN, source=0)


@algorithm(covers=("all-to-all tokens",))
def all_to_all(call: Call) -> Steps:
    """Every rank signals every other rank.

    Cost: rounds = 1, messages = P - 1
    Reference: folklore.
    """
    hops = range(1, call.size)
    yield [Send(TOKEN, to=(call.rank + hop) % call.size) for hop in hops] + [
        Recv(TOKEN, source=(call.rank - hop) % call.size) for hop in hops
    ]


@algorithm(
    covers=("dissemination k=2", "k-dissemination: radix=4", "k-port dissemination: radix=4"),
    radix=(2, 4, 8),
)
def dissemination(call: Call, radix: int = 2) -> Steps:
    """Signal the ranks 1, radix, radix^2, ... further on, radix - 1 of them in each round.

    Cost: rounds = ceil(log(P, radix)), messages <= (radix - 1) * ceil(log(P, radix))
    Reference: Hensgen, Finkel, Manber 1988; Hoefler, Mehlan, Mietke, Rehm 2006.
    """
    for distance in weights(call.size, radix):
        hops = [z * distance for z in range(1, radix) if z * distance < call.size]
        yield [Send(TOKEN, to=(call.rank + hop) % call.size) for hop in hops] + [
            Recv(TOKEN, source=(call.rank - hop) % call.size) for hop in hops
        ]


@algorithm(
    covers=("recursive doubling+fold", "k-recursive exchange: radix=4"),
    also={"recursive_doubling": {"radix": 2}},
    radix=(2, 4, 8),
)
def recursive_exchange(call: Call, radix: int = 2) -> Steps:
    """In groups of `radix` ranks, at distances 1, radix, radix^2, ..., all signal all others.

    Ranks beyond the largest power of `radix` report to a rank inside it before, and are
    released by it after.

    Cost: rounds = floor(log(P, radix)) + 2 * (P > radix ** floor(log(P, radix))),
    messages <= (radix - 1) * ceil(log(P, radix))
    Reference: Sack, Gropp 2012.
    """
    inside = power_below(call.size, radix)
    if call.rank >= inside:
        yield Send(TOKEN, to=call.rank % inside)
        yield Recv(TOKEN, source=call.rank % inside)
        return
    guests = range(call.rank + inside, call.size, inside)
    yield [Recv(TOKEN, source=guest) for guest in guests]
    for weight in weights(inside, radix):
        first = call.rank - call.rank // weight % radix * weight
        peers = [peer for z in range(radix) if (peer := first + z * weight) != call.rank]
        yield [Send(TOKEN, to=peer) for peer in peers] + [Recv(TOKEN, source=p) for p in peers]
    yield [Send(TOKEN, to=guest) for guest in guests]


@algorithm(covers=("double ring",))
def double_ring(call: Call) -> Steps:
    """Send a token round the ring twice: once to collect, once to release.

    Cost: rounds = 2 * P, messages = 2
    Reference: Pjesivac-Grbovic et al. 2007.
    """
    pass_on, wait = Send(TOKEN, to=call.right), Recv(TOKEN, source=call.left)
    for _ in range(2):
        yield pass_on if call.rank == 0 else wait
        yield wait if call.rank == 0 else pass_on


@algorithm(
    covers=("binomial up/down", "k-nomial fan-in/out: radix=4"),
    also={"binomial": {"radix": 2}},
    radix=(2, 4, 8),
)
def knomial(call: Call, radix: int = 2) -> Steps:
    """Send reports up a k-nomial tree to rank 0, and releases down.

    Cost: rounds = 2 * ceil(log(P, radix)), messages <= (radix - 1) * ceil(log(P, radix))
    Reference: folklore.
    """
    yield from _fan_in(call, radix)
    yield from _fan_out(call, radix)


def _fan_in(call: Call, radix: int) -> Steps:
    """Wait for the subtree of this rank, then report to the parent."""
    for level in reversed(knomial_levels(call.rank, call.size, radix)):
        yield [Recv(TOKEN, source=child) for child in level]
    parent = knomial_tree(call.rank, call.size, radix).parent
    if parent is not None:
        yield Send(TOKEN, to=parent)


def _fan_out(call: Call, radix: int) -> Steps:
    """Wait for the parent, then release the subtree."""
    parent = knomial_tree(call.rank, call.size, radix).parent
    if parent is not None:
        yield Recv(TOKEN, source=parent)
    for level in knomial_levels(call.rank, call.size, radix):
        yield [Send(TOKEN, to=child) for child in level]


@algorithm(needs=Need.TWO_RANKS, covers=("two ranks",))
def two_ranks(call: Call) -> Steps:
    """Two ranks signal each other.

    Cost: rounds = 1, messages = 1
    Reference: folklore.
    """
    yield Send(TOKEN, to=call.right), Recv(TOKEN, source=call.left)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("node two-level",),
    radix=(2, 4),
    inter=("dissemination", "recursive_doubling"),
)
def two_level(call: Call, radix: int = 2, inter: str | Choice = "dissemination") -> Steps:
    """Gather reports inside each node, let the first rank of each node meet, release the nodes.

    Cost: rounds <= 2 * ceil(log2(P)), messages <= 2 * ceil(log2(P))
    Reference: Mamidala, Liu, Panda 2004.
    """
    nodes = by_node(call.nodes)
    mine = next(ranks for ranks in nodes if call.rank in ranks)
    node = call.sub("barrier", ranks=mine)
    yield from renumber(_fan_in(node, radix), mine)
    if node.rank == 0:
        leaders = [ranks[0] for ranks in nodes]
        yield from run(call.sub("barrier", ranks=leaders), inter)
    yield from renumber(_fan_out(node, radix), mine)
