"""Reduce: the root gets the combination of the vectors of all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from collx.choice import Choice
from collx.collectives import Call
from collx.patterns import circulant as circulant_graph
from collx.patterns import negabinary, trees
from collx.patterns.digits import (
    by_node,
    group,
    group_of,
    neighbors_by_node,
    power_below,
    weights,
)
from collx.registry import Need, algorithm, run
from collx.schedule import EMPTY, Blocks, Recv, Region, Send, Steps

Fan: TypeAlias = "tuple[int | None, list[Sequence[int]]]"
"""The parent of a rank, and its children in groups that it receives from together."""


def _up(call: Call, fan: Callable[[int, int], Fan], segment: int, top: int = 0) -> Steps:
    """Combine up a tree, segment by segment, and hand the result to the root.

    If operands may be exchanged the tree is turned so that its `top` is the root. Otherwise its
    ranks are those of the call, and the top sends the result to the root.
    """
    shift = call.root - top if call.commutative else 0
    holder = (top + shift) % call.size
    parent, groups = fan((call.rank - shift) % call.size, call.size)
    result = call.input
    if groups:
        result = call.output if call.rank == holder == call.root else call.scratch(len(call.input))
    yield from _combine_up(call, result, (parent, groups), shift, segment)
    if holder != call.root and call.rank == holder:
        yield Send(result, to=call.root)
    elif holder != call.root == call.rank:
        yield Recv(call.output, source=holder)


def _combine_up(call: Call, result: Region, fan: Fan, shift: int, segment: int) -> Steps:
    """Send each segment up while the next one arrives from below."""
    parent, groups = fan
    cells, passed = call.segment_cells(segment), EMPTY
    up = call.root if parent is None else (parent + shift) % call.size
    for own, into in zip(call.input.segments(cells), result.segments(cells), strict=True):
        sending = [Send(passed, to=up)] if passed else []
        for children in groups:
            yield (*sending, *_folding(call, own, into, children, shift))
            sending, own = [], into
        yield sending
        passed = own if parent is not None else EMPTY
    if passed:
        yield Send(passed, to=up)


def _folding(
    call: Call, own: Region, into: Region, children: Sequence[int], shift: int
) -> Iterator[Recv]:
    """Receives that combine the parts of the children, the nearest first, on the proper side."""
    me = (call.rank - shift) % call.size
    for child in children:
        left, right = (None, own) if child < me else (own, None)
        yield Recv(into, source=(child + shift) % call.size, left=left, right=right)
        own = into


def _together(tree: Callable[[int, int], trees.Tree]) -> Callable[[int, int], Fan]:
    """Receive from all children at once, and combine the nearest first."""

    def fan(rank: int, size: int) -> Fan:
        parent, children = tree(rank, size)
        nearest = sorted(children, key=lambda child: abs(child - rank))
        return parent, [nearest] if nearest else []

    return fan


@algorithm(
    covers=("binomial", "k-nomial: radix=4", "k-nomial trees: radix=4"),
    also={"binomial": {"radix": 2}},
    radix=(2, 4, 8),
    segment=(8192, 65536),
)
def knomial(call: Call, radix: int = 2, segment: int = 0) -> Steps:
    """Combine up a k-nomial tree, whose subtrees are consecutive ranks.

    Cost: rounds <= ceil(log(P, radix)) * ceil(n / m), sent = n,
    combined <= (radix - 1) * ceil(log(P, radix)) * n
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """

    def fan(rank: int, size: int) -> Fan:
        levels = trees.knomial_levels(rank, size, radix)
        return trees.knomial(rank, size, radix).parent, [level[::-1] for level in levels[::-1]]

    yield from _up(call, fan, segment)


@algorithm(
    covers=("flat", "reproducible"),
    also={"flat": {}},
    window=(0, 1, 4),
)
def linear(call: Call, window: int = 0) -> Steps:
    """Let the root receive all vectors, at most `window` of them at a time, in order.

    Cost: rounds = ceil((P - 1) / (window or P)), sent = n, combined = (P - 1) * n
    Reference: folklore.
    """
    others = sorted(range(call.size), key=lambda rank: abs(rank - call.root))[1:]
    step = window or call.size
    batches: list[Sequence[int]] = [others[at : at + step] for at in range(0, len(others), step)]
    is_root = call.rank == call.root
    fan: Fan = (None, batches) if is_root else (call.root, [])
    yield from _combine_up(call, call.output if is_root else call.input, fan, 0, 0)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("k-ary/binary pipelined: segment=8K",),
    radix=(2, 3, 4),
    segment=(8192, 65536),
)
def kary(call: Call, radix: int = 2, segment: int = 0) -> Steps:
    """Combine up a complete tree with `radix` children per rank, segment by segment.

    Cost: rounds = ceil(log((radix - 1) * P + 1, radix)) - 2 + ceil(n / m), sent <= n,
    combined = min(radix, P - 1) * n
    Reference: Pjesivac-Grbovic et al. 2007.
    """
    yield from _up(call, _together(partial(trees.kary, arity=radix)), segment)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("k-ary/binary pipelined: segment=8K",),
    segment=(8192, 65536),
)
def binary(call: Call, segment: int = 0) -> Steps:
    """Combine up a binary tree whose children are a power of two and twice that further on.

    Cost: rounds = floor(log2(P)) - 1 + ceil(n / m), sent = n, combined = min(2, P - 1) * n
    Reference: Pjesivac-Grbovic et al. 2007.
    """
    yield from _up(call, _together(trees.strided), segment)


@algorithm(covers=("in-order binary",), segment=(8192, 65536))
def in_order_binary(call: Call, segment: int = 0) -> Steps:
    """Combine up a binary tree rooted at the last rank, each subtree consecutive ranks.

    If the order matters the last rank sends the result to the root.

    Cost: rounds = floor(log2(P)) - 1 + ceil(n / m), sent <= 2 * n, combined = min(2, P - 1) * n
    Reference: Pjesivac-Grbovic et al. 2007.
    """
    yield from _up(call, _together(trees.post_order), segment, top=call.size - 1)


@algorithm(
    covers=("multi-chain: chains=4", "pipeline: segment=8K"),
    also={"pipeline": {"chains": 1}},
    chains=(1, 2, 4),
    segment=(8192, 65536),
)
def chain(call: Call, chains: int = 1, segment: int = 0) -> Steps:
    """Combine along chains of ranks that end at the root, segment by segment.

    Cost: rounds = ceil((P - 1) / chains) - 1 + ceil(n / m), sent = n,
    combined = min(chains, P - 1) * n
    Reference: Pjesivac-Grbovic et al. 2007.
    """
    yield from _up(call, _together(partial(trees.chain, heads=chains)), segment)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("Bine tree", "Bine tree, doubling distances: order=doubling"),
    order=("halving", "doubling"),
    segment=(8192, 65536),
)
def bine(call: Call, order: str = "halving", segment: int = 0) -> Steps:
    """Combine up a binomial tree with distances of alternating sign: shorter ways on a ring.

    The longest distance comes last (`halving`, as seen from the root) or first (`doubling`).

    Cost: rounds <= ceil(log2(P)) * ceil(n / m), sent = n, combined <= ceil(log2(P)) * n
    Reference: De Sensi et al. 2025.
    """

    def fan(rank: int, size: int) -> Fan:
        parent, children = negabinary.TREES[order](rank, size)
        return parent, [(child,) for child in children[::-1]]

    yield from _up(call, fan, segment)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("double binary tree", "two trees in two colours: segment=8K"),
    segment=(8192, 65536),
)
def double_tree(call: Call, segment: int = 0) -> Steps:
    """Combine half of the vector up each of two trees; no rank works inside both.

    The edges have two colours such that in each round, of alternating colour, every rank sends
    one message and receives one. This is the two-tree broadcast, backwards.

    Cost: rounds <= 2 * ceil(n / (2 * m)) + 2 * ceil(log2(P)) - 2, sent = n,
    combined <= 2 * ceil(n / 2)
    Reference: Sanders, Speck, Traff 2009.
    """
    rounds: defaultdict[int, list[Send | Recv]] = defaultdict(list)
    halves, results = call.input.split(2), call.result().split(2)
    for side, tree in enumerate(trees.double_tree(call.relative_rank, call.size)):
        cells = call.segment_cells(segment)
        for when, action in _reversed(call, tree, halves[side], results[side], cells):
            rounds[when].append(action._replace(lane=side))
    for when in sorted(rounds, reverse=True):
        yield rounds[when]


def _reversed(
    call: Call, tree: trees.TimedTree, own: Region, into: Region, cells: int
) -> Iterator[tuple[int, Send | Recv]]:
    """Give what a rank does in one tree, with the rounds of the broadcast: the last is first."""
    edges = sorted(zip(tree.departures, tree.children, strict=True), reverse=True)
    segments = zip(own.segments(cells), into.segments(cells), strict=True)
    for late, (held, result) in enumerate(segments):
        for departure, child in edges:
            yield departure + 2 * late, Recv(result, call.absolute(child), left=held)
            held = result
        if tree.parent is not None:
            yield tree.arrival + 2 * late, Send(held, to=call.absolute(tree.parent))


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("circulant: segment=128K", "n-block circulant schedules: segment=64K"),
    segment=(8192, 65536),
)
def circulant(call: Call, segment: int = 0) -> Steps:
    """Run the round-optimal broadcast of segments on the circulant graph backwards.

    Cost: rounds = ceil(n / m) - 1 + ceil(log2(P)), sent = n,
    combined <= ceil(log2(P)) * n
    Reference: Traff 2025.
    """
    own, cells = call.input, call.segment_cells(segment)
    partial = call.result().segments(cells)
    current = own.segments(cells)
    if not current:
        return
    rounds = circulant_graph.broadcast_rounds(call.relative_rank, call.size, len(current))
    for skip, received, sent in reversed(rounds):
        actions: list[Send | Recv] = []
        if sent is not None:
            actions.append(Send(current[sent], to=(call.rank - skip) % call.size))
        if received is not None:
            into, source = partial[received], (call.rank + skip) % call.size
            actions.append(Recv(into, source, left=current[received]))
            current[received] = into
        yield actions


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=(
        "reduce-scatter+gather",
        "k reduce-scatter+gather: radix=4",
        "Rabenseifner with shared fold",
    ),
    also={"srg": {"radix": 4}},
    radix=(2, 3, 4, 8),
    fold=("shared", "whole"),
)
def rabenseifner(call: Call, radix: int = 2, fold: str = "shared") -> Steps:
    """Reduce-scatter by recursive splitting, then gather along a k-nomial tree.

    Both work on the largest power of `radix` that is at most P. The ranks form that many groups
    of neighbours; before the splitting, the first rank of a group gets the combination of the
    group. With `fold="shared"` each rank of the group computes an equal share of it, with
    `fold="whole"` the first rank does so alone.

    Cost: rounds <= 2 * floor(log(P, radix)) + 2 * (P > radix ** floor(log(P, radix))),
    sent <= n + n / radix - n / radix ** floor(log(P, radix))
    + (n - n / radix) * (P > radix ** floor(log(P, radix))),
    combined <= n - n / radix ** floor(log(P, radix)) + (n - n / radix)
    * (P > radix ** floor(log(P, radix))) * (radix if fold == "whole" else 1)
    Reference: Rabenseifner 2004; Rabenseifner, Traff 2004.
    """
    leaders = power_below(call.size, radix)
    index = group_of(call.relative_rank, call.size, leaders)
    members = [call.absolute(rank) for rank in group(index, call.size, leaders)]
    result = call.result()
    folded = call.input
    if len(members) > 1:
        yield from _fold(call, members, result, whole=fold == "whole")
        folded = result
    if call.rank == members[0]:
        ranks = [call.absolute(group(i, call.size, leaders)[0]) for i in range(leaders)]
        yield from _split(ranks, index, folded.split(leaders), result.split(leaders), radix)
        yield from _gather(ranks, index, result.split(leaders), radix)


def _fold(call: Call, members: list[int], result: Region, whole: bool) -> Steps:
    """Give the first member the combination of the group's vectors."""
    count, me = len(members), members.index(call.rank)
    sides = (call.input, result)
    own, into = (
        Blocks([side, *[EMPTY] * (count - 1)]) if whole else side.split(count) for side in sides
    )
    others = [i for i in range(count) if i != me]
    yield (
        *(Send(own[i], to=members[i]) for i in others),
        *_adding(into[me], own[me], [members[i] for i in others]),
    )
    if me == 0:
        yield [Recv(into[i], source=members[i]) for i in others]
    else:
        yield Send(into[me], to=members[0])


def _adding(into: Region, own: Region, sources: Iterable[int]) -> Iterator[Recv]:
    """Receives that add to the own part."""
    for source in sources:
        yield Recv(into, source, left=own)
        own = into


def _split(ranks: list[int], index: int, own: Blocks, into: Blocks, radix: int) -> Steps:
    """Recursive splitting: rank number i of `ranks`, a power of `radix`, gets block i."""
    for weight in reversed(weights(len(ranks), radix)):
        first = index - index % (weight * radix)
        mine = first + index % (weight * radix) // weight * weight
        starts = [start for z in range(radix) if (start := first + z * weight) != mine]
        peers = [ranks[index - mine + start] for start in starts]
        sends = [Send(own[a : a + weight], to=peer) for a, peer in zip(starts, peers, strict=True)]
        part = slice(mine, mine + weight)
        yield (*sends, *_adding(into[part], own[part], peers))
        own = into


def _gather(ranks: list[int], index: int, blocks: Blocks, radix: int) -> Steps:
    """Gather the blocks of `ranks` at the first of them, in place, along a k-nomial tree."""
    for weight in weights(len(ranks), radix):
        digit = index // weight % radix
        if digit:
            yield Send(blocks[index : index + weight], to=ranks[index - digit * weight])
            return
        children = [index + z * weight for z in range(1, radix)]
        yield [Recv(blocks[child : child + weight], source=ranks[child]) for child in children]


@algorithm(covers=("3-2 elimination",))
def elimination(call: Call) -> Steps:
    """Recursive halving in which, of an odd number of ranks, one gives its halves to two others.

    Pairs swap halves and split into those with the lower and those with the upper half. Each of
    the two groups does the same with its half; then the root gets the other half.

    Cost: rounds <= 2 * floor(log2(P)), sent <= 3 / 2 * n, combined <= 2 * n
    Reference: Rabenseifner, Traff 2004.
    """
    rank, root = call.rank, call.root
    third = [0 if root == 2 else 2] if call.size % 2 else []
    paired = [other for other in range(call.size) if other not in third]
    halves, results = call.input.split(2), call.result().split(2)
    if rank in third:
        yield Send(halves[0], to=paired[0]), Send(halves[1], to=paired[1])
        return
    place = paired.index(rank)
    side, peer = place % 2, paired[place ^ 1]
    others = sorted([peer, *(third if place < 2 else [])], key=lambda other: abs(other - rank))
    half = results[side]
    yield Send(halves[1 - side], to=peer), *_folding(call, halves[side], half, others, 0)
    alike, twin = paired[side::2], paired[paired.index(root) ^ 1]
    top = root if root in alike else twin
    output = half if rank == top else EMPTY
    yield from elimination(
        call.sub("reduce", ranks=alike, root=alike.index(top), input=half, output=output)
    )
    if rank == root:
        yield Recv(results[1 - side], source=twin)
    elif rank == twin:
        yield Send(half, to=root)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("ring RS + direct gather",),
    reduce_scatter=("ring", "circulant", "recursive_halving", "pairwise"),
    gather=("linear", "knomial"),
)
def reduce_scatter_gather(
    call: Call, reduce_scatter: str | Choice = "ring", gather: str | Choice = "linear"
) -> Steps:
    """Any reduce-scatter, then any gather to the root.

    Cost: rounds = P, sent = n, combined = n * (P - 1) / P
    Reference: Patarasuk, Yuan 2009.
    """
    parts = call.input.split(call.size)
    sizes = [len(part) for part in parts]
    results = call.output.blocks(sizes) if call.rank == call.root else EMPTY
    block = results[call.rank] if isinstance(results, Blocks) else call.scratch(sizes[call.rank])
    yield from run(call.sub("reduce_scatter", input=parts, output=block), reduce_scatter)
    gathering = call.sub("gather", root=call.root, input=block, output=results, sizes=sizes)
    yield from run(gathering, gather)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("via allreduce",),
    allreduce=("ring", "rabenseifner", "circulant"),
)
def via_allreduce(call: Call, allreduce: str | Choice = "ring") -> Steps:
    """Make an allreduce, of which only the root keeps the result.

    Cost: rounds = 2 * (P - 1), sent = 2 * n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: folklore.
    """
    yield from run(call.sub("allreduce", input=call.input, output=call.result()), allreduce)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("two-level",),
    intra=("knomial", "linear"),
    inter=("knomial", "in_order_binary"),
)
def two_level(
    call: Call, intra: str | Choice = "knomial", inter: str | Choice = "knomial"
) -> Steps:
    """Reduce inside each node to one rank, then among these to the root.

    If the order matters, a node counts as several where its ranks are not consecutive.

    Cost: rounds <= 2 * ceil(log2(P)), sent = n
    Reference: Karonis et al. 2000.
    """
    nodes = by_node(call.nodes) if call.commutative else neighbors_by_node(call.nodes)
    leaders = [call.root if call.root in ranks else ranks[0] for ranks in nodes]
    mine = next(i for i, ranks in enumerate(nodes) if call.rank in ranks)
    partial, leads = call.input, call.rank == leaders[mine]
    if len(nodes[mine]) > 1:
        partial = call.result() if leads else EMPTY
        root = nodes[mine].index(leaders[mine])
        node = call.sub("reduce", ranks=nodes[mine], root=root, input=call.input, output=partial)
        yield from run(node, intra)
    if leads:
        root = leaders.index(call.root) if call.root in leaders else 0
        across = call.sub("reduce", ranks=leaders, root=root, input=partial, output=call.output)
        yield from run(across, inter)


@algorithm(
    needs=Need.COMMUTATIVE | Need.NODE_MAP,
    covers=("full lane",),
    reduce_scatter=("ring", "circulant"),
    reduce=("knomial", "rabenseifner"),
    gather=("linear", "knomial"),
)
def full_lane(
    call: Call,
    reduce_scatter: str | Choice = "ring",
    reduce: str | Choice = "knomial",
    gather: str | Choice = "linear",
) -> Steps:
    """Reduce-scatter inside each node, reduce each part between nodes, gather at the root's node.

    There are as many parts as the smallest node has ranks, and all travel at the same time.

    Cost: rounds <= 2 * P + ceil(log2(P)), sent <= 2 * n
    Reference: Traff, Hunold 2020.
    """
    nodes = by_node(call.nodes)
    node = next(ranks for ranks in nodes if call.rank in ranks)
    local, lanes = node.index(call.rank), min(map(len, nodes))
    parts = Blocks([*call.input.split(lanes), *[EMPTY] * (len(node) - lanes)])
    sizes = [len(part) for part in parts]
    results = call.output.blocks(sizes) if call.rank == call.root else EMPTY
    block = results[local] if isinstance(results, Blocks) else call.scratch(sizes[local])
    scattering = call.sub("reduce_scatter", ranks=node, input=parts, output=block)
    yield from run(scattering, reduce_scatter)
    if local < lanes:
        lane = [ranks[local] for ranks in nodes]
        root = next(i for i, ranks in enumerate(nodes) if call.root in ranks)
        output = block if call.rank == lane[root] else EMPTY
        yield from run(
            call.sub("reduce", ranks=lane, root=root, input=block, output=output), reduce
        )
    if call.root in node:
        root = node.index(call.root)
        gathering = call.sub(
            "gather", ranks=node, root=root, input=block, output=results, sizes=sizes
        )
        yield from run(gathering, gather)
