"""Allreduce: every rank gets the combination of the vectors of all ranks."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import isqrt

from collx.algorithms import allgather, reduce_scatter
from collx.choice import Choice
from collx.collectives import Call
from collx.patterns import digits, folds, trees
from collx.registry import Need, Promise, algorithm, run
from collx.schedule import (
    EMPTY,
    Action,
    Blocks,
    Combine,
    Recv,
    Region,
    Schedule,
    Send,
    Steps,
    merge,
)


@algorithm(
    needs=Need.COMMUTATIVE,
    promises=Promise.SAME_BITS,
    covers=("ring", "segmented ring: segment=64K"),
    segment=(8192, 65536),
)
def ring(call: Call, segment: int = 0) -> Steps:
    """Pass partial sums round the ring, one block in each round, then the finished blocks.

    With at least two segments in each block, one is combined while the next one travels.

    Cost: rounds <= 2 * (P - 1) * ceil(n / P / m) + min(1, segment), sent = 2 * n * (P - 1) / P,
    combined = n * (P - 1) / P
    Reference: Patarasuk, Yuan 2009.
    """
    mine, cells = call.output_blocks[call.rank], call.segment_cells(segment)
    if 0 < cells < len(call.output_blocks[-1]):
        yield from _scatter_segments(call, cells)
    else:
        scattering = call.sub("reduce_scatter", input=call.input_blocks, output=mine)
        yield from reduce_scatter.ring(scattering)
    gathering = call.sub("allgather", input=mine, output=call.output_blocks)
    yield from allgather.ring(gathering, segment=segment)


def _scatter_segments(call: Call, cells: int) -> Steps:
    """Reduce-scatter round the ring: a segment lands, and is combined in the next round."""
    blocks, sums, rank = call.input_blocks, call.output_blocks, call.rank
    spare = [call.scratch(cells), call.scratch(cells)]
    ready = deque(blocks[rank - 1].segments(cells))
    coming = deque(
        (k, *both)
        for k in range(2, call.size + 1)
        for both in zip(
            blocks[rank - k].segments(cells), sums[rank - k].segments(cells), strict=True
        )
    )
    landed: list[tuple[int, Combine]] = []
    while ready or coming or landed:
        actions: list[Action] = [combine for _, combine in landed]
        actions += [Send(ready.popleft(), to=call.right)] if ready else []
        summed, landed = landed, []
        if coming:
            k, own, into = coming.popleft()
            space = spare[len(coming) % 2].part(0, len(own))
            actions.append(Recv(space, source=call.left))
            landed = [(k, Combine(into, space, own))]
        yield actions
        ready.extend(combine.into for k, combine in summed if k < call.size)


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("whole-vector ring",),
)
def whole_vector_ring(call: Call) -> Steps:
    """Pass whole vectors round the ring; each rank combines every vector that passes.

    Cost: rounds = P - 1, sent = n * (P - 1), combined = n * (P - 1)
    Reference: Gloo, allreduce_ring.
    """
    passing, held = call.input, call.input
    spare = [call.scratch(len(passing)), call.scratch(len(passing))]
    for turn in range(call.size - 1):
        arriving = spare[turn % 2]
        actions: list[Action] = [Send(passing, to=call.right), Recv(arriving, source=call.left)]
        if turn:
            actions.append(Combine(call.output, held, passing))
            held = call.output
        yield actions
        passing = arriving
    yield Combine(call.output, held, passing)


@algorithm(
    promises=Promise.SAME_BITS,
    covers=("recursive doubling",),
)
def recursive_doubling(call: Call) -> Steps:
    """Exchange and combine whole vectors with the rank at distance 1, 2, 4, ...

    Ranks beyond a power of two first give their vector to a neighbour, and get the result from it.

    Cost: rounds = floor(log2(P)) + 2 * (P > 2 ** floor(log2(P))),
    sent = n * (floor(log2(P)) + (P > 2 ** floor(log2(P)))),
    combined = n * (floor(log2(P)) + (P > 2 ** floor(log2(P))))
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    stay = folds.kept(call.size, radix=2)
    if stay < call.size:
        yield from _folded(call, folds.consecutive(call.size, stay), recursive_doubling)
        return
    held = call.input
    for distance in digits.weights(call.size):
        peer = call.rank ^ distance
        yield Send(held, to=peer), *_combining(call.output, held, call.rank, [peer])
        held = call.output


@algorithm(
    promises=Promise.SAME_BITS,
    covers=("k-recursive exchange", "recursive multiplying in rank order"),
    radix=(2, 3, 4, 8),
)
def recursive_exchange(call: Call, radix: int = 4) -> Steps:
    """In groups of `radix` ranks, at distances 1, radix, radix^2, ..., exchange whole vectors.

    Every rank of a group combines the same vectors from left to right: all get the same bits.
    The last factor may be smaller; ranks beyond the product of factors are folded into neighbours.

    Cost: rounds <= ceil(log(P, radix)) + 2, sent <= n * ((radix - 1) * ceil(log(P, radix)) + 1)
    Reference: Sack, Gropp 2012; Ruefenacht, Bull, Booth 2017.
    """
    stay = folds.kept(call.size, radix)
    if stay < call.size:
        again = partial(recursive_exchange, radix=radix)
        yield from _folded(call, folds.consecutive(call.size, stay), again)
        return
    held = call.input
    spare = [call.scratch(len(held)) for _ in range(1, radix)]
    for fibre in folds.fibres(call.rank, call.size, radix):
        vectors = [*spare[: fibre.digit], held, *spare[fibre.digit : len(fibre.ranks) - 1]]
        others = [(v, peer) for v, peer in zip(vectors, fibre.ranks, strict=True) if v is not held]
        yield [Send(held, to=peer) for _, peer in others] + [Recv(*other) for other in others]
        yield _left_to_right(call.output, vectors, spare[0] if fibre.digit else call.output)
        held = call.output


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("recursive multiplying",),
    radix=(2, 3, 4, 8),
)
def recursive_multiplying(call: Call, radix: int = 4) -> Steps:
    """Exchange whole vectors in groups of `radix` ranks, combining each as it comes.

    Ranks beyond the product of factors are folded into the rank that is equal modulo the product.

    Cost: rounds <= ceil(log(P, radix)) + 2, sent <= n * ((radix - 1) * ceil(log(P, radix)) + 1)
    Reference: Ruefenacht, Bull, Booth 2017.
    """
    stay = folds.kept(call.size, radix)
    if stay < call.size:
        again = partial(recursive_multiplying, radix=radix)
        yield from _folded(call, folds.modulo(call.size, stay), again)
        return
    held = call.input
    for fibre in folds.fibres(call.rank, call.size, radix):
        others = [peer for peer in fibre.ranks if peer != call.rank]
        sends = [Send(held, to=peer) for peer in others]
        yield [*sends, *_combining(call.output, held, call.rank, others)]
        held = call.output


@algorithm(
    promises=Promise.SAME_BITS,
    covers=("b-cube", "direct RS + allgather: base=0"),
    also={"direct": {"base": 0}},
    base=(0, 2, 3, 4),
)
def bcube(call: Call, base: int = 2) -> Steps:
    """Share out the vector in groups of `base` ranks, allreduce the shares, and collect them.

    The last group has what is left of the number of ranks when `base` no longer divides it; with
    base 0 there is only one group: a direct reduce-scatter and a direct allgather. Groups are
    neighbours among the ranks that share a part, so partial sums keep the order of ranks.

    Cost: rounds <= 2 * ceil(log2(P)), sent = 2 * n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: Thakur, Rabenseifner, Gropp 2005 (base 2).
    """
    fibre, size = folds.fibres(call.rank, call.size, base)[0], call.size
    factor = len(fibre.ranks)
    parts, results = call.input.split(factor), call.output.split(factor)
    mine = results[fibre.digit]
    others = [peer for peer in fibre.ranks if peer != call.rank]
    sends = [Send(parts[peer % factor], to=peer) for peer in others]
    yield [*sends, *_combining(mine, parts[fibre.digit], call.rank, others)]
    sharing = range(fibre.digit, size, factor)
    yield from bcube(call.sub("allreduce", ranks=sharing, input=mine, output=mine), base=base)
    yield [Send(mine, to=peer) for peer in others] + [
        Recv(results[peer % factor], source=peer) for peer in others
    ]


@algorithm(
    promises=Promise.SAME_BITS,
    covers=("Rabenseifner", "k RS+AG: radix=4", "Rabenseifner with shared fold: fold=half"),
    also={"k_reduce_scatter_allgather": {"radix": 4}},
    radix=(2, 3, 4, 8),
    fold=("full", "half"),
)
def rabenseifner(call: Call, radix: int = 2, fold: str = "full") -> Steps:
    """Reduce-scatter by recursive halving, then allgather by recursive doubling.

    Ranks beyond a power of two are folded into a neighbour: it combines both vectors ("full"), or
    each of the two combines one half and the neighbour gets both ("half").

    Cost: rounds <= 2 * ceil(log(P, radix)) + 2 + (fold == "half"),
    sent <= (3 + (fold == "half") / 2) * n, combined <= 2 * n
    Reference: Rabenseifner 1997; Thakur, Rabenseifner, Gropp 2005.
    """
    pairs = folds.consecutive(call.size, folds.kept(call.size, radix))
    yield from _folded(call, pairs, partial(bcube, base=radix), fold)


@algorithm(promises=Promise.SAME_BITS, covers=("3-2 elimination",), also={"elim32": {}})
def elimination(call: Call) -> Steps:
    """Recursive halving in which, of an odd number of ranks, one gives its halves to two others.

    Pairs swap halves and split into those with the lower and those with the upper half; the third
    rank has its turn again when the two halves are complete:

        a: lower of a, b, c     b: upper of a, b, c     c: out until the end

    Cost: rounds = 2 * floor(log2(P)), sent <= 3 * n, combined <= 2 * n
    Reference: Rabenseifner, Traff 2004.
    """
    odd, rank = call.size % 2, call.rank
    halves, results = call.input.split(2), call.output.split(2)
    if odd and rank == 2:
        yield Send(halves[0], to=0), Send(halves[1], to=1)
        yield Recv(results[0], source=0), Recv(results[1], source=1)
        return
    paired = [q for q in range(call.size) if not odd or q != 2]
    place = paired.index(rank)
    mine, peer = place % 2, paired[place ^ 1]
    third = [2] if odd and rank < 2 else []
    receives = _combining(results[mine], halves[mine], rank, [peer, *third])
    yield [Send(halves[1 - mine], to=peer), *receives]
    alike, half = paired[mine::2], results[mine]
    yield from elimination(call.sub("allreduce", ranks=alike, input=half, output=half))
    yield [Send(half, to=q) for q in (peer, *third)] + [Recv(results[1 - mine], source=peer)]


@algorithm(
    needs=Need.COMMUTATIVE,
    promises=Promise.SAME_BITS,
    covers=("halving-doubling binary blocks", "binary blocks"),
)
def binary_blocks(call: Call) -> Steps:
    """Reduce-scatter in blocks of 2^i ranks, pass the sums to larger blocks, and then go back.

    Each rank of a block owns as much of the vector as several neighbours in the next larger block.

    Cost: rounds = 2 * floor(log2(P)) + 2 * (P > 2 ** floor(log2(P))), sent <= 2 * n + P,
    combined <= n + P
    Reference: Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005.
    """
    block = folds.binary_block(call.rank, call.size)
    width, finest = len(block.parts), digits.power_below(call.size)
    owned = [range(part, part + width) for part in range(0, finest, width)]
    fine = call.output.split(finest)
    mine, inputs, outputs = (
        fine.select(block.parts),
        call.input.split(finest).regroup(owned),
        fine.regroup(owned),
    )
    halves = call.sub("reduce_scatter", ranks=block.ranks, input=inputs, output=mine)
    yield from run(halves, "recursive_halving")
    yield [Recv(mine, source=peer, left=mine) for peer in block.smaller]
    step = width // max(len(block.larger), 1)
    pieces = [fine[part : part + step] for part in block.parts[::step]]
    passed = list(zip(pieces, block.larger, strict=False))
    yield [Send(piece, to=peer) for piece, peer in passed]
    yield [Recv(piece, source=peer) for piece, peer in passed]
    yield [Send(mine, to=peer) for peer in block.smaller]
    whole = call.sub("allgather", ranks=block.ranks, input=mine, output=outputs)
    yield from allgather.recursive_doubling(whole)


@algorithm(
    promises=Promise.SAME_BITS,
    covers=("pipelined tree: segment=8K",),
    kind=("knomial", "chain", "in_order"),
    radix=(2, 4, 8),
    segment=(8192, 65536),
)
def tree(call: Call, kind: str = "knomial", radix: int = 2, segment: int = 0) -> Steps:
    """Combine segments up a tree; each comes down again as soon as it is complete.

    `radix` is the number of chains of a chain, and nothing to the binary in-order tree.

    Cost: rounds <= 2 * (P - 1 if kind == "chain" else ceil(log2(P))) + ceil(n / m) - 1,
    sent <= max(3, (radix - 1) * ceil(log(P, radix))) * n,
    combined <= max(3, (radix - 1) * ceil(log(P, radix))) * n
    Reference: Pjesivac-Grbovic et al. 2007.
    """
    kinds: dict[str, Callable[[int, int], trees.Tree]] = {
        "knomial": partial(trees.knomial, radix=radix),
        "chain": partial(trees.chain, heads=radix),
        "in_order": trees.in_order,
    }
    yield from _along(call, kinds[kind], segment)


@algorithm(
    needs=Need.COMMUTATIVE,
    promises=Promise.SAME_BITS,
    covers=("pipelined tree: segment=8K",),
    radix=(2, 3, 4),
    segment=(8192, 65536),
)
def kary(call: Call, radix: int = 2, segment: int = 0) -> Steps:
    """Do the same as `tree` on the complete tree with `radix` children per rank.

    Cost: rounds <= 2 * floor(log2(P)) + ceil(n / m) - 1, sent <= (radix + 1) * n,
    combined = min(radix, P - 1) * n
    Reference: Pjesivac-Grbovic et al. 2007.
    """
    yield from _along(call, partial(trees.kary, arity=radix), segment)


def _along(call: Call, shape: Callable[[int, int], trees.Tree], segment: int) -> Steps:
    """Up and down a tree: in each round every edge may carry a segment in both directions."""
    parent, children = shape(call.rank, call.size)
    depth, above = 0, parent
    while above is not None:
        depth, above = depth + 1, shape(above, call.size).parent
    timed = trees.TimedTree(parent, tuple(sorted(children)), depth - 1, (depth,) * len(children))
    cells = call.segment_cells(segment)
    yield from _in_time(_up_and_down(call, timed, call.input, call.output, cells))


@algorithm(
    needs=Need.COMMUTATIVE,
    promises=Promise.SAME_BITS,
    covers=("double binary tree", "two trees in two colours: segment=8K"),
    segment=(8192, 65536),
)
def double_tree(call: Call, segment: int = 0) -> Steps:
    """Combine half of the vector up and down each of two trees; no rank works inside both.

    Cost: rounds <= 4 * ceil(log2(P)) + 2 * ceil(n / (2 * m)) - 2, sent <= 2 * n, combined <= n
    Reference: Sanders, Speck, Traff 2009.
    """
    cells = call.segment_cells(segment)
    halves = zip(call.input.split(2), call.output.split(2), strict=True)
    two = zip(trees.double_tree(call.rank, call.size), halves, strict=True)
    yield from _in_time(
        (when, action._replace(lane=side))
        for side, (timed, (own, result)) in enumerate(two)
        for when, action in _up_and_down(call, timed, own, result, cells, pace=2)
    )


def _up_and_down(
    call: Call, timed: trees.TimedTree, own: Region, result: Region, cells: int, pace: int = 1
) -> Iterator[tuple[int, Send | Recv]]:
    """Yield what to do in one tree, and when: as a broadcast, backwards and then forwards."""
    turn = 2 * call.size
    edges = sorted(zip(timed.departures, timed.children, strict=True), key=lambda edge: -edge[0])
    segments = zip(own.segments(cells), result.segments(cells), strict=True)
    for late, (summed, whole) in enumerate(segments):
        up, down = turn + pace * late, turn + 1 + pace * late
        for departure, child in edges:
            for receive in _combining(whole, summed, call.rank, [child]):
                yield up - departure, receive
            yield down + departure, Send(whole, to=child)
            summed = whole
        if timed.parent is not None:
            yield up - timed.arrival, Send(summed, to=timed.parent)
            yield down + timed.arrival, Recv(whole, source=timed.parent)


def _in_time(timed: Iterable[tuple[int, Send | Recv]]) -> Steps:
    """One round for each time at which something happens."""
    rounds: defaultdict[int, list[Send | Recv]] = defaultdict(list)
    for when, action in timed:
        rounds[when].append(action)
    for when in sorted(rounds):
        yield rounds[when]


@algorithm(promises=Promise.SAME_BITS, covers=("dual root: segment=8K",), segment=(8192, 65536))
def dual_root(call: Call, segment: int = 0) -> Steps:
    """Two post-order binary trees, one for each half of the ranks, whose roots swap their sums.

    Each exchange with a neighbour in the tree sends one segment and receives another: partial sums
    go up while results come down.

    Cost: rounds <= 3 * (ceil(n / m) - 1) + 4 * floor(log2(ceil(P / 2))) + 1, sent <= 3 * n,
    combined <= 3 * n
    Reference: Traff 2021.
    """
    start, stop = (0, call.size // 2) if call.rank < call.size // 2 else (call.size // 2, call.size)
    parent, children, depth = _post_order(call.rank, start, stop)
    other = call.size // 2 - 1 if start else call.size - 1
    cells = call.segment_cells(segment)
    own, sums = call.input.segments(cells), call.output.segments(cells)
    for turn in range(len(own) + depth + 1):
        partial, arriving = _at(own, turn), _at(sums, turn)
        for child in reversed(children):
            receives = _combining(arriving, partial, call.rank, [child])
            yield _swap(_at(sums, turn - depth - 1), child, receives)
            partial = arriving
        if parent is not None:
            yield _swap(partial, parent, [Recv(_at(sums, turn - depth), source=parent)])
        else:
            yield _swap(partial, other, _combining(arriving, partial, call.rank, [other]))


def _at(segments: Sequence[Region], index: int) -> Region:
    return segments[index] if 0 <= index < len(segments) else EMPTY


def _swap(give: Region, peer: int, receives: list[Recv]) -> list[Send | Recv]:
    """Send and receive what there is."""
    sends = [Send(give, to=peer)] if give else []
    return [*sends, *(recv for recv in receives if recv.into)]


def _post_order(rank: int, start: int, stop: int) -> tuple[int | None, list[int], int]:
    """Parent, children and depth of a rank in the post-order tree of ranks `start` to `stop`."""
    parent, children = trees.post_order(rank - start, stop - start)
    depth, above = 0, parent
    while above is not None:
        depth, above = depth + 1, trees.post_order(above, stop - start).parent
    return None if parent is None else parent + start, [c + start for c in children], depth


@algorithm(
    needs=Need.COMMUTATIVE,
    promises=Promise.SAME_BITS,
    covers=("halving circulant graph", "halving circulant graph, k ports: ports=3"),
    ports=(1, 2, 3),
)
def circulant(call: Call, ports: int = 1) -> Steps:
    """Reduce-scatter, then allgather, on the circulant graph: 2 ceil(log2 P) rounds for every P.

    Cost: rounds = 2 * ceil(log(P, ports + 1)), sent = 2 * n * (P - 1) / P,
    combined = n * (P - 1) / P
    Reference: Traff 2023.
    """
    mine = call.output_blocks[call.rank]
    yield from reduce_scatter.circulant(
        call.sub("reduce_scatter", input=call.input_blocks, output=mine), ports=ports
    )
    yield from allgather.circulant(
        call.sub("allgather", input=mine, output=call.output_blocks), ports=ports
    )


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("cyclic window", "cyclic window, k ports: ports=2"),
    ports=(1, 2, 3),
)
def window(call: Call, ports: int = 1) -> Steps:
    """Grow a cyclic window of combined ranks, about twice as wide after each round, to exactly P.

    `before` combines the ranks just before this one. A round sends that, or that and the own
    value, to a rank whose window begins where the sent one ends. No rank is folded.

    Cost: rounds = ceil(log(P, ports + 1)), sent <= ports * ceil(log(P, ports + 1)) * n,
    combined <= (ports + 1) * ceil(log(P, ports + 1)) * n
    Reference: Bar-Noy, Kipnis, Schieber 1993; Traff 2026.
    """
    plan = folds.window_plan(call.size, ports)
    turn = max((i + 1 for i, step in enumerate(plan) if not step[-1].own), default=0)
    whole, before = call.input, EMPTY
    if turn:
        sums, spare = call.scratch(len(whole)), call.scratch(len(whole))
    for messages in plan[:turn]:
        if before and messages[0].own:
            yield Combine(spare, before, call.input)
            whole = spare
        yield _widen(call, messages, whole, before, sums, before)
        before = sums
    if before:
        yield Combine(call.output, before, call.input)
        whole = call.output
    for messages in plan[turn:]:
        yield _widen(call, messages, whole, EMPTY, call.output, whole)
        whole = call.output


def _widen(
    call: Call,
    messages: Sequence[folds.Message],
    whole: Region,
    before: Region,
    into: Region,
    right: Region,
) -> list[Send | Recv]:
    """Send windows with and without the own value; combine those received left of `right`."""
    actions: list[Send | Recv] = []
    for distance, own in messages:
        to, source = (call.rank + distance) % call.size, (call.rank - distance) % call.size
        actions += Send(whole if own else before, to), Recv(into, source, right=right or None)
        right = into
    return actions


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("Trivance",),
)
def trivance(call: Call) -> Steps:
    """Exchange whole vectors with the ranks at distance 1, 3, 9, ... on both sides.

    If the number of ranks is no power of three: `window` with two ports, in as many rounds.

    Cost: rounds = ceil(log(P, 3)), sent <= 2 * n * ceil(log(P, 3)),
    combined <= 3 * n * ceil(log(P, 3))
    Reference: Trivance 2026.
    """
    if digits.power_below(call.size, 3) < call.size:
        yield from window(call.sub("allreduce", input=call.input, output=call.output), ports=2)
        return
    held = call.input
    for distance in digits.weights(call.size, 3):
        before, after = (call.rank - distance) % call.size, (call.rank + distance) % call.size
        yield (
            Send(held, to=before),
            Send(held, to=after),
            Recv(call.output, source=before, right=held),
            Recv(call.output, source=after, left=call.output),
        )
        held = call.output


@algorithm(
    needs=Need.COMMUTATIVE,
    covers=("Swing butterfly",),
)
def swing(call: Call) -> Steps:
    """Exchange whole vectors with the rank 1, -1, 3, -5, 11, ... further on (odd ranks: back).

    Ranks beyond a power of two are folded into a neighbour. Ways on a ring are a third shorter
    than in recursive doubling.

    Cost: rounds = floor(log2(P)) + 2 * (P > 2 ** floor(log2(P))),
    sent = n * (floor(log2(P)) + (P > 2 ** floor(log2(P)))),
    combined = n * (floor(log2(P)) + (P > 2 ** floor(log2(P))))
    Reference: De Sensi, Bonato, Saam, Hoefler 2024.
    """
    stay = folds.kept(call.size, radix=2)
    if stay < call.size:
        yield from _folded(call, folds.consecutive(call.size, stay), swing)
        return
    held = call.input
    for step in range(len(digits.weights(call.size))):
        distance = folds.swing_distance(step)
        peer = (call.rank + (-distance if call.rank % 2 else distance)) % call.size
        yield Send(held, to=peer), Recv(call.output, source=peer, left=held)
        held = call.output


@algorithm(
    promises=Promise.SAME_BITS,
    covers=("allgather+local reduce", "reproducible"),
    also={"one_shot": {"allgather": "linear"}},
    allgather=("ring", "recursive_doubling", "bruck", "linear", "circulant"),
)
def allgather_reduce(call: Call, allgather: str | Choice = "ring") -> Steps:
    """Gather the vectors of all ranks everywhere; each rank combines them in rank order.

    The cost is that of the default allgather.

    Cost: rounds = P - 1, sent = n * (P - 1), combined = n * (P - 1)
    Reference: Open MPI, allreduce_allgather_reduce.
    """
    cells = len(call.input)
    gathered = call.scratch(cells * call.size).blocks([cells] * call.size)
    yield from run(call.sub("allgather", input=call.input, output=gathered), allgather)
    yield _left_to_right(call.output, list(gathered), gathered[0])


@algorithm(
    promises=Promise.SAME_BITS,
    covers=("reduce+bcast", "flat reduce+bcast: reduce=linear, bcast=linear", "reproducible"),
    also={"flat": {"reduce": "linear", "bcast": "linear"}},
    reduce=("binomial", "knomial(radix=4)", "linear", "chain", "in_order_binary"),
    bcast=("binomial", "knomial(radix=4)", "linear", "chain", "scatter_allgather"),
)
def reduce_bcast(
    call: Call, reduce: str | Choice = "binomial", bcast: str | Choice = "binomial"
) -> Steps:
    """Any reduce to rank 0, then any broadcast from there.

    The cost is that of the default parts.

    Cost: rounds <= 2 * ceil(log2(P)), sent = ceil(log2(P)) * n,
    combined = ceil(log2(P)) * n
    Reference: folklore.
    """
    result = call.output if call.rank == 0 else EMPTY
    yield from run(call.sub("reduce", input=call.input, output=result), reduce)
    yield from run(call.sub("bcast", output=call.output), bcast)


@algorithm(
    needs=Need.COMMUTATIVE,
    promises=Promise.SAME_BITS,
    covers=(
        "RS call + AG call",
        "Swing butterfly: reduce_scatter=swing, allgather=swing",
        "bidirectional ring: reduce_scatter=bidirectional_ring, allgather=bidirectional_ring",
    ),
    also={
        "swing_bandwidth": {"reduce_scatter": "swing", "allgather": "swing"},
        "bidirectional_ring": {
            "reduce_scatter": "bidirectional_ring",
            "allgather": "bidirectional_ring",
        },
    },
    reduce_scatter=("ring", "recursive_halving", "pairwise", "circulant", "pat", "swing", "nblock"),
    allgather=("ring", "recursive_doubling", "linear", "circulant", "bruck", "pat", "swing"),
)
def reduce_scatter_allgather(
    call: Call, reduce_scatter: str | Choice = "ring", allgather: str | Choice = "ring"
) -> Steps:
    """Any reduce-scatter, then any allgather.

    The cost is that of the default parts.

    Cost: rounds = 2 * (P - 1), sent = 2 * n * (P - 1) / P, combined = n * (P - 1) / P
    Reference: folklore.
    """
    mine = call.output_blocks[call.rank]
    scattering = call.sub("reduce_scatter", input=call.input_blocks, output=mine)
    yield from run(scattering, reduce_scatter)
    gathering = call.sub("allgather", input=mine, output=call.output_blocks)
    yield from run(gathering, allgather)


@algorithm(
    needs=Need.NODE_MAP,
    promises=Promise.SAME_BITS,
    covers=("two-level", "HAN pipeline: segment=64K"),
    intra_reduce=("binomial", "linear"),
    inter=("recursive_doubling", "recursive_exchange", "rabenseifner"),
    intra_bcast=("binomial", "linear"),
    segment=(0, 65536),
)
def two_level(
    call: Call,
    intra_reduce: str | Choice = "binomial",
    inter: str | Choice = "recursive_doubling",
    intra_bcast: str | Choice = "binomial",
    segment: int = 0,
) -> Steps:
    """Reduce inside each node, allreduce among one rank per node, broadcast inside each node.

    While the leaders work on one segment, the nodes reduce the next and broadcast the last. If the
    order matters, a node counts as several where its ranks are not consecutive. The cost is that of
    the default parts.

    Cost: rounds <= (2 * ceil(log2(P)) + 2) * ceil(n / m), sent <= (ceil(log2(P)) + 1) * n,
    combined <= (ceil(log2(P)) + 1) * n
    Reference: Karonis et al. 2000; Luo et al. 2020.
    """
    nodes = _nodes(call)
    node, leaders = _group_of(call, nodes), [ranks[0] for ranks in nodes]
    cells = call.segment_cells(segment)
    own, sums = call.input.segments(cells), call.output.segments(cells)

    def inside(turn: int) -> Steps:
        if len(node) > 1 and turn < len(own):
            result = sums[turn] if call.rank == node[0] else EMPTY
            reducing = call.sub("reduce", ranks=node, input=own[turn], output=result)
            yield from run(reducing, intra_reduce)
        if turn >= 2:
            yield from run(call.sub("bcast", ranks=node, output=sums[turn - 2]), intra_bcast)

    def across(turn: int) -> Steps:
        if call.rank == node[0] and 1 <= turn <= len(own):
            partial = sums[turn - 1] if len(node) > 1 else own[turn - 1]
            between = call.sub("allreduce", ranks=leaders, input=partial, output=sums[turn - 1])
            yield from run(between, inter)

    for turn in range(len(own) + 2):
        yield from merge(inside(turn), across(turn))


@algorithm(
    needs=Need.NODE_MAP,
    promises=Promise.SAME_BITS,
    covers=("multi-leader: leaders=4", "DPML multi-leader: leaders=4", "full lane"),
    also={"full_lane": {"leaders": 0}},
    leaders=(0, 1, 2, 4, 8),
    reduce_scatter=("direct", "butterfly"),
    inter=("recursive_doubling", "recursive_exchange", "rabenseifner"),
    allgather=("circulant", "linear", "ring"),
)
def multi_leader(
    call: Call,
    leaders: int = 0,
    reduce_scatter: str | Choice = "direct",
    inter: str | Choice = "recursive_doubling",
    allgather: str | Choice = "circulant",
) -> Steps:
    """In each node `leaders` ranks share the vector; equal shares meet across the nodes.

    As many as the smallest node has ranks at most, and just as many with `leaders` 0. If the order
    matters, a node counts as several where its ranks are not consecutive. The cost is that of the
    default parts.

    Cost: rounds <= 2 * ceil(log2(P)) + 3, sent <= (floor(log2(P)) + 3) * n
    Reference: Bayatpour et al. 2017; Traff, Hunold 2020.
    """
    nodes = _nodes(call)
    lanes = min(leaders or call.size, *map(len, nodes))
    yield from _in_lanes(call, nodes, lanes, reduce_scatter, inter, allgather)


@algorithm(
    needs=Need.COMMUTATIVE,
    promises=Promise.SAME_BITS,
    covers=(
        "hybrid halving and doubling",
        "2-D torus: parts=0, reduce_scatter=ring, inter=ring, allgather=ring",
    ),
    also={
        "torus": {"parts": 0, "reduce_scatter": "ring", "inter": "ring", "allgather": "ring"},
    },
    parts=(0, 1, 2, 4, 8),
    reduce_scatter=("circulant", "recursive_halving", "ring"),
    inter=("recursive_doubling", "recursive_exchange", "rabenseifner", "circulant", "ring"),
    allgather=("circulant", "recursive_doubling", "ring"),
)
def hybrid(
    call: Call,
    parts: int = 2,
    reduce_scatter: str | Choice = "circulant",
    inter: str | Choice = "recursive_doubling",
    allgather: str | Choice = "circulant",
) -> Steps:
    """Share the vector among `parts` neighbours, allreduce the shares across, and collect them.

    The more parts, the less is sent, and the more rounds it takes; with `parts` 0 the ranks form a
    grid that is about square. The cost is that of the default parts.

    Cost: rounds <= 2 * ceil(log2(P)) + 2, sent <= n * (2 + ceil(log2(P)) / max(parts, 1))
    Reference: Kolmakov, Zhang 2020.
    """
    lanes = min(parts or isqrt(call.size), call.size)
    rows = folds.consecutive(call.size, call.size // lanes)
    yield from _in_lanes(call, rows, lanes, reduce_scatter, inter, allgather)


def _in_lanes(
    call: Call,
    groups: Sequence[Sequence[int]],
    lanes: int,
    reduce_scatter: str | Choice,
    inter: str | Choice,
    allgather: str | Choice,
) -> Steps:
    """Reduce-scatter among the first `lanes` of each group, allreduce across, allgather."""
    group = _group_of(call, groups)
    place, idle = group.index(call.rank), len(group) - lanes
    own, sums = (Blocks([*x.split(lanes), *[EMPTY] * idle]) for x in (call.input, call.output))
    mine, partial = sums[place], own[place]
    if len(group) > 1:
        inside = call.sub("reduce_scatter", ranks=group, input=own, output=mine)
        yield from run(inside, reduce_scatter)
        partial = mine
    if place < lanes:
        lane = [ranks[place] for ranks in groups]
        yield from run(call.sub("allreduce", ranks=lane, input=partial, output=mine), inter)
    yield from run(call.sub("allgather", ranks=group, input=mine, output=sums), allgather)


def _nodes(call: Call) -> list[list[int]]:
    """List the ranks of each node, cut where the order of operands needs it."""
    return digits.by_node(call.nodes) if call.commutative else digits.neighbors_by_node(call.nodes)


def _group_of(call: Call, groups: Sequence[Sequence[int]]) -> Sequence[int]:
    return next(ranks for ranks in groups if call.rank in ranks)


def _folded(
    call: Call,
    pairs: Sequence[Sequence[int]],
    inner: Callable[[Call], Schedule],
    fold: str = "full",
) -> Steps:
    """Combine the vectors of each pair at its first rank, run `inner` on these, and pass it on."""
    leader, *others = _group_of(call, pairs)
    held = call.output if others else call.input
    if others and fold == "half":
        yield from _half_fold(call, leader, others[0])
    elif call.rank != leader:
        yield Send(call.input, to=leader)
    else:
        yield _combining(call.output, call.input, call.rank, others)
    if call.rank == leader:
        leaders = [ranks[0] for ranks in pairs]
        yield from inner(call.sub("allreduce", ranks=leaders, input=held, output=call.output))
        yield [Send(call.output, to=other) for other in others]
    else:
        yield Recv(call.output, source=leader)


def _half_fold(call: Call, leader: int, other: int) -> Steps:
    """Each of the two ranks combines one half; the leader gets both."""
    mine, peer = (0, other) if call.rank == leader else (1, leader)
    own, sums = call.input.split(2), call.output.split(2)
    receives = _combining(sums[mine], own[mine], call.rank, [peer])
    yield [Send(own[1 - mine], to=peer), *receives]
    yield Recv(sums[1], source=other) if mine == 0 else Send(sums[1], to=leader)


def _combining(into: Region, own: Region, rank: int, others: Iterable[int]) -> list[Recv]:
    """Receives that combine `own` with what `others` send, in rank order."""
    receives = []
    for peer in sorted(others, key=lambda peer: (peer > rank, abs(peer - rank))):
        left, right = (None, own) if peer < rank else (own, None)
        receives.append(Recv(into, source=peer, left=left, right=right))
        own = into
    return receives


def _left_to_right(into: Region, vectors: Sequence[Region], partial: Region) -> list[Combine]:
    """Combine `vectors` into `into`; sums of the first ones are in `partial` on the way."""
    combines, left = [], vectors[0]
    for vector in vectors[1:-1]:
        combines.append(Combine(partial, left, vector))
        left = partial
    return [*combines, Combine(into, left, vectors[-1])]
