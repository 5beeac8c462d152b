"""Exscan: rank r gets the combination of the vectors of ranks 0 to r - 1; rank 0 gets nothing."""

from __future__ import annotations

from collections.abc import Generator

from collx.choice import Choice
from collx.collectives import Call
from collx.patterns.digits import neighbors_by_node, weights
from collx.patterns.prefixes import doubly_pipelined, in_two_trees
from collx.registry import Need, algorithm, run
from collx.schedule import (
    EMPTY,
    Action,
    Answer,
    Combine,
    Recv,
    Region,
    Send,
    Steps,
    Yielded,
)


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=("linear chain", "pipelined chain: segment=8K"),
    segment=(8192, 65536),
)
def linear(call: Call, segment: int = 0) -> Steps:
    """Each rank waits for the rank before it, combines and passes on, segment by segment.

    Cost: rounds = P - 2 + ceil(n / m), sent = n, combined = n * (P > 2)
    Reference: folklore.
    """
    cells, passed = call.segment_cells(segment), EMPTY
    through = call.scratch(len(call.input)) if 0 < call.rank < call.size - 1 else call.input
    parts = [region.segments(cells) for region in (call.input, call.output, through)]
    last = call.rank == call.size - 1
    for own, prefix, total in zip(*parts, strict=True):
        sending = [Send(passed, to=call.right)] if passed else []
        receiving = [Recv(prefix, source=call.left)] if call.rank else []
        yield [*sending, *receiving]
        if call.rank and not last:
            yield Combine(total, prefix, own)
        passed = EMPTY if last else total
    if passed:
        yield Send(passed, to=call.right)


@algorithm(needs=Need.SEPARATE_BUFFERS, covers=("flat",))
def flat(call: Call) -> Steps:
    """Every rank sends its vector to all higher ranks, which combine in order.

    Cost: rounds = 1, sent = (P - 1) * n, combined = (P - 2) * n
    Reference: folklore.
    """
    sends = [Send(call.input, to=higher) for higher in range(call.rank + 1, call.size)]
    receives = [
        Recv(call.output, source=lower, right=call.output if lower < call.rank - 1 else None)
        for lower in reversed(range(call.rank))
    ]
    yield [*sends, *receives]


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=("recursive doubling",),
)
def recursive_doubling(call: Call) -> Steps:
    """Exchange the total of a growing group of ranks with the rank at distance 1, 2, 4, ...

    The total of a lower group also goes into the prefix.

    Cost: rounds = ceil(log2(P)), sent <= ceil(log2(P)) * n, combined <= (2 * ceil(log2(P)) - 2) * n
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    total, known, arrived = call.input, False, call.scratch(len(call.input))
    for distance in weights(call.size):
        peer, lower = call.rank ^ distance, bool(call.rank & distance)
        if peer >= call.size:
            continue
        other = arrived if known or not lower else call.output
        yield Send(total, to=peer), Recv(other, source=peer)
        combines: list[Action] = []
        if 2 * distance < call.size:
            into = total if total != call.input else call.scratch(len(call.input))
            combines.append(Combine(into, *((other, total) if lower else (total, other))))
            total = into
        if lower and known:
            combines.append(Combine(call.output, other, call.output))
        yield combines
        known = known or lower


def _plan(plan: str, length: int) -> str:
    """Plan steps after which every rank knows the `length` values before it.

    In a step S each rank sends what it knows and its own value, in a step T only what it knows:
    the length L grows to 2 L + 1 or to 2 L.
    """
    if plan == "fewest_combines":
        return "".join("TS"[int(bit)] for bit in f"{length:b}")
    if plan == "one_two_three":
        steps = "SS"[: min(length, 2)]
    else:
        rounds = length.bit_length()
        own = next(k for k in range(1, rounds + 1) if (2**k - 1) << (rounds - k) >= length)
        steps = "S" * own
    known = 2 ** len(steps) - 1
    while known < length:
        steps, known = steps + "T", 2 * known
    return steps


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=(
        "window scan in fewest rounds",
        "window scan by bits of P - 1: plan=fewest_combines",
        "1-2-3 doubling: plan=one_two_three",
    ),
    also={"one_two_three": {"plan": "one_two_three"}},
    plan=("fewest_rounds", "one_two_three", "fewest_combines"),
)
def window(call: Call, plan: str = "fewest_rounds") -> Steps:
    """Each rank knows a growing window of values before it, and sends it past its end.

    The plan says when a rank sends its own value along. `"fewest_rounds"` does so in the first
    steps only, `"fewest_combines"` as the bits of P - 1 say, `"one_two_three"` in two steps, which
    combines least and sometimes takes a round more.

    Cost: rounds <= ceil(log2(P)) + (plan == "one_two_three"),
    sent <= (ceil(log2(P)) + (plan == "one_two_three")) * n,
    combined <= 2 * ceil(log2(P)) * n
    Reference: Traff 2025 (1-2-3 doubling), Traff 2026.
    """
    known, whole = 0, call.input
    for step in _plan(plan, call.size - 1):
        with_own = step == "S"
        distance = known + with_own
        actions: list[Action] = []
        if call.rank + distance < call.size and (with_own or call.rank):
            if with_own and known and call.rank:
                whole = whole if whole != call.input else call.scratch(len(call.input))
                yield Combine(whole, call.output, call.input)
            actions.append(Send(whole if with_own else call.output, to=call.rank + distance))
        source = call.rank - distance
        if source > 0 or (source == 0 and with_own):
            right = call.output if known else None
            actions.append(Recv(call.output, source, right=right))
        yield actions
        known += distance


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=("doubly pipelined tree: segment=8K",),
    segment=(8192, 65536),
)
def tree(call: Call, segment: int = 0) -> Steps:
    """Totals go up a binary search tree while prefixes come down, segment by segment.

    Cost: rounds <= 3 * ceil(n / m) - 2 + 4 * floor(log2(P)), sent <= 3 * n, combined <= 4 * n
    Reference: Sanders, Traff 2006.
    """
    yield from doubly_pipelined(call, segment, inclusive=False)


@algorithm(needs=Need.SEPARATE_BUFFERS, covers=("two trees: segment=8K",), segment=(8192, 65536))
def double_tree(call: Call, segment: int = 0) -> Steps:
    """Half of the vector in each of two trees: totals go up while prefixes come down.

    Ranks that have children in one tree have none in the other (but one, if P is odd).

    Cost: rounds <= 4 * floor(log2(P + 1)) + 2 * ceil(n / 2 / m), sent <= 2 * n, combined <= 3 * n
    Reference: Sanders, Speck, Träff 2009.
    """
    yield from in_two_trees(call, segment, inclusive=False)


@algorithm(
    needs=Need.NODE_MAP | Need.SEPARATE_BUFFERS,
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
    yield from run(call.sub("exscan", ranks=node, input=call.input, output=call.output), intra)
    total = yield from _node_total(call, node)
    prefix = call.output if call.rank == node[0] else call.scratch(len(call.input))
    yield from carry(call, groups, total, prefix, inter, bcast)
    if 0 < node[0] < call.rank:
        yield Combine(call.output, prefix, call.output)


def _node_total(call: Call, node: list[int]) -> Generator[Yielded, Answer, Region]:
    """On the last rank of a node, the combination of all; on other ranks nothing."""
    if call.rank != node[-1]:
        return EMPTY
    if call.rank == node[0]:
        return call.input
    total = call.scratch(len(call.input))
    yield Combine(total, call.output, call.input)
    return total


def carry(
    call: Call,
    groups: list[list[int]],
    total: Region,
    prefix: Region,
    inter: str | Choice,
    bcast: str | Choice,
) -> Steps:
    """Turn totals, on the last ranks of groups, into prefixes on all ranks past the first group."""
    group = next(ranks for ranks in groups if call.rank in ranks)
    if call.rank == group[-1]:
        last = [ranks[-1] for ranks in groups]
        yield from run(call.sub("exscan", ranks=last, input=total, output=prefix), inter)
    if group[0]:
        root = len(group) - 1
        yield from run(call.sub("bcast", ranks=group, root=root, output=prefix), bcast)


@algorithm(
    needs=Need.NODE_MAP | Need.SEPARATE_BUFFERS,
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
    yield from run(call.sub("exscan", ranks=node, input=call.input, output=call.output), intra)
    total = yield from _node_total(call, node)
    prefix = call.output if call.rank == node[0] else call.scratch(len(call.input))
    yield from carry_in_lanes(call, groups, total, prefix, inter)
    if 0 < node[0] < call.rank:
        yield Combine(call.output, prefix, call.output)


def carry_in_lanes(
    call: Call, groups: list[list[int]], total: Region, prefix: Region, inter: str | Choice
) -> Steps:
    """Do what `carry` does, each part of the total on a rank of its own."""
    group = next(ranks for ranks in groups if call.rank in ranks)
    local, lanes = group.index(call.rank), min(map(len, groups))
    sizes = [len(part) for part in call.input.split(lanes)] + [0] * (len(group) - lanes)
    part, parts, last = call.scratch(sizes[local]), prefix.blocks(sizes), len(group) - 1
    input = total.blocks(sizes) if local == last else EMPTY
    scatter = call.sub("scatter", ranks=group, root=last, input=input, output=part, sizes=sizes)
    yield from run(scatter, "linear")
    if local < lanes:
        lane = [ranks[local] for ranks in groups]
        yield from run(call.sub("exscan", ranks=lane, input=part, output=parts[local]), inter)
    if group[0]:
        gather = call.sub("allgather", ranks=group, input=parts[local], output=parts)
        yield from run(gather, "ring")
