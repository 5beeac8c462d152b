"""Scan: rank r gets the combination of the vectors of ranks 0 to r."""

from __future__ import annotations

from collx.algorithms.exscan import carry, carry_in_lanes
from collx.choice import Choice
from collx.collectives import Call
from collx.patterns.digits import neighbors_by_node, weights
from collx.patterns.prefixes import doubly_pipelined, in_two_trees
from collx.registry import Need, algorithm, run
from collx.schedule import EMPTY, Action, Combine, Copy, Recv, Send, Steps


def _first_keeps_own(call: Call) -> Steps:
    """Give rank 0 its own vector as the result."""
    if call.rank == 0 and call.input != call.output:
        yield Copy(call.output, call.input)


@algorithm(
    covers=("linear chain", "pipelined chain: segment=8K"),
    segment=(8192, 65536),
    also={"chain": {}},
)
def linear(call: Call, segment: int = 0) -> Steps:
    """Each rank waits for the rank before it, combines and passes on, segment by segment.

    Cost: rounds = P - 2 + ceil(n / m), sent = n, combined = n
    Reference: folklore.
    """
    cells, passed = call.segment_cells(segment), EMPTY
    yield from _first_keeps_own(call)
    for own, into in zip(call.input.segments(cells), call.output.segments(cells), strict=True):
        sending = [Send(passed, to=call.right)] if passed else []
        receiving = [Recv(into, source=call.left, right=own)] if call.rank else []
        yield [*sending, *receiving]
        passed = into if call.rank < call.size - 1 else EMPTY
    if passed:
        yield Send(passed, to=call.right)


@algorithm(covers=("flat",))
def flat(call: Call) -> Steps:
    """Every rank sends its vector to all higher ranks, which combine in order.

    Cost: rounds = 1, sent = (P - 1) * n, combined = (P - 1) * n
    Reference: folklore.
    """
    yield from _first_keeps_own(call)
    own = [call.input, *[call.output] * call.size]
    yield [Send(call.input, to=higher) for higher in range(call.rank + 1, call.size)] + [
        Recv(call.output, source=lower, right=right)
        for lower, right in zip(reversed(range(call.rank)), own, strict=False)
    ]


@algorithm(covers=("recursive doubling",))
def recursive_doubling(call: Call) -> Steps:
    """Exchange the total of a growing group of ranks with the rank at distance 1, 2, 4, ...

    The total of a lower group also goes into the result.

    Cost: rounds = ceil(log2(P)), sent <= ceil(log2(P)) * n, combined <= (2 * ceil(log2(P)) - 1) * n
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    total = result = call.input
    arrived = call.scratch(len(call.input))
    yield from _first_keeps_own(call)
    for distance in weights(call.size):
        peer, lower = call.rank ^ distance, bool(call.rank & distance)
        if peer >= call.size:
            continue
        yield Send(total, to=peer), Recv(arrived, source=peer)
        combines: list[Action] = []
        if 2 * distance < call.size:
            into = total if total != call.input else call.scratch(len(call.input))
            operands = (arrived, total) if lower else (total, arrived)
            combines, total = [Combine(into, *operands)], into
        if lower:
            combines.append(Combine(call.output, arrived, result))
            result = call.output
        yield combines


@algorithm(covers=("prefix doubling",))
def dissemination(call: Call) -> Steps:
    """Send the combination of the last 1, 2, 4, ... ranks that far ahead.

    Cost: rounds = ceil(log2(P)), sent <= ceil(log2(P)) * n, combined = ceil(log2(P)) * n
    Reference: Hillis, Steele 1986.
    """
    result = call.input
    yield from _first_keeps_own(call)
    for distance in weights(call.size):
        actions: list[Action] = []
        if call.rank + distance < call.size:
            actions.append(Send(result, to=call.rank + distance))
        if call.rank >= distance:
            actions.append(Recv(call.output, source=call.rank - distance, right=result))
            result = call.output
        yield actions


@algorithm(
    covers=(
        "window scan in fewest rounds",
        "window scan by bits of P - 1: exscan=window(plan=fewest_combines)",
        "1-2-3 doubling: exscan=window(plan=one_two_three)",
    ),
    exscan=("window", "window(plan=fewest_combines)", "window(plan=one_two_three)", "tree"),
)
def via_exscan(call: Call, exscan: str | Choice = "window") -> Steps:
    """Any exclusive scan, then each rank adds its own vector.

    Cost: rounds = ceil(log2(P)), sent <= ceil(log2(P)) * n, combined <= 2 * ceil(log2(P)) * n
    Reference: Traff 2025.
    """
    prefix = call.scratch(len(call.input))
    yield from run(call.sub("exscan", input=call.input, output=prefix), exscan)
    yield from _first_keeps_own(call)
    if call.rank:
        yield Combine(call.output, prefix, call.input)


@algorithm(covers=("doubly pipelined tree: segment=8K",), segment=(8192, 65536))
def tree(call: Call, segment: int = 0) -> Steps:
    """Totals go up a binary search tree while prefixes come down, segment by segment.

    Cost: rounds <= 3 * ceil(n / m) - 2 + 4 * floor(log2(P)), sent <= 3 * n, combined <= 3 * n
    Reference: Sanders, Traff 2006.
    """
    yield from doubly_pipelined(call, segment, inclusive=True)


@algorithm(covers=("two trees: segment=8K",), segment=(8192, 65536))
def double_tree(call: Call, segment: int = 0) -> Steps:
    """Half of the vector in each of two trees: totals go up while prefixes come down.

    Ranks that have children in one tree have none in the other (but one, if P is odd).

    Cost: rounds <= 4 * floor(log2(P + 1)) + 2 * ceil(n / 2 / m), sent <= 2 * n, combined <= 3 * n
    Reference: Sanders, Speck, Träff 2009.
    """
    yield from in_two_trees(call, segment, inclusive=True)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("node two-level",),
    intra=("recursive_doubling", "linear"),
    inter=("recursive_doubling", "linear"),
    bcast=("knomial", "chain"),
)
def two_level(
    call: Call,
    intra: str | Choice = "recursive_doubling",
    inter: str | Choice = "recursive_doubling",
    bcast: str | Choice = "knomial",
) -> Steps:
    """Scan inside each node, scan the totals of the nodes, tell each node what comes before it.

    A node counts as several where its ranks are not consecutive.

    Cost: rounds <= 3 * ceil(log2(P)) + 1, sent <= (2 * ceil(log2(P)) + 1) * n
    Reference: Traff, Hunold 2020.
    """
    groups = neighbors_by_node(call.nodes)
    node = next(ranks for ranks in groups if call.rank in ranks)
    yield from run(call.sub("scan", ranks=node, input=call.input, output=call.output), intra)
    prefix = call.scratch(len(call.input))
    yield from carry(call, groups, call.output, prefix, inter, bcast)
    if node[0]:
        yield Combine(call.output, prefix, call.output)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("full lane",),
    intra=("recursive_doubling", "linear"),
    inter=("recursive_doubling", "linear"),
)
def full_lane(
    call: Call,
    intra: str | Choice = "recursive_doubling",
    inter: str | Choice = "recursive_doubling",
) -> Steps:
    """Like `two_level`, but each rank of a node carries a part of the total of the node.

    There are as many parts as the smallest node has ranks, and all travel at the same time.

    Cost: rounds <= 2 * P + 2 * ceil(log2(P)), sent <= (2 * ceil(log2(P)) + 2) * n
    Reference: Traff, Hunold 2020.
    """
    groups = neighbors_by_node(call.nodes)
    node = next(ranks for ranks in groups if call.rank in ranks)
    yield from run(call.sub("scan", ranks=node, input=call.input, output=call.output), intra)
    prefix = call.scratch(len(call.input))
    yield from carry_in_lanes(call, groups, call.output, prefix, inter)
    if node[0]:
        yield Combine(call.output, prefix, call.output)
