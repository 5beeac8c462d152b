"""Allgather: every rank gets the blocks of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from collx.choice import Choice
from collx.collectives import Call
from collx.patterns import circulant as circulant_graph
from collx.patterns import exchanges, folds
from collx.patterns.digits import by_node, group_of
from collx.patterns.exchanges import Lanes
from collx.registry import Need, algorithm, run
from collx.schedule import (
    EMPTY,
    Action,
    Blocks,
    Copy,
    Recv,
    Region,
    Round,
    Send,
    Steps,
    merge,
    renumber,
)


def _select(blocks: Blocks, indices: Sequence[int]) -> Region:
    if isinstance(indices, range):
        return blocks[indices.start : indices.stop]
    return blocks.select(indices)


def _own(call: Call) -> Steps:
    """Bring the own block to its place, unless it is there already."""
    if call.input != call.output_blocks[call.rank]:
        yield Copy(call.output_blocks[call.rank], call.input)


def _exchange(blocks: Blocks, rounds: exchanges.Rounds) -> Steps:
    """Send and receive blocks, each from and to its place."""
    for messages in rounds:
        yield [Send(_select(blocks, sent), to=to) for to, sent, _, _ in messages] + [
            Recv(_select(blocks, received), source=source) for _, _, source, received in messages
        ]


def _spread(call: Call, rounds: exchanges.Rounds) -> Steps:
    yield from _own(call)
    yield from _exchange(call.output_blocks, rounds)


@algorithm(
    covers=("ring",),
    segment=(0, 8192, 32768),
)
def ring(call: Call, segment: int = 0) -> Steps:
    """Pass the blocks round the ring, one in each round.

    Blocks are cut into segments, which move on as soon as they are there: a large block among
    small ones is then under way on many links at once.

    Cost: rounds = (P - 1) * ceil(n / P / m), sent = n * (P - 1) / P
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    blocks, cells = call.output_blocks, call.segment_cells(segment)
    yield from _own(call)
    passing = [blocks[call.rank - k].segments(cells) for k in range(call.size)]
    sends, receives = list(chain(*passing[:-1])), list(chain(*passing[1:]))
    own, sent, received = len(passing[0]), 0, 0
    while sent < len(sends) or received < len(receives):
        ready = sends[sent : min(sent + 1, own + received)]
        arriving = receives[received : received + 1]
        yield [Send(part, to=call.right) for part in ready] + [
            Recv(part, source=call.left) for part in arriving
        ]
        sent, received = sent + len(ready), received + len(arriving)


@algorithm(covers=("bidirectional ring",))
def bidirectional_ring(call: Call) -> Steps:
    """Pass the blocks round the ring in both directions, each block half way.

    Cost: rounds = floor(P / 2), sent = n * (P - 1) / P
    Reference: Chan, Heimlich, Purkayastha, van de Geijn 2007.
    """
    blocks, rank = call.output_blocks, call.rank
    yield from _own(call)
    for k in range(call.size // 2):
        right = Send(blocks[rank - k], to=call.right), Recv(blocks[rank - k - 1], call.left)
        left = Send(blocks[rank + k], to=call.left), Recv(blocks[rank + k + 1], call.right)
        # The rank opposite on an even ring is reached from one side only.
        yield right if 2 * (k + 1) == call.size else (*right, *left)


@algorithm(
    also={"recursive_exchange": {"radix": 4}, "recexch": {"radix": 4}},
    covers=(
        "recursive doubling",
        "k-exchange doubling: radix=4",
        "k-exchange halving: radix=4, order=halving",
        "k-exchange: radix=4",
        "recursive splitting: radix=4",
    ),
    radix=(2, 3, 4, 8),
    order=("doubling", "halving"),
)
def recursive_doubling(call: Call, radix: int = 2, order: str = "doubling") -> Steps:
    """Exchange all blocks held so far with the ranks at distance 1, 2, 4, ... (or ..., 4, 2, 1).

    With a larger radix it is `radix - 1` ranks in each round. Ranks that are too many first give
    their block to a neighbour, from whom they get the others at the end.

    Cost: rounds <= ceil(log(P, radix)) + 2 * (P != radix ** ceil(log(P, radix))),
    sent <= n * (1 + 2 * (P != radix ** ceil(log(P, radix))))
    Reference: Thakur, Rabenseifner, Gropp 2005; Sack, Gropp 2012.
    """
    blocks, rank, stay = call.output_blocks, call.rank, folds.kept(call.size, radix)
    groups = folds.consecutive(call.size, stay)
    index = group_of(rank, call.size, stay)
    leader, *others = groups[index]
    if rank != leader:
        yield [Send(call.input, to=leader), Recv(blocks[rank + 1 : rank + call.size], leader)]
        yield from _own(call)
        return
    yield [Recv(blocks[other], source=other) for other in others]
    yield from _own(call)
    rounds = exchanges.mixed_radix(index, folds.factors(stay, radix), order)
    leaders = [group[0] for group in groups]
    yield from renumber(_exchange(blocks.regroup(groups), rounds), leaders)
    yield [Send(blocks[other + 1 : other + call.size], to=other) for other in others]


@algorithm(
    also={"mesh_2d": {"dimensions": 2}, "mesh_3d": {"dimensions": 3}},
    covers=("2-D mesh", "3-D mesh: dimensions=3"),
    dimensions=(2, 3, 4),
)
def grid(call: Call, dimensions: int = 2) -> Steps:
    """Exchange directly with the ranks in the same row of a grid, then column, and so on.

    The grid is as near to a square (a cube, ...) as the divisors of the number of ranks allow.

    Cost: rounds <= dimensions, sent = n * (P - 1) / P
    Reference: Faraj, Yuan 2005.
    """
    factors = exchanges.grid_factors(call.size, dimensions)
    yield from _spread(call, exchanges.mixed_radix(call.rank, factors))


@algorithm(
    also={"k_bruck": {"radix": 4}},
    covers=("Bruck", "k-Bruck: radix=4", "Bruck, any radix: radix=4"),
    radix=(2, 3, 4, 8),
)
def bruck(call: Call, radix: int = 2) -> Steps:
    """Send all blocks held so far to the ranks 1, 2, 4, ... before this one (powers of `radix`).

    Blocks are received where they belong; nothing is rotated at the end.

    Cost: rounds = ceil(log(P, radix)), sent = n * (P - 1) / P
    Reference: Bruck, Ho, Kipnis, Upfal, Weathersby 1997.
    """
    slots = circulant_graph.bruck(call.size, radix)
    yield from _spread(call, exchanges.by_slots(call.rank, call.size, slots))


@algorithm(
    covers=("halving circulant graph", "halving circulant graph, k ports: ports=3"),
    ports=(1, 2, 3, 7),
    max_blocks=(0, 4, 16),
)
def circulant(call: Call, ports: int = 1, max_blocks: int = 0) -> Steps:
    """Double the blocks held, from ranks 1, 2, ... and at last about half the ring further on.

    With more ports it is `ports` ranks in each round. No message has more than `max_blocks` blocks
    (0: no limit), at the price of more rounds.

    Cost: rounds <= ceil(log(P, ports + 1)) + (P / max_blocks / ports if max_blocks else 0),
    sent = n * (P - 1) / P
    Reference: Träff 2024.
    """
    slots = circulant_graph.halving(call.size, ports, max_blocks)
    yield from _spread(call, exchanges.by_slots(call.rank, call.size, slots))


@algorithm(
    needs=Need.EVEN_SIZE,
    covers=("neighbor exchange",),
)
def neighbor_exchange(call: Call) -> Steps:
    """Exchange with the right and the left neighbour in turn the two blocks that came last.

    Cost: rounds = P / 2, sent = n * (P - 1) / P
    Reference: Chen, Zhang, Zhang, Yuan 2005.
    """
    yield from _spread(call, exchanges.neighbors(call.rank, call.size))


@algorithm(
    also={"sparbit": {"aggregation": 0}},
    covers=("sparbit", "PAT: aggregation=4", "parallel aggregated trees: aggregation=4"),
    aggregation=(0, 1, 4, 16),
)
def pat(call: Call, aggregation: int = 0) -> Steps:
    """Send every block down a binomial tree of its own, far ranks first, the trees in parallel.

    Not more than `aggregation` blocks, rounded down to a power of two, go in one message; with 0
    there is no limit, and the algorithm is known as sparbit.

    Cost: rounds <= ceil(log2(P)) if aggregation == 0 else log2(aggregation) + 2 * P / aggregation,
    sent = n * (P - 1) / P
    Reference: Jeaugey 2025; Loch, Koslovski 2021.
    """
    yield from _spread(call, exchanges.aggregated_trees(call.rank, call.size, aggregation))


@algorithm(
    also={"two_ranks": {}},
    covers=("direct", "linear", "two ranks"),
    window=(0, 4, 32),
    order=("shifted", "ranks"),
)
def linear(call: Call, window: int = 0, order: str = "shifted") -> Steps:
    """Send the own block to all others, and receive theirs, all at once.

    At most `window` exchanges are under way (0: no limit). They start with the neighbours
    (`order=shifted`), or go from rank 0 to the last.

    Cost: rounds = 1, sent = n * (P - 1) / P, messages = P - 1
    """
    blocks, rank, size = call.output_blocks, call.rank, call.size
    yield from _own(call)
    actions: list[Action] = []
    for k in range(1, size):
        to, source = (rank + k) % size, (rank - k) % size
        if order == "ranks":
            to = source = k - (k <= rank)
        actions += [Recv(blocks[source], source), Send(blocks[rank], to)]
    yield Round(tuple(actions), 2 * window)


@algorithm(covers=("pairwise xor",))
def pairwise(call: Call) -> Steps:
    """In round i exchange the own block with the rank whose number differs by exclusive or i.

    Cost: rounds <= 2 ** ceil(log2(P)) - 1, sent = n * (P - 1) / P
    Reference: Faraj, Yuan 2005.
    """
    blocks, rank = call.output_blocks, call.rank
    yield from _own(call)
    for i in range(1, 2 ** (call.size - 1).bit_length()):
        peer = rank ^ i
        if peer < call.size:
            yield Send(blocks[rank], to=peer), Recv(blocks[peer], source=peer)


@algorithm(covers=("circulant", "n-block circulant schedules"), pieces=(1, 4, 16))
def nblock(call: Call, pieces: int = 4) -> Steps:
    """Broadcast all blocks at once in as few rounds as there can be, each in several pieces.

    Each rank receives in a round one piece of nearly every block. How unequal the blocks are does
    not matter: all ranks move about n / pieces cells in every round.

    Cost: rounds = pieces - 1 + ceil(log2(P)), sent = n * (P - 1) / P
    Reference: Träff 2023.
    """
    rank, size = call.rank, call.size
    yield from _own(call)
    parts = [block.split(pieces) for block in call.output_blocks]
    each = [circulant_graph.broadcast_rounds((rank - r) % size, size, pieces) for r in range(size)]
    for plans in zip(*each, strict=True):
        skip = plans[0].skip
        sent = [parts[r][p.sent] for r, p in enumerate(plans) if p.sent is not None]
        received = [parts[r][p.received] for r, p in enumerate(plans) if p.received is not None]
        yield (
            Send(_joined(sent), to=(rank + skip) % size),
            Recv(_joined(received), source=(rank - skip) % size),
        )


def _joined(regions: Iterable[Region]) -> Region:
    return Region(*(piece for region in regions for piece in region.pieces))


@algorithm(
    also={"bine": {"order": "doubling"}},
    covers=("Swing butterfly", "Bine butterfly: order=doubling"),
    order=("halving", "doubling"),
)
def swing(call: Call, order: str = "halving") -> Steps:
    """Exchange with ranks at distance 1, -1, 3, -5, 11, ...: far ones first (`order=halving`).

    A last odd rank exchanges blocks with each of the others directly.

    Cost: rounds <= ceil(log2(P)) + 1, sent = n * (P - 1) / P
    Reference: De Sensi, Bonato, Saam, Hoefler 2024; De Sensi et al. 2025.
    """
    blocks, rank, even = call.output_blocks, call.rank, call.size // 2 * 2
    yield from _own(call)
    odd = [] if even == call.size else range(even) if rank == even else [even]
    yield [Send(blocks[rank], to=peer) for peer in odd] + [Recv(blocks[p], p) for p in odd]
    if rank < even:
        yield from _exchange(blocks, exchanges.swing(rank, even, order))


@algorithm(covers=("k-ring",), group=(2, 4, 8, 16))
def kring(call: Call, group: int = 4) -> Steps:
    """Run rings inside groups, and pass what they hold to the next group after each turn.

    Groups are consecutive ranks, as many as the largest divisor of P up to `group`.

    Cost: rounds = P - 1, sent = n * (P - 1) / P
    Reference: Wilkins et al. 2023.
    """
    blocks, size = call.output_blocks, exchanges.largest_divisor(call.size, group)
    index, first = call.rank % size, call.rank - call.rank % size
    yield from _own(call)
    for start in range(first, first - call.size, -size):
        held = [blocks[i] for i in range(start, start + size)]
        yield from ring(
            call.sub(
                "allgather",
                ranks=range(first, first + size),
                input=held[index],
                output=Blocks(held),
            )
        )
        if start - size > first - call.size:
            yield (
                Send(held[index], to=(call.rank + size) % call.size),
                Recv(blocks[start - size + index], source=(call.rank - size) % call.size),
            )


@algorithm(
    covers=("gather+bcast", "gatherv+bcast"),
    gather=("binomial", "linear"),
    bcast=("binomial", "scatter_allgather"),
)
def gather_bcast(
    call: Call, gather: str | Choice = "binomial", bcast: str | Choice = "binomial"
) -> Steps:
    """Gather all blocks at rank 0, which then broadcasts them.

    Cost: rounds <= 2 * ceil(log2(P)) + (0 if bcast == "binomial" else P),
    sent <= n * max(2, ceil(log2(P)))
    """
    blocks = call.output_blocks if call.rank == 0 else EMPTY
    yield from run(call.sub("gather", input=call.input, output=blocks, sizes=call.sizes), gather)
    yield from run(call.sub("bcast", output=call.output), bcast)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("balanced rank permutation",),
    order=("balanced", "nodes"),
    inner=("circulant", "ring", "recursive_doubling"),
)
def permuted(call: Call, order: str = "balanced", inner: str | Choice = "circulant") -> Steps:
    """Run another algorithm on the ranks in another order.

    With `order=balanced` large and small blocks alternate, which evens out the messages of all
    ranks; with `order=nodes` the ranks of a node follow each other.

    Cost: rounds <= (ceil(log2(P)) if inner == "circulant" else P),
    sent <= n * (1 if inner == "circulant" else 3)
    Reference: Jocksch, Ohana, Lanti, Karakasis, Villard 2020.
    """
    blocks = call.output_blocks
    ranks = exchanges.balanced_order([len(block) for block in blocks])
    if order == "nodes":
        ranks = list(chain(*by_node(call.nodes)))
    output = Blocks([blocks[rank] for rank in ranks])
    yield from run(call.sub("allgather", ranks=ranks, input=call.input, output=output), inner)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("two-level",),
    gather=("binomial", "linear"),
    inter=("ring", "bruck", "linear"),
    bcast=("binomial", "scatter_allgather"),
)
def two_level(
    call: Call,
    gather: str | Choice = "binomial",
    inter: str | Choice = "ring",
    bcast: str | Choice = "binomial",
) -> Steps:
    """Gather at one leader on each node, exchange between leaders, broadcast on each node.

    Cost: rounds <= P - 1 + 2 * ceil(log2(P)), sent <= n * (ceil(log2(P)) + 1)
    """
    blocks, at = call.output_blocks, Lanes(call.nodes, call.rank)
    own, leader = Blocks([blocks[rank] for rank in at.group]), at.place == 0
    sizes = [len(block) for block in own]
    yield from run(
        call.sub(
            "gather",
            ranks=at.group,
            input=call.input,
            output=own if leader else EMPTY,
            sizes=sizes,
        ),
        gather,
    )
    if leader:
        leaders, output = [group[0] for group in at.groups], blocks.regroup(at.groups)
        inside = call.sub("allgather", ranks=leaders, input=output[at.index], output=output)
        yield from run(inside, inter)
    yield from run(call.sub("bcast", ranks=at.group, output=call.output), bcast)


def _lane_parts(call: Call, at: Lanes) -> tuple[list[list[Region]], Blocks]:
    """What each lane brings from each node, and what this rank's lane does."""
    parts = [[call.output_blocks.select(ranks) for ranks in lanes] for lanes in at.dealt]
    return parts, Blocks([lanes[at.lane] for lanes in parts])


def _to_lanes(call: Call, at: Lanes) -> Steps:
    """Bring the blocks of a lane on this node together at its first rank."""
    first, *others = at.mine
    if not at.active:
        yield Send(call.input, to=first)
        return
    yield from _own(call)
    yield [Recv(call.output_blocks[other], source=other) for other in others]


def _share(call: Call, at: Lanes, parts: Sequence[Region]) -> Call:
    """The allgather on this node to which its first ranks bring one part each."""
    output = Blocks([*parts, *[EMPTY] * (len(at.group) - len(parts))])
    return call.sub("allgather", ranks=at.group, input=output[at.place], output=output)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("full lane",),
    lanes=(0, 1, 2, 4),
    inter=("circulant", "ring", "recursive_doubling"),
    intra=("ring", "linear", "bruck"),
)
def full_lane(
    call: Call, lanes: int = 0, inter: str | Choice = "circulant", intra: str | Choice = "ring"
) -> Steps:
    """Exchange with the same place on all nodes, all places at once, then on each node.

    There are as many lanes as ranks on the smallest node, or at most `lanes`.

    Cost: rounds <= P + ceil(log2(P)),
    sent <= n * (2 if intra == "ring" and inter == "circulant" else P + 3)
    Reference: Träff, Hunold 2020.
    """
    at = Lanes(call.nodes, call.rank, lanes)
    parts, blocks = _lane_parts(call, at)
    yield from _to_lanes(call, at)
    if at.active:
        own = blocks[at.index]
        yield from run(call.sub("allgather", ranks=at.ranks, input=own, output=blocks), inter)
    yield from run(_share(call, at, [_joined(lane) for lane in zip(*parts, strict=True)]), intra)


@algorithm(
    needs=Need.NODE_MAP,
    also={"leader_ring": {"lanes": 1}},
    covers=("multi-lane ring",),
    lanes=(0, 1, 2, 4),
    intra=("linear", "ring"),
)
def lane_ring(call: Call, lanes: int = 0, intra: str | Choice = "linear") -> Steps:
    """Run a ring across the nodes in every lane, and spread on the node what came before.

    Cost: rounds <= P + 1, sent <= n * P
    Reference: Faraj, Yuan 2005.
    """
    at = Lanes(call.nodes, call.rank, lanes)
    parts, blocks = _lane_parts(call, at)
    yield from _to_lanes(call, at)
    for index in range(at.index, at.index - len(parts), -1):
        spreading = run(_share(call, at, parts[index % len(parts)]), intra)
        yield from merge(_pass_on(at, blocks, index), spreading)


def _pass_on(at: Lanes, blocks: Blocks, index: int) -> Steps:
    """Pass what the lane brought from node `index` to the next node, unless it began there."""
    if at.active and index > at.index - len(blocks) + 1:
        yield (
            Send(blocks[index], to=at.ranks[(at.index + 1) % len(blocks)]),
            Recv(blocks[index - 1], source=at.ranks[at.index - 1]),
        )


@algorithm(
    needs=Need.NODE_MAP,
    also={"multi_object_bruck": {}},
    covers=("locality-aware Bruck", "multi-object Bruck"),
    radix=(0, 2, 4),
    intra=("ring", "linear", "bruck"),
)
def locality_bruck(call: Call, radix: int = 0, intra: str | Choice = "ring") -> Steps:
    """Run Bruck's algorithm between nodes, every rank of a node with another node at a time.

    After each round the node shares what its ranks received. The radix is one more than the
    ranks on the smallest node, or at most `radix`.

    Cost: rounds <= P + ceil(log2(P)), sent <= n * (2 if intra == "ring" else P)
    Reference: Bienz, Gautam, Kharel 2022; Huang et al. 2023.
    """
    at = Lanes(call.nodes, call.rank, radix - 1 if radix else 0)
    nodes, count = call.output_blocks.regroup(at.groups), len(at.groups)
    yield from _own(call)
    yield from run(_share(call, at, [call.output_blocks[rank] for rank in at.group]), intra)
    for messages in reversed(circulant_graph.bruck(count, at.count + 1)):
        parts = [nodes[at.index + start : at.index + stop] for start, stop in messages]
        for start, stop in messages[at.place : at.place + 1]:
            yield (
                Send(
                    nodes[at.index : at.index + stop - start],
                    to=at.groups[(at.index - start) % count][at.place],
                ),
                Recv(parts[at.place], source=at.groups[(at.index + start) % count][at.place]),
            )
        yield from run(_share(call, at, parts), intra)
