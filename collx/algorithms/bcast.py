"""Bcast: every rank gets the vector of the root."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from collx.choice import Choice
from collx.collectives import Call
from collx.patterns import negabinary, trees
from collx.patterns.circulant import broadcast_rounds
from collx.patterns.digits import by_node
from collx.patterns.trees import Tree
from collx.registry import Need, algorithm, run
from collx.schedule import EMPTY, Action, Blocks, Recv, Region, Schedule, Send, Steps, merge

SEGMENTS = (0, 8192, 65536, 524288)


def _by_level(call: Call, parent: int | None, levels: Iterable[Sequence[int]]) -> Steps:
    """Receive the whole vector, then send it to one level of children after the other."""
    if parent is not None:
        yield Recv(call.output, source=call.absolute(parent))
    for level in levels:
        yield [Send(call.output, to=call.absolute(child)) for child in level]


def _by_segment(call: Call, tree: Tree, segment: int) -> Steps:
    """Receive one segment while the one before it goes to all children."""
    segments = call.output.segments(call.segment_cells(segment))
    yield from _flow(call, tree, segments, [segments] * len(tree.children))


def _flow(
    call: Call, tree: Tree, arriving: Sequence[Region], leaving: Sequence[Sequence[Region]]
) -> Steps:
    """Receive segments from the parent, and send to each child those meant for it."""
    for k in range(max(map(len, (arriving, *leaving))) + 1):
        receives = [
            Recv(part, source=call.absolute(tree.parent))
            for part in arriving[k : k + 1]
            if tree.parent is not None
        ]
        yield receives + [
            Send(part, to=call.absolute(child))
            for child, parts in zip(tree.children, leaving, strict=True)
            for part in parts[k - 1 : k]
        ]


@algorithm(
    covers=("flat", "flat segmented: segment=8K"),
    also={"flat": {}},
    segment=SEGMENTS,
)
def linear(call: Call, segment: int = 0) -> Steps:
    """Send the vector from the root to every other rank, segment by segment.

    Cost: rounds = ceil(n / m), sent = n * (P - 1), messages = (P - 1) * ceil(n / m)
    Reference: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007.
    """
    yield from _by_segment(call, trees.flat(call.relative_rank, call.size), segment)


@algorithm(
    covers=(
        "binomial: radix=2",
        "k-nomial",
        "k-ary/k-nomial pipelined: segment=8K",
        "k-nomial trees",
    ),
    also={"binomial": {"radix": 2}},
    radix=(2, 4, 8),
    order=("halving", "doubling"),
    segment=SEGMENTS,
)
def knomial(call: Call, radix: int = 4, order: str = "halving", segment: int = 0) -> Steps:
    """Multiply the ranks that have the vector by `radix` in each round.

    The distances between parent and child are powers of the radix, the largest first
    (`halving`) or the smallest first (`doubling`). With segments every rank sends each segment to
    all its children at once.

    Cost: rounds <= ceil(log(P, radix)) + ceil(n / m) - 1,
    sent <= n * min(P - 1, (radix - 1) * ceil(log(P, radix)))
    Reference: Thakur, Rabenseifner, Gropp 2005; Pjesivac-Grbovic et al. 2007.
    """
    tree, levels = _KNOMIAL[order]
    mine = tree(call.relative_rank, call.size, radix)
    if segment:
        yield from _by_segment(call, mine, segment)
    else:
        yield from _by_level(call, mine.parent, levels(call.relative_rank, call.size, radix))


_KNOMIAL = {
    "halving": (trees.knomial, trees.knomial_levels),
    "doubling": (trees.knomial_doubling, trees.knomial_doubling_levels),
}


@algorithm(
    covers=("Bine tree", "Bine tree, doubling distances: order=doubling"),
    order=("halving", "doubling"),
    segment=SEGMENTS,
)
def bine(call: Call, order: str = "halving", segment: int = 0) -> Steps:
    """Double the ranks that have the vector, over distances that alternate in sign.

    The distances add up to less than those of the binomial tree, which helps where neighbouring
    ranks are close in the network. The longest comes first (`halving`) or last (`doubling`).

    Cost: rounds <= ceil(log2(P)) + ceil(n / m) - 1, sent <= n * ceil(log2(P))
    Reference: De Sensi et al. 2025 (Bine trees).
    """
    tree = negabinary.TREES[order](call.relative_rank, call.size)
    if segment:
        yield from _by_segment(call, tree, segment)
    else:
        yield from _by_level(call, tree.parent, [[child] for child in tree.children])


@algorithm(
    covers=(
        "k-ary tree: arity=4",
        "k-ary/k-nomial pipelined: arity=4, segment=8K",
        "binary pipelined: segment=8K",
    ),
    also={"binary": {"arity": 2}},
    arity=(2, 3, 4, 8),
    segment=SEGMENTS,
)
def kary(call: Call, arity: int = 2, segment: int = 0) -> Steps:
    """Pass segments down a heap, each one to all children at once.

    Cost: rounds = ceil(log(P * (arity - 1) + 1, arity)) + ceil(n / m) - 2,
    sent <= n * min(arity, P - 1)
    Reference: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007.
    """
    yield from _by_segment(call, trees.kary(call.relative_rank, call.size, arity), segment)


@algorithm(
    covers=("multi-chain: segment=8K", "pipeline: chains=1, segment=64K"),
    also={"pipeline": {"chains": 1, "segment": 65536}},
    chains=(1, 2, 4, 8),
    segment=SEGMENTS,
)
def chain(call: Call, chains: int = 4, segment: int = 0) -> Steps:
    """Pass segments along chains of ranks that begin at the root.

    Cost: rounds = ceil((P - 1) / min(chains, P - 1)) + ceil(n / m) - 1,
    sent = n * min(chains, P - 1)
    Reference: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007.
    """
    yield from _by_segment(call, trees.chain(call.relative_rank, call.size, chains), segment)


@algorithm(covers=("split binary: segment=8K",), segment=SEGMENTS)
def split_binary(call: Call, segment: int = 0) -> Steps:
    """Pass one half of the vector down each side of a binary tree, then swap halves in pairs.

    Odd ranks are on the left, even ones on the right: ranks 1 and 2, 3 and 4, ... swap. If the
    last rank has no partner, the root sends it the other half.

    Cost: rounds = ceil(log2(P + 1)) + ceil(n / 2 / m) - 1, sent <= 1.5 * n
    Reference: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007.
    """
    rank, size = call.relative_rank, call.size
    left, right = call.output.split(2)
    sides = [half.segments(call.segment_cells(segment)) for half in (right, left)]
    tree = trees.strided(rank, size)
    yield from _flow(call, tree, sides[rank % 2], [sides[child % 2] for child in tree.children])
    if rank:
        mine, other = (left, right) if rank % 2 else (right, left)
        partner = (rank + 1 if rank % 2 else rank - 1) % size
        receive = Recv(other, source=call.absolute(partner))
        yield (Send(mine, to=call.absolute(partner)), receive) if partner else receive
    elif size % 2 == 0:
        yield Send(right, to=call.absolute(size - 1))


@algorithm(covers=("double binary tree", "two trees in two colours: segment=8K"), segment=SEGMENTS)
def double_tree(call: Call, segment: int = 0) -> Steps:
    """Pass one half of the vector down each of two binary trees that share all ranks.

    A rank that has children in one tree has none in the other, so that each rank sends about as
    much as it receives. Edges of the trees take turns: a rank sends and receives one message in
    a round.

    Cost: rounds <= 2 * ceil(log2(P)) + 2 * ceil(n / 2 / m) - 2, sent <= n
    Reference: Sanders, Speck, Träff 2009.
    """
    rounds: defaultdict[int, list[Action]] = defaultdict(list)
    pair = trees.double_tree(call.relative_rank, call.size)
    for lane, (tree, half) in enumerate(zip(pair, call.output.split(2), strict=True)):
        for k, part in enumerate(half.segments(call.segment_cells(segment))):
            if tree.parent is not None:
                receive = Recv(part, source=call.absolute(tree.parent), lane=lane)
                rounds[tree.arrival + 2 * k].append(receive)
            for child, first in zip(tree.children, tree.departures, strict=True):
                rounds[first + 2 * k].append(Send(part, to=call.absolute(child), lane=lane))
    for number in sorted(rounds):
        yield rounds[number]


@algorithm(
    covers=("circulant pipeline: segment=128K", "n-block circulant schedules: segment=64K"),
    segment=SEGMENTS,
)
def circulant(call: Call, segment: int = 0) -> Steps:
    """Send one segment and receive another in every round, over skips of about P/2, P/4, ..., 1.

    No broadcast can take fewer rounds for this number of segments.

    Cost: rounds = ceil(log2(P)) + ceil(n / m) - 1, sent <= m * (ceil(log2(P)) + ceil(n / m) - 1)
    Reference: Träff 2024 (round-optimal n-block broadcast schedules).
    """
    parts = call.output.segments(call.segment_cells(segment)) or [EMPTY]
    for skip, sent, received in broadcast_rounds(call.relative_rank, call.size, len(parts)):
        actions: list[Action] = []
        if sent is not None:
            actions.append(Send(parts[sent], to=(call.rank + skip) % call.size))
        if received is not None:
            actions.append(Recv(parts[received], source=(call.rank - skip) % call.size))
        yield actions


@algorithm(
    covers=(
        "scatter+ring allgather",
        "scatter+rd allgather: allgather=recursive_doubling",
        "k-scatter+k-allgather: scatter=knomial(radix=4), allgather=recursive_doubling(radix=4)",
    ),
    also={"van_de_geijn": {}},
    scatter=("binomial", "knomial(radix=4)"),
    allgather=("ring", "recursive_doubling", "recursive_doubling(radix=4)", "bruck"),
)
def scatter_allgather(
    call: Call, scatter: str | Choice = "binomial", allgather: str | Choice = "ring"
) -> Steps:
    """Scatter blocks of the vector, then gather all blocks on all ranks.

    The cost is that with the default algorithms inside.

    Cost: rounds <= ceil(log2(P)) + P - 1, sent = 2 * n * (P - 1) / P
    Reference: Barnett et al. 1994 (van de Geijn); Thakur, Rabenseifner, Gropp 2005.
    """
    yield from _scatter(call, range(call.size), call.output_blocks, scatter)
    yield from _allgather(call, range(call.size), call.output_blocks, allgather)


def _scatter(call: Call, ranks: Sequence[int], blocks: Blocks, choice: str | Choice) -> Schedule:
    """Scatter blocks of the vector to a group of ranks."""
    sub = call.sub(
        "scatter",
        ranks=ranks,
        root=ranks.index(call.root),
        input=blocks if call.rank == call.root else EMPTY,
        output=blocks[ranks.index(call.rank)],
        sizes=[len(block) for block in blocks],
    )
    return run(sub, choice)


def _allgather(call: Call, ranks: Sequence[int], blocks: Blocks, choice: str | Choice) -> Schedule:
    """Collect the blocks on all ranks of a group; the root gets what it has into scratch."""
    output = blocks
    if call.rank == call.root:
        output = call.scratch(len(blocks.whole)).blocks([len(block) for block in blocks])
    own = blocks[ranks.index(call.rank)]
    return run(call.sub("allgather", ranks=ranks, input=own, output=output), choice)


def _part(
    call: Call, ranks: Sequence[int], root: int, output: Region, choice: str | Choice
) -> Schedule:
    """Broadcast in a group of ranks."""
    return run(call.sub("bcast", ranks=ranks, root=ranks.index(root), output=output), choice)


@algorithm(
    needs=Need.NODE_MAP,
    covers=(
        "two-level",
        "two-level overlapped: segment=512K",
        "topology trees",
        "HAN pipeline: segment=512K",
    ),
    inter=("binomial", "scatter_allgather", "pipeline(segment=8K)"),
    intra=("binomial", "linear", "binary"),
    segment=SEGMENTS,
)
def two_level(
    call: Call,
    inter: str | Choice = "binomial",
    intra: str | Choice = "binomial",
    segment: int = 0,
) -> Steps:
    """Broadcast to one leader on each node, and then from the leaders on the nodes.

    With segments the two levels overlap: a segment spreads on the nodes while the next one
    travels between them.

    The cost is that with the default algorithms inside.

    Cost: rounds <= (ceil(n / m) + 1) * ceil(log2(P)), sent <= 2 * n * ceil(log2(P))
    Reference: Luo, Wu, Bosilca, Pei, Cao, Patinyasakdikul, Zhong, Dongarra 2020 (HAN).
    """
    nodes = by_node(call.nodes)
    leaders = [call.root if call.root in node else node[0] for node in nodes]
    mine = next(i for i, node in enumerate(nodes) if call.rank in node)
    upper = leaders if call.rank in leaders else [call.rank]
    top = call.root if call.rank in leaders else call.rank
    segments = call.output.segments(call.segment_cells(segment))
    for first, second in zip([*segments, EMPTY], [EMPTY, *segments], strict=True):
        yield from merge(
            _part(call, upper, top, first, inter),
            _part(call, nodes[mine], leaders[mine], second, intra),
        )


@algorithm(
    needs=Need.NODE_MAP,
    covers=("full lane",),
    scatter=("binomial", "linear"),
    lane=("binomial", "pipeline(segment=8K)"),
    allgather=("ring", "recursive_doubling", "bruck"),
)
def full_lane(
    call: Call,
    scatter: str | Choice = "binomial",
    lane: str | Choice = "binomial",
    allgather: str | Choice = "ring",
) -> Steps:
    """Scatter on the node of the root, broadcast each part between nodes, gather on all nodes.

    There are as many parts as ranks on the smallest node, and a lane for each: one rank of every
    node. The lanes work at the same time. Ranks without a lane get everything in the end.

    The cost is that with the default algorithms inside.

    Cost: rounds <= 2 * ceil(log2(P)) + P - 1, sent <= n * (ceil(log2(P)) + 2)
    Reference: Träff, Hunold 2020.
    """
    nodes = by_node(call.nodes)
    lanes = min(map(len, nodes))
    here = next(node for node in nodes if call.rank in node)
    place = here.index(call.rank)
    parts = [*call.output.split(lanes)]
    blocks = Blocks(parts + [EMPTY] * (len(here) - lanes))
    if call.root in here:
        yield from _scatter(call, here, blocks, scatter)
    if place < lanes:
        home = next(node for node in nodes if call.root in node)
        ranks = [node[place] for node in nodes]
        yield from _part(call, ranks, home[place], parts[place], lane)
    yield from _allgather(call, here, blocks, allgather)
