"""Alltoall: every rank has a block for every rank.

A rank knows the sizes of the blocks it sends and of those it receives. Where blocks pass through
other ranks these must learn their sizes: either all blocks are equal, or sizes travel with blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

from collx.algorithms import barrier
from collx.choice import Choice
from collx.collectives import Call
from collx.patterns.digits import (
    Move,
    Route,
    by_node,
    circulant_route,
    digit_route,
    swing_route,
)
from collx.patterns.exchanges import grid_factors, largest_divisor
from collx.registry import Need, algorithm, run
from collx.schedule import (
    EMPTY,
    TOKEN,
    Action,
    Answer,
    Blocks,
    Copy,
    Recv,
    RecvInts,
    Region,
    Round,
    Send,
    SendInts,
    Steps,
    Yielded,
    merge,
)


def _keep_own(call: Call) -> Copy:
    return Copy(call.output_blocks[call.rank], call.input_blocks[call.rank])


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=("all posted", "throttled scatter: window=32"),
    also={"scattered": {"window": 32}},
    window=(0, 1, 4, 32),
)
def linear(call: Call, window: int = 0) -> Steps:
    """Send every block straight to its rank, the near ones first, `window` at a time (0: all).

    Cost: rounds = 1, sent = n * (P - 1) / P, messages = P - 1
    Reference: folklore.
    """
    actions: list[Action] = [_keep_own(call)]
    for hop in range(1, call.size):
        to, source = (call.rank + hop) % call.size, (call.rank - hop) % call.size
        actions += [
            Recv(call.output_blocks[source], source=source),
            Send(call.input_blocks[to], to=to),
        ]
    yield Round(tuple(actions), 2 * window)


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=("pairwise xor/shift", "pairwise", "pairwise + sync: sync=token"),
    sync=("none", "token", "barrier", "one_barrier"),
)
def pairwise(call: Call, sync: str = "none") -> Steps:
    """Exchange blocks with one rank in each round: by xor if P is a power of two, else by shift.

    With `sync="token"` a rank waits until the next receiver is ready, with `"barrier"` until all
    are; with `"one_barrier"` all ranks wait for one another once, at the start.

    Cost: rounds <= (P - 1) * (1 + ceil(log2(P)) * (sync != "none")), sent = n * (P - 1) / P
    Reference: Thakur, Rabenseifner, Gropp 2005; Faraj, Yuan 2005.
    """
    yield _keep_own(call)
    power_of_two = call.size & (call.size - 1) == 0
    for k in range(1, call.size):
        to = call.rank ^ k if power_of_two else (call.rank + k) % call.size
        source = call.rank ^ k if power_of_two else (call.rank - k) % call.size
        if sync == "token":
            yield Send(TOKEN, to=source), Recv(TOKEN, source=to)
        elif sync == "barrier" or (sync == "one_barrier" and k == 1):
            yield from barrier.dissemination(call.sub("barrier"))
        yield (
            Send(call.input_blocks[to], to=to),
            Recv(call.output_blocks[source], source=source),
        )


@algorithm(needs=Need.TWO_RANKS | Need.SEPARATE_BUFFERS, covers=("two ranks",))
def two_ranks(call: Call) -> Steps:
    """Two ranks exchange one block.

    Cost: rounds = 1, sent = n / 2
    Reference: folklore.
    """
    other = call.right
    yield (
        _keep_own(call),
        Send(call.input_blocks[other], to=other),
        Recv(call.output_blocks[other], source=other),
    )


@algorithm(covers=("in-place exchange",))
def exchange(call: Call) -> Steps:
    """Any two ranks exchange their blocks once, in place with the help of one block of scratch.

    In round k rank r meets rank k - r (modulo P).

    Cost: rounds <= P, sent = n * (P - 1) / P
    Reference: folklore.
    """
    mine, yours = call.input_blocks, call.output_blocks
    if not call.in_place:
        yield _keep_own(call)
    spare = call.scratch(max(map(len, mine)) if call.in_place else 0)
    for k in range(call.size):
        peer = (k - call.rank) % call.size
        if peer == call.rank:
            continue
        sending = mine[peer]
        if call.in_place:
            sending = spare.part(0, len(mine[peer]))
            yield Copy(sending, mine[peer])
        yield Send(sending, to=peer), Recv(yours[peer], source=peer)


def _equal(call: Call) -> bool:
    """Whether all blocks of all ranks are known to have one size."""
    return call.sizes is not None and len(set(call.sizes)) <= 1


def _relay(call: Call, route: Route, at: Callable[[int], int]) -> Steps:
    """Send the blocks along a route; `at` gives the rank at an offset.

    The place of a block in the output is free until it gets there. On its way a block changes
    between that place and the same place of a spare buffer, so that nothing in flight is replaced.
    """
    yield _keep_own(call)
    place = {j: call.input_blocks[at(j)] for j in range(call.size)}
    hops = Counter(j for moves in route.rounds for move in moves for j in move.blocks)
    equal = _equal(call)
    spare = call.scratch(len(call.output)).split(call.size) if equal else call.output_blocks
    for moves in route.rounds:
        hops.subtract(j for move in moves for j in move.blocks)
        if equal:
            into = {
                j: (spare if hops[j] % 2 else call.output_blocks)[at(route.origins[j])]
                for move in moves
                for j in move.blocks
            }
        else:
            sizes = yield from _sizes_first(moves, place, at)
            into = _landing(call, sizes, {j: at(route.origins[j]) for j in sizes if not hops[j]})
        yield [Send(_chain(place[j] for j in move.blocks), to=at(move.to)) for move in moves] + [
            Recv(_chain(into[j] for j in move.blocks), source=at(move.source)) for move in moves
        ]
        place.update(into)


def _sizes_first(
    moves: Sequence[Move], place: Mapping[int, Region], at: Callable[[int], int]
) -> Generator[Yielded, Answer, dict[int, int]]:
    """Tell the receivers the sizes of the blocks to come; the sizes of those that come here."""
    sizes = [tuple(len(place[j]) for j in move.blocks) for move in moves]
    got = yield [
        *(SendInts(values, to=at(move.to)) for move, values in zip(moves, sizes, strict=True)),
        *(RecvInts(len(move.blocks), source=at(move.source)) for move in moves),
    ]
    received = zip(moves, got, strict=True)
    return {
        j: size for move, values in received for j, size in zip(move.blocks, values, strict=True)
    }


def _landing(call: Call, sizes: Mapping[int, int], homes: Mapping[int, int]) -> dict[int, Region]:
    """Where blocks of these sizes go: to the output those that are at home, else to scratch."""
    passing = {j: size for j, size in sizes.items() if j not in homes}
    stores = call.scratch(sum(passing.values())).blocks(passing.values())
    return {
        **dict(zip(passing, stores, strict=True)),
        **{j: call.output_blocks[home] for j, home in homes.items()},
    }


def _ring(call: Call) -> Callable[[int], int]:
    """Give the rank at an offset on the ring."""
    return lambda offset: (call.rank + offset) % call.size


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=(
        "Bruck",
        "k-Bruck: radix=4",
        "Bruck, any radix: radix=4",
        "Bruck, mixed radix: factors=(2, 3)",
        "zero-rotation Bruck",
        "two-phase Bruck",
        "TuNA: radix=8",
    ),
    also={"two_phase_bruck": {}},
    radix=(2, 4, 8),
    factors=((2, 3), (4, 2)),
)
def bruck(call: Call, radix: int = 2, factors: tuple[int, ...] = ()) -> Steps:
    """Blocks travel by the digits of the distance to their receiver, all with a digit together.

    The digits are to the base `radix`, or to the bases `factors`, the last of them repeated. No
    block is moved inside a rank. Unequal blocks are announced by a message with their sizes.

    Cost: rounds <= ceil(log(P, 2 if factors else radix)),
    sent <= n * (1 if factors else 1 - 1 / radix) * ceil(log(P, 2 if factors else radix))
    Reference: Bruck et al. 1997; Fan et al. 2022.
    """
    yield from _relay(call, digit_route(call.size, factors or (radix,)), _ring(call))


@algorithm(needs=Need.SEPARATE_BUFFERS, covers=("circulant alltoall",), radix=(2, 3, 4))
def circulant(call: Call, radix: int = 2) -> Steps:
    """Blocks travel over skips, half the ranks, a quarter, ...: large distances first.

    Cost: rounds = ceil(log(P, radix)), sent <= n * (1 - 1 / radix) * ceil(log(P, radix))
    Reference: Traff 2025.
    """
    yield from _relay(call, circulant_route(call.size, radix - 1), _ring(call))


@algorithm(
    needs=Need.EVEN_SIZE | Need.SEPARATE_BUFFERS, covers=("Bine butterfly",), also={"bine": {}}
)
def swing(call: Call) -> Steps:
    """Blocks travel over distances +1, -1, +3, -5, ... from even ranks, mirrored from odd ones.

    Cost: rounds = ceil(log2(P)), sent <= n / 2 * ceil(log2(P))
    Reference: De Sensi et al. 2024.
    """
    sign = -1 if call.rank % 2 else 1
    yield from _relay(
        call, swing_route(call.size), lambda offset: (call.rank + sign * offset) % call.size
    )


def _on_grid(call: Call, factors: tuple[int, ...]) -> Steps:
    def at(offset: int) -> int:
        rank, weight = 0, 1
        for factor in factors:
            digit = call.rank // weight + offset // weight
            rank += digit % factor * weight
            weight *= factor
        return rank

    yield from _relay(call, digit_route(call.size, factors, carry=False), at)


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=("2-D mesh", "3-D mesh: dimensions=3", "grid alltoall"),
    also={"mesh": {}},
    dimensions=(2, 3),
)
def grid(call: Call, dimensions: int = 2) -> Steps:
    """Blocks travel along the dimensions of a grid in turn, all with one coordinate together.

    Cost: rounds <= dimensions, sent <= dimensions * n
    Reference: Faraj, Yuan 2005; Traff 2026.
    """
    yield from _on_grid(call, grid_factors(call.size, dimensions))


@algorithm(needs=Need.SEPARATE_BUFFERS, covers=("parallel split",), width=(2, 4, 8))
def parallel_split(call: Call, width: int = 4) -> Steps:
    """Ranks `width` apart exchange the blocks of `width` ranks, then neighbours exchange the rest.

    If `width` does not divide the number of ranks, the next smaller number that does is taken.

    Cost: rounds <= 2, sent <= 2 * n
    Reference: folklore.
    """
    width = largest_divisor(call.size, width)
    yield from _on_grid(call, (width, call.size // width))


@algorithm(
    needs=Need.SEPARATE_BUFFERS,
    covers=("hybrid Bruck",),
    cutoff=(2, 256, 4096),
    radix=(2, 4, 8),
)
def hybrid(call: Call, cutoff: int = 256, radix: int = 2) -> Steps:
    """Blocks of at most `cutoff` bytes travel as in `bruck`, larger ones straight to their rank.

    Cost: rounds <= 2 * ceil(log(P, radix)), sent <= n * ceil(log(P, radix))
    Reference: Fan et al. 2022.
    """

    def part(keep: Callable[[Region], bool]) -> Call:
        blocks = [
            Blocks([block if keep(block) else EMPTY for block in side])
            for side in (call.input_blocks, call.output_blocks)
        ]
        return _unequal(call.sub("alltoall", input=blocks[0], output=blocks[1]))

    small, large = part(lambda b: len(b) <= cutoff), part(lambda b: len(b) > cutoff)
    yield from merge(bruck(small, radix=radix), linear(large))


def _unequal(call: Call) -> Call:
    """Make it a call in which no rank knows the sizes of other ranks' blocks."""
    call.sizes = None
    return call


@algorithm(
    needs=Need.EQUAL_BLOCKS,
    covers=("allgather everything",),
    allgather=("ring", "recursive_doubling", "bruck"),
)
def via_allgather(call: Call, allgather: str | Choice = "ring") -> Steps:
    """Every rank gets the whole input of every rank and keeps its blocks.

    Cost: rounds = P - 1, sent = n * (P - 1), copied <= 2 * n
    Reference: folklore.
    """
    whole = len(call.input)
    everything = call.scratch(call.size * whole).split(call.size)
    yield from run(call.sub("allgather", input=call.input, output=everything), allgather)
    block = whole // call.size
    mine = call.rank * block
    yield [
        Copy(into, row.part(mine, mine + block))
        for into, row in zip(call.output_blocks, everything, strict=True)
    ]


@algorithm(
    needs=Need.NODE_MAP | Need.SEPARATE_BUFFERS,
    covers=("two-level",),
    leaders=(1, 2, 0),
    intra=("linear", "pairwise"),
)
def two_level(call: Call, leaders: int = 1, intra: str | Choice = "linear") -> Steps:
    """Leaders collect what their node has for other nodes, exchange it and hand it out.

    Each pair of nodes has one message. With several `leaders` (0: all ranks) these share the other
    nodes among them.

    Cost: rounds <= 3, sent <= (P - 1) * n
    Reference: Bienz et al. 2022.
    """
    nodes, blocks = by_node(call.nodes), call.input_blocks
    here = next(i for i, ranks in enumerate(nodes) if call.rank in ranks)
    node, me = nodes[here], nodes[here].index(call.rank)
    served = [_served(nodes, here, k, leaders) for k in range(len(node))]
    far = [[rank for i in mine for rank in nodes[i]] for mine in served]
    rows = yield from _collect(call, node, far, intra)
    # From here on the index of a block is that of its sender, then that of its receiver.
    leaving, start = {}, 0
    for i in served[me]:
        stop = start + len(nodes[i])
        peer = nodes[i][_leader(nodes, i, here, leaders)]
        leaving[peer] = [row[j] for row in rows for j in range(start, stop)]
        start = stop
    sizes = yield from _sizes(
        call, {peer: (list(map(len, found)), len(found)) for peer, found in leaving.items()}
    )
    arriving = {peer: call.scratch(sum(sizes[peer])).blocks(sizes[peer]) for peer in leaving}
    yield [Send(_chain(found), to=peer) for peer, found in leaving.items()] + [
        Recv(found.whole, source=peer) for peer, found in arriving.items()
    ]
    incoming = call.output_blocks.regroup(
        [*ranks, own] for ranks, own in zip(far, node, strict=True)
    )
    outgoing = []
    for t, rank in enumerate(node):
        passing = [found.select(range(t, len(found), len(node))) for found in arriving.values()]
        outgoing.append(_chain([*passing, blocks[rank]]))
    yield from _local(call, node, outgoing, incoming, intra)


def _collect(
    call: Call, node: list[int], served: Sequence[Sequence[int]], intra: str | Choice
) -> Generator[Yielded, Answer, list[Blocks]]:
    """Give each rank of a node what its node has for the ranks that it serves.

    The result has a row for each rank of the node, which has its blocks for those ranks.
    """
    blocks, mine = call.input_blocks, served[node.index(call.rank)]
    telling = ([len(blocks[rank]) for rank in ranks] for ranks in served)
    told = yield from _sizes(
        call, {rank: (sizes, len(mine)) for rank, sizes in zip(node, telling, strict=True)}
    )
    rows = [call.scratch(sum(told[rank])).blocks(told[rank]) for rank in node]
    sending = [blocks.select(ranks) for ranks in served]
    yield from _local(call, node, sending, Blocks([row.whole for row in rows]), intra)
    return rows


def _sizes(
    call: Call, exchanges: Mapping[int, tuple[Sequence[int], int]]
) -> Generator[Yielded, Answer, dict[int, Sequence[int]]]:
    """Tell ranks these sizes, and get that many from each; without a message if all are equal."""
    if call.sizes is not None and _equal(call):
        return {peer: (call.sizes[0],) * count for peer, (_, count) in exchanges.items()}
    others = {peer: exchange for peer, exchange in exchanges.items() if peer != call.rank}
    sources = [peer for peer, (_, count) in others.items() if count]
    got = yield [
        *(SendInts(tuple(sizes), to=peer) for peer, (sizes, _) in others.items() if sizes),
        *(RecvInts(exchanges[peer][1], source=peer) for peer in sources),
    ]
    own = {peer: sizes for peer, (sizes, _) in exchanges.items() if peer == call.rank}
    return {**dict.fromkeys(exchanges, ()), **own, **dict(zip(sources, got, strict=True))}


def _leader(nodes: list[list[int]], node: int, other: int, leaders: int) -> int:
    """Which rank of a node talks to another node."""
    return other % min(leaders or len(nodes[node]), len(nodes[node]))


def _served(nodes: list[list[int]], node: int, local: int, leaders: int) -> list[int]:
    """List the other nodes that a rank of a node talks to."""
    others = range(len(nodes))
    return [i for i in others if i != node and _leader(nodes, node, i, leaders) == local]


def _chain(regions: Iterable[Region]) -> Region:
    return Region(*(piece for region in regions for piece in region.pieces))


def _local(
    call: Call, node: list[int], sending: Sequence[Region], into: Blocks, intra: str | Choice
) -> Steps:
    """Make an alltoall of unequal blocks inside a node."""
    sub = call.sub("alltoall", ranks=node, input=Blocks(list(sending)), output=into)
    yield from run(_unequal(sub), intra)


@algorithm(
    needs=Need.NODE_MAP | Need.SEPARATE_BUFFERS,
    covers=("full lane", "hierarchical TuNA"),
    intra=("linear", "pairwise"),
)
def full_lane(call: Call, intra: str | Choice = "linear") -> Steps:
    """Each rank of a node collects what the node has for every so many-th rank, and delivers it.

    Rank l of a node of k ranks serves all ranks that are l modulo k: messages between nodes are
    few and all ranks send some.

    Cost: rounds <= 2, sent <= 3 * n
    Reference: Traff, Hunold 2020.
    """
    nodes = by_node(call.nodes)
    node = next(ranks for ranks in nodes if call.rank in ranks)
    served = [range(lane, call.size, len(node)) for lane in range(len(node))]
    mine = served[node.index(call.rank)]
    rows = yield from _collect(call, node, served, intra)
    actions: list[Action] = []
    for i, to in enumerate(mine):
        sending = _chain(row[i] for row in rows)
        if to == call.rank:
            actions.append(Copy(call.output_blocks.select(node), sending))
        else:
            actions.append(Send(sending, to=to))
    sources = [(ranks[call.rank % len(ranks)], ranks) for ranks in nodes]
    yield actions + [
        Recv(call.output_blocks.select(ranks), source=source)
        for source, ranks in sources
        if source != call.rank
    ]
