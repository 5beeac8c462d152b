"""Reduce-scatter: each rank gets its block of the combination of the vectors of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from collx.choice import Choice
from collx.collectives import Call
from collx.patterns import circulant as circulant_graph
from collx.patterns import exchanges, folds
from collx.patterns.digits import by_node, group_of, power_below
from collx.patterns.exchanges import Lanes
from collx.registry import Need, algorithm, run
from collx.schedule import (
    EMPTY,
    Action,
    Blocks,
    Combine,
    Copy,
    Recv,
    Region,
    Send,
    Steps,
    renumber,
)


def _joined(regions: Iterable[Region]) -> Region:
    return Region(*(piece for region in regions for piece in region.pieces))


def _result(call: Call) -> Region:
    """Where the own block may be combined from the start: in place the output is still input."""
    own = call.input_blocks[call.rank]
    free = own == call.output or not call.output.overlaps(call.input)
    return call.output if free else call.scratch(len(own))


def _deliver(call: Call, result: Region) -> Steps:
    if result != call.output:
        yield Copy(call.output, result)


def _add(rank: int, own: Region, into: Region, peer: int) -> Recv:
    """Combine with the message of a peer, the lower rank's operand on the left."""
    return Recv(into, peer, right=own) if peer < rank else Recv(into, peer, left=own)


def _sums(call: Call, result: Region, kept: Iterable[int]) -> dict[int, Region]:
    """Where the sums of some blocks are kept: the own one in the result, others in scratch."""
    numbers = sorted({number % call.size for number in kept} - {call.rank})
    sizes = [len(call.input_blocks[number]) for number in numbers]
    scratch = call.scratch(sum(sizes)).blocks(sizes)
    return {call.rank: result, **dict(zip(numbers, scratch, strict=True))}


def _collect(call: Call, rounds: exchanges.Rounds) -> Steps:
    """Run an allgather backwards: sums for blocks go to where it would receive them from."""
    result, size = _result(call), call.size
    partial = list(call.input_blocks)
    sums = _sums(call, result, (b for messages in rounds for m in messages for b in m.sent))
    for messages in reversed(rounds):
        actions: list[Action] = [
            Send(_joined(partial[b % size] for b in received), to=source)
            for _, _, source, received in messages
        ]
        for peer, blocks, _, _ in messages:
            own = _joined(partial[b % size] for b in blocks)
            for b in blocks:
                partial[b % size] = sums[b % size]
            into = _joined(partial[b % size] for b in blocks)
            actions.append(_add(call.rank, own, into, peer))
        yield actions
    yield from _deliver(call, result)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("ring",),
)
def ring(call: Call) -> Steps:
    """Pass partial sums to the right, one block at a time, each rank adding its own part.

    Cost: rounds = P - 1, sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Patarasuk, Yuan 2009.
    """
    blocks, rank, result = call.input_blocks, call.rank, _result(call)
    space = call.scratch(max(map(len, blocks)))
    sending = blocks[rank - 1]
    for k in range(2, call.size + 1):
        own = blocks[rank - k]
        partial = space.part(0, len(own)) if k < call.size else result
        yield Send(sending, to=call.right), Recv(partial, source=call.left, right=own)
        sending = partial
    yield from _deliver(call, result)


@algorithm(needs=Need.COMMUTATIVE, covers=("bidirectional ring",))
def bidirectional_ring(call: Call) -> Steps:
    """Pass partial sums both ways, each rank's part to a block by the shorter way.

    Cost: rounds = floor(P / 2), sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Chan, Heimlich, Purkayastha, van de Geijn 2007.
    """
    blocks, rank, half, result = call.input_blocks, call.rank, call.size // 2, _result(call)
    space = [call.scratch(max(map(len, blocks))) for _ in range(2)]
    up, down = blocks[rank + half], blocks[rank - half]
    for k in reversed(range(half)):
        above, below = blocks[rank + k], blocks[rank - k]
        sums = [part.part(0, len(own)) for part, own in zip(space, (above, below), strict=True)]
        up_sum, down_sum = sums if k else (result, result)
        rising = (Send(up, to=call.right), Recv(up_sum, source=call.left, right=above))
        adding = Recv(down_sum, source=call.right, left=below if k else result)
        # The rank opposite on an even ring is reached from one side only.
        opposite = 2 * (k + 1) == call.size
        yield rising if opposite else (*rising, Send(down, to=call.left), adding)
        up, down = up_sum, below if opposite else down_sum
    yield from _deliver(call, result)


def _folded(call: Call, radix: int, inner: Callable[[Call], Steps]) -> Steps:
    """Ranks that are too many give their vector to a neighbour, and get their block at the end."""
    blocks, rank, stay = call.input_blocks, call.rank, folds.kept(call.size, radix)
    groups = folds.consecutive(call.size, stay)
    leader, *others = groups[group_of(rank, call.size, stay)]
    if rank != leader:
        yield Send(call.input, to=leader)
        yield Recv(call.output, source=leader)
        return
    for other in others:
        sums = call.scratch(len(call.input))
        yield Recv(sums, source=other, left=call.input)
        blocks = sums.blocks([len(block) for block in blocks])
    given = [call.scratch(len(blocks[other])) for other in others]
    inside = call.sub(
        "reduce_scatter",
        ranks=[group[0] for group in groups],
        input=blocks.regroup(groups),
        output=_joined([call.output, *given]),
    )
    yield from renumber(inner(inside), [group[0] for group in groups])
    yield [Send(block, to=other) for other, block in zip(others, given, strict=True)]


@algorithm(
    needs=Need.COMMUTATIVE,
    also={"recursive_exchange": {"radix": 4}, "recexch": {"radix": 4}},
    covers=("recursive halving", "k-recursive exchange: radix=4", "recursive splitting: radix=4"),
    radix=(2, 3, 4, 8),
)
def recursive_halving(call: Call, radix: int = 2) -> Steps:
    """Exchange halves of what is left with the ranks at half, a quarter, ... of the distance.

    With a larger radix the vector is cut into `radix` parts in each round. Ranks that are too many
    first give their vector to a neighbour.

    Cost: rounds <= ceil(log(P, radix)) + 2 * (P != radix ** ceil(log(P, radix))), sent <= n,
    combined <= n * (1 + 2 * (P != radix ** ceil(log(P, radix))))
    Reference: Thakur, Rabenseifner, Gropp 2005; Sack, Gropp 2012.
    """

    def halve(inside: Call) -> Steps:
        factors = folds.factors(inside.size, radix)
        return _collect(inside, exchanges.mixed_radix(inside.rank, factors, "doubling"))

    yield from _folded(call, radix, halve)


@algorithm(
    also={"mirror": {}},
    covers=("butterfly pof2", "butterfly any P", "mirrored reduce-scatter in rank order"),
    radix=(2, 3, 4, 8),
)
def butterfly(call: Call, radix: int = 2) -> Steps:
    """Exchange every second block with the next rank, then every fourth with the one after, ...

    Each sum is of neighbouring ranks, so that their order is kept. Ranks that are too many first
    give their vector to a neighbour.

    Cost: rounds <= ceil(log(P, radix)) + 2 * (P != radix ** ceil(log(P, radix))), sent <= n,
    combined <= n * (1 + 2 * (P != radix ** ceil(log(P, radix))))
    Reference: Träff 2005.
    """

    def spread(inside: Call) -> Steps:
        factors = folds.factors(inside.size, radix)
        return _collect(inside, exchanges.mixed_radix(inside.rank, factors, "halving"))

    yield from _folded(call, radix, spread)


@algorithm(
    covers=("recursive doubling",),
)
def recursive_doubling(call: Call) -> Steps:
    """Exchange with the ranks at distance 1, 2, 4, ... all that is still of use to them.

    After a round twice as many ranks have combined what they all need: the blocks of the other
    ranks, and each its own. Ranks that are too many first give their vector to a neighbour.

    Cost: rounds <= ceil(log2(P)) + 1, sent <= n * max(1, ceil(log2(P)) - 1),
    combined <= n * ceil(log2(P))
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    yield from _folded(call, 2, _double)


def _double(call: Call) -> Steps:
    blocks, rank, size = call.input_blocks, call.rank, call.size
    sums = call.scratch(len(call.input)).blocks([len(block) for block in blocks])
    distance = 1
    while distance < size:
        peer, distance = rank ^ distance, 2 * distance
        others = range((rank & -distance) + distance, (rank & -distance) + size)
        own, into = blocks.select([*others, rank]), sums.select([*others, rank])
        yield Send(blocks.select([*others, peer]), to=peer), _add(rank, own, into, peer)
        blocks = sums
    yield Copy(call.output, sums[rank])


@algorithm(
    also={"linear": {"window": 0}, "direct": {"window": 0}},
    covers=("pairwise",),
    window=(1, 4, 32, 0),
)
def pairwise(call: Call, window: int = 1) -> Steps:
    """In round i send the rank i further on its block, and add what comes from i ranks back.

    A round does `window` of these exchanges at once (0: all). Contributions of lower and of higher
    ranks are added up apart, so that the order of ranks is kept.

    Cost: rounds = ceil((P - 1) / (window or P)), sent = n * (P - 1) / P,
    combined = n * (P - 1) / P, messages = P - 1
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    blocks, rank, size, result = call.input_blocks, call.rank, call.size, _result(call)
    higher = call.scratch(len(result))
    hops, window = range(1, size), window or size
    for start in range(0, size - 1, window):
        actions: list[Action] = []
        for hop in hops[start : start + window]:
            own = blocks[rank] if hop == 1 else result
            sums, source = (result, rank - hop) if hop <= rank else (higher, rank - hop + size)
            right = own if hop <= rank else None if source == size - 1 else higher
            actions.append(Send(blocks[rank + hop], to=(rank + hop) % size))
            actions.append(Recv(sums, source=source, right=right))
        yield actions
    if rank < size - 1:
        yield Combine(result, result if rank else blocks[rank], higher)
    yield from _deliver(call, result)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("halving circulant graph", "halving circulant graph, k ports: ports=3"),
    ports=(1, 2, 3, 7),
    max_blocks=(0, 4, 16),
)
def circulant(call: Call, ports: int = 1, max_blocks: int = 0) -> Steps:
    """Halve the blocks held: send the upper half to the rank that is so many ranks further on.

    With more ports it is `ports` ranks in each round. No message has more than `max_blocks` blocks
    (0: no limit), at the price of more rounds.

    Cost: rounds <= ceil(log(P, ports + 1)) + (P / max_blocks / ports if max_blocks else 0),
    sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Träff 2024.
    """
    slots = circulant_graph.halving(call.size, ports, max_blocks)
    yield from _collect(call, exchanges.by_slots(call.rank, call.size, slots))


@algorithm(
    needs=Need.COMMUTATIVE,
    radix=(2, 3, 4, 8),
)
def bruck(call: Call, radix: int = 2) -> Steps:
    """Send sums for the upper blocks to the rank that is a power of `radix` further on.

    Cost: rounds = ceil(log(P, radix)), sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Bruck, Ho 1993; Bernaschi, Iannello, Lauria 2003.
    """
    slots = circulant_graph.bruck(call.size, radix)
    yield from _collect(call, exchanges.by_slots(call.rank, call.size, slots))


@algorithm(
    also={"mesh_2d": {"dimensions": 2}, "mesh_3d": {"dimensions": 3}},
    dimensions=(2, 3, 4),
)
def grid(call: Call, dimensions: int = 2) -> Steps:
    """Exchange directly with the ranks in the same row of a grid, then column, and so on.

    The grid is as near to a square (a cube, ...) as the divisors of the number of ranks allow.

    Cost: rounds <= dimensions, sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Faraj, Yuan 2005.
    """
    factors = exchanges.grid_factors(call.size, dimensions)
    yield from _collect(call, exchanges.mixed_radix(call.rank, factors, "halving"))


@algorithm(
    needs=Need.COMMUTATIVE | Need.EVEN_SIZE,
)
def neighbor_exchange(call: Call) -> Steps:
    """Exchange with the right and the left neighbour in turn, two blocks at a time.

    Cost: rounds = P / 2, sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Chen, Zhang, Zhang, Yuan 2005.
    """
    yield from _collect(call, exchanges.neighbors(call.rank, call.size))


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("PAT: aggregation=4", "parallel aggregated trees: aggregation=4"),
    aggregation=(0, 1, 4, 16),
)
def pat(call: Call, aggregation: int = 0) -> Steps:
    """Collect every block up a binomial tree of its own, near ranks first, the trees in parallel.

    Not more than `aggregation` blocks, rounded down to a power of two, go in one message; with 0
    there is no limit.

    Cost: rounds <= ceil(log2(P)) if aggregation == 0 else log2(aggregation) + 2 * P / aggregation,
    sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Jeaugey 2025.
    """
    yield from _collect(call, exchanges.aggregated_trees(call.rank, call.size, aggregation))


@algorithm(
    needs=Need.COMMUTATIVE,
    also={"bine": {"order": "doubling"}},
    covers=("Swing butterfly", "Bine butterfly: order=doubling"),
    order=("halving", "doubling"),
)
def swing(call: Call, order: str = "halving") -> Steps:
    """Exchange with ranks at distance 1, -1, 3, -5, 11, ..., near ones first (`order=halving`).

    A last odd rank exchanges blocks with each of the others directly.

    Cost: rounds <= ceil(log2(P)) + 1, sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: De Sensi, Bonato, Saam, Hoefler 2024; De Sensi et al. 2025.
    """
    blocks, rank, even = list(call.input_blocks), call.rank, call.size // 2 * 2
    if rank == even:
        yield from pairwise(call, window=0)
        return
    if even < call.size:
        own, blocks[rank] = blocks[rank], call.scratch(len(call.output))
        yield Send(blocks[even], to=even), Recv(blocks[rank], source=even, left=own)
    given = Blocks(blocks[:even])
    inside = call.sub("reduce_scatter", ranks=range(even), input=given, output=call.output)
    yield from _collect(inside, exchanges.swing(rank, even, order))


@algorithm(needs=Need.COMMUTATIVE, covers=("n-block circulant schedules",), pieces=(1, 4, 16))
def nblock(call: Call, pieces: int = 4) -> Steps:
    """Reduce all blocks at once in as few rounds as there can be, each in several pieces.

    It is the simultaneous broadcast of all blocks backwards. How unequal the blocks are does not
    matter: all ranks move about n / pieces cells in every round.

    Cost: rounds = pieces - 1 + ceil(log2(P)), sent = n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Träff 2023.
    """
    rank, size, result = call.rank, call.size, _result(call)
    sums = [block.split(pieces) for _, block in sorted(_sums(call, result, range(size)).items())]
    partial = [list(block.split(pieces)) for block in call.input_blocks]
    each = [circulant_graph.broadcast_rounds((rank - r) % size, size, pieces) for r in range(size)]
    for plans in reversed(list(zip(*each, strict=True))):
        out = [
            partial[r][plan.received] for r, plan in enumerate(plans) if plan.received is not None
        ]
        adding = [(r, plan.sent) for r, plan in enumerate(plans) if plan.sent is not None]
        own = _joined(partial[r][piece] for r, piece in adding)
        into = _joined(sums[r][piece] for r, piece in adding)
        for r, piece in adding:
            partial[r][piece] = sums[r][piece]
        skip = plans[0].skip
        yield (
            Send(_joined(out), to=(rank - skip) % size),
            Recv(into, source=(rank + skip) % size, left=own),
        )
    yield from _deliver(call, result)


@algorithm(needs=Need.COMMUTATIVE, covers=("halving binary blocks",))
def binary_blocks(call: Call) -> Steps:
    """Reduce-scatter in groups of 2^k ranks, then pass the sums on to the next larger group.

    There is a group for each binary digit of P. The largest group holds the result of all and
    gives every rank outside it its block.

    Cost: rounds <= 2 * ceil(log2(P)) + 1, sent <= 2 * n, combined <= 2 * n
    Reference: Rabenseifner, Träff 2004.
    """
    blocks, rank, size = call.input_blocks, call.rank, call.size
    block, largest = folds.binary_block(rank, size), power_below(size)
    width, outside = len(block.parts), rank + largest
    # A rank of the largest group also holds the block of at most one rank outside it.
    parts = blocks.regroup(range(i, size, largest) for i in range(largest))
    held = parts.regroup(range(i, i + width) for i in range(0, largest, width))
    given = call.scratch(len(blocks[outside])) if outside < size else EMPTY
    sums = call.output + given if rank < largest else call.scratch(len(parts.select(block.parts)))
    yield from recursive_halving(
        call.sub("reduce_scatter", ranks=block.ranks, input=held, output=sums)
    )
    yield [Recv(sums, source=peer, left=sums) for peer in block.smaller]
    step = width // max(len(block.larger), 1)
    pieces = sums.blocks(len(parts[i : i + step]) for i in block.parts[::step])
    yield [Send(piece, to=peer) for piece, peer in zip(pieces, block.larger, strict=False)]
    if rank >= largest:
        yield Recv(call.output, source=rank - largest)
    elif outside < size:
        yield Send(given, to=outside)


@algorithm(
    covers=("reduce+scatterv", "reduce+scatter"),
    reduce=("binomial", "linear"),
    scatter=("binomial", "linear"),
)
def reduce_then_scatter(
    call: Call, reduce: str | Choice = "binomial", scatter: str | Choice = "binomial"
) -> Steps:
    """Reduce to rank 0, which then scatters the blocks.

    Cost: rounds <= 2 * ceil(log2(P)), sent <= 2 * n
    """
    vector, blocks = EMPTY, Blocks([])
    if call.rank == 0:
        vector = call.scratch(len(call.input))
        blocks = vector.blocks([len(block) for block in call.input_blocks])
    yield from run(call.sub("reduce", input=call.input, output=vector), reduce)
    given = blocks if call.rank == 0 else EMPTY
    yield from run(call.sub("scatter", input=given, output=call.output, sizes=call.sizes), scatter)


@algorithm(
    needs=Need.COMMUTATIVE | Need.NODE_MAP,
    covers=("balanced rank permutation",),
    order=("balanced", "nodes"),
    inner=("circulant", "ring", "recursive_halving"),
)
def permuted(call: Call, order: str = "balanced", inner: str | Choice = "circulant") -> Steps:
    """Run another algorithm on the ranks in another order.

    With `order=balanced` large and small blocks alternate, which evens out the messages of all
    ranks; with `order=nodes` the ranks of a node follow each other.

    Cost: rounds <= (ceil(log2(P)) if inner == "circulant" else P),
    sent <= n * (1 if inner == "circulant" else 3)
    Reference: Jocksch, Ohana, Lanti, Karakasis, Villard 2020.
    """
    blocks = call.input_blocks
    ranks = exchanges.balanced_order([len(block) for block in blocks])
    if order == "nodes":
        ranks = [rank for group in by_node(call.nodes) for rank in group]
    given = Blocks([blocks[rank] for rank in ranks])
    yield from run(call.sub("reduce_scatter", ranks=ranks, input=given, output=call.output), inner)


@algorithm(
    needs=Need.COMMUTATIVE | Need.NODE_MAP,
    also={"ring_two_level": {"inter": "ring"}},
    covers=("ring two-level",),
    reduce=("binomial", "linear"),
    inter=("ring", "circulant", "recursive_halving"),
    scatter=("binomial", "linear"),
)
def two_level(
    call: Call,
    reduce: str | Choice = "binomial",
    inter: str | Choice = "ring",
    scatter: str | Choice = "binomial",
) -> Steps:
    """Reduce to one leader on each node, reduce-scatter between leaders, scatter on each node.

    Cost: rounds <= P - 1 + 2 * ceil(log2(P)), sent <= 3 * n
    """
    at, vector, part = Lanes(call.nodes, call.rank), EMPTY, EMPTY
    sizes = [[len(call.input_blocks[rank]) for rank in group] for group in at.groups]
    if at.place == 0:
        vector, part = call.scratch(len(call.input)), call.scratch(sum(sizes[at.index]))
    yield from run(call.sub("reduce", ranks=at.group, input=call.input, output=vector), reduce)
    if at.place == 0:
        blocks = vector.blocks([len(block) for block in call.input_blocks]).regroup(at.groups)
        leaders = [group[0] for group in at.groups]
        inside = call.sub("reduce_scatter", ranks=leaders, input=blocks, output=part)
        yield from run(inside, inter)
    given = part.blocks(sizes[at.index]) if at.place == 0 else EMPTY
    inside = call.sub(
        "scatter", ranks=at.group, input=given, output=call.output, sizes=sizes[at.index]
    )
    yield from run(inside, scatter)


@algorithm(
    needs=Need.COMMUTATIVE | Need.NODE_MAP,
    covers=("full lane",),
    lanes=(0, 1, 2, 4),
    inter=("circulant", "ring", "recursive_halving"),
    intra=("circulant", "ring", "pairwise"),
)
def full_lane(
    call: Call, lanes: int = 0, inter: str | Choice = "circulant", intra: str | Choice = "ring"
) -> Steps:
    """Reduce-scatter on each node, then with the same place on all nodes, all places at once.

    There are as many lanes as ranks on the smallest node, or at most `lanes`.

    Cost: rounds <= P + ceil(log2(P)), sent <= 2 * n,
    combined <= n * (2 if intra == "ring" and inter == "circulant" else P + 3)
    Reference: Träff, Hunold 2020.
    """
    at = Lanes(call.nodes, call.rank, lanes)
    by_lane = [
        [call.input_blocks.select(ranks) for ranks in lane] for lane in zip(*at.dealt, strict=True)
    ]
    given = [_joined(lane) for lane in by_lane] + [EMPTY] * (len(at.group) - at.count)
    sums = call.scratch(len(given[at.place]))
    inside = call.sub("reduce_scatter", ranks=at.group, input=Blocks(given), output=sums)
    yield from run(inside, intra)
    first, *others = at.mine
    if not at.active:
        yield Recv(call.output, source=first)
        return
    parts = [call.scratch(len(call.input_blocks[other])) for other in others]
    inside = call.sub(
        "reduce_scatter",
        ranks=at.ranks,
        input=sums.blocks([len(part) for part in by_lane[at.lane]]),
        output=_joined([call.output, *parts]),
    )
    yield from run(inside, inter)
    yield [Send(part, to=other) for other, part in zip(others, parts, strict=True)]
