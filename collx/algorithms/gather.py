"""Gather: the root gets the blocks of all ranks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeAlias

from collx.choice import Choice
from collx.collectives import Call
from collx.patterns import negabinary, trees
from collx.patterns.digits import by_node
from collx.patterns.trees import Branches
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

Cells: TypeAlias = "dict[int, int]"
"""How many cells the subtrees of a rank's children have, and the rank itself (relative ranks)."""

Cut: TypeAlias = "tuple[int, int]"
"""The first cell and the end of a part of every block."""

UNCUT = 2**62
"""An end no block reaches."""


@algorithm(
    covers=("linear",),
    window=(0, 8, 32),
    synchronous=(False, True),
)
def linear(call: Call, window: int = 0, synchronous: bool = False) -> Steps:
    """Send every block straight to the root, which has at most `window` receives open.

    Synchronous sends keep a root that lags behind from being flooded.

    Cost: rounds = 1, sent = n / P, messages = 1
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    if call.rank != call.root:
        yield Send(call.input, to=call.root, synchronous=synchronous)
        return
    blocks = call.output_blocks
    sources = (call.absolute(i) for i in range(1, call.size))
    receives = [Recv(blocks[source], source=source) for source in sources]
    yield Round((*receives, Copy(blocks[call.rank], call.input)), window)


@algorithm(covers=("linear sync",), first=(1024, 32768))
def linear_synchronized(call: Call, first: int = 1024) -> Steps:
    """Let one rank after the other send its block: the root gives each of them a go-ahead.

    The first `first` bytes go synchronously; the next rank may go while the rest arrives.

    Cost: rounds <= 2 * P - 1, sent = n / P, messages <= P - 1
    Reference: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007.
    """
    cells = call.segment_cells(first)
    if call.rank != call.root:
        yield Recv(TOKEN, source=call.root)
        yield Send(call.input.part(0, cells), to=call.root, synchronous=True)
        yield Send(call.input.part(cells, len(call.input)), to=call.root)
        return
    rest: list[Action] = [Copy(call.output_blocks[call.rank], call.input)]
    for source in (call.absolute(i) for i in range(1, call.size)):
        block = call.output_blocks[source]
        yield [*rest, Send(TOKEN, to=source), Recv(block.part(0, cells), source=source)]
        rest = [Recv(block.part(cells, len(block)), source=source)]
    yield rest


@algorithm(
    covers=("binomial: radix=2", "k-nomial", "k-nomial trees"),
    also={"binomial": {"radix": 2}},
    radix=(2, 4, 8),
)
def knomial(call: Call, radix: int = 4) -> Steps:
    """Collect the blocks of larger and larger groups of ranks, `radix` groups into one.

    Where ranks do not know the sizes of blocks, the sizes of groups are sent ahead.

    Cost: rounds = ceil(log(P, radix)), sent <= n / 2, messages = 1
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    tree = trees.knomial_branches(call.relative_rank, call.size, radix)
    cells = yield from branch_cells(call, tree, len(call.input))
    yield from _collect(call, tree, cells)


@algorithm(covers=("Bine tree",))
def bine(call: Call) -> Steps:
    """Collect the blocks of groups of ranks, two into one, over distances of alternating sign.

    Where ranks do not know the sizes of blocks, the sizes of groups are sent ahead.

    Cost: rounds <= ceil(log2(P)), sent <= n / 2, messages = 1
    Reference: De Sensi et al. 2025 (Bine trees).
    """
    tree = negabinary.bine_branches(call.relative_rank, call.size)
    cells = yield from branch_cells(call, tree, len(call.input))
    yield from _collect(call, tree, cells)


@algorithm(covers=("TUW trees",))
def tuw(call: Call) -> Steps:
    """Merge groups of neighbours, two into one: the rank that had most to receive receives again.

    First the sizes are exchanged, over the same groups. A large block thus travels once only, so
    that the time is that of the longest message chain plus about one transfer of all data.

    Cost: rounds <= 3 * ceil(log2(P)), sent <= n / 2
    Reference: Träff 2018 (TUW gatherv and scatterv).
    """
    tree, cells = yield from adapted(call, len(call.input))
    yield from _collect(call, tree, cells)


def _collect(call: Call, tree: Branches, cells: Cells) -> Steps:
    """Receive the blocks of subtrees, the smallest ones first, and pass them on with the own."""
    if not tree.levels:
        yield Send(call.input, to=call.absolute(tree.parent or 0))
        return
    place = places(call, tree, cells, call.output_blocks)
    own: list[Action] = [Copy(place[call.relative_rank], call.input)]
    for level in reversed(tree.levels):
        yield [*own, *(Recv(place[child], source=call.absolute(child)) for child in level)]
        own = []
    if tree.parent is not None:
        yield Send(Blocks(list(place.values())).whole, to=call.absolute(tree.parent))


def places(call: Call, tree: Branches, cells: Cells, blocks: Blocks) -> dict[int, Region]:
    """Where the blocks of each subtree and of the rank itself stand, in the order of ranks.

    At the root that is among `blocks`, on other ranks in scratch.
    """
    me = call.relative_rank
    if tree.parent is None:
        spans = tree.spans | {me: range(1)}
        return {r: blocks[call.root + s.start : call.root + s.stop] for r, s in spans.items()}
    label = me if me in tree.spans[me] else me - call.size
    starts = {r: span.start for r, span in tree.spans.items()} | {me: label}
    order = sorted(starts, key=starts.__getitem__)
    sizes = [cells[r] for r in order]
    return dict(zip(order, call.scratch(sum(sizes)).blocks(sizes), strict=True))


def branch_cells(call: Call, tree: Branches, own: int) -> Generator[Yielded, Answer, Cells]:
    """Cells in the subtree of each child, and `own` of the rank: known, or told by the children.

    The root knows them anyway.
    """
    if tree.parent is None:
        return {}
    if call.sizes is not None:
        sizes, root, size = call.sizes, call.root, call.size
        spans = {child: tree.spans[child] for child in tree.children}
        cells = {r: sum(sizes[(root + i) % size] for i in span) for r, span in spans.items()}
        return cells | {call.relative_rank: own}
    told = yield [RecvInts(1, source=call.absolute(child)) for child in tree.children]
    cells = {child: told_cells for child, (told_cells,) in zip(tree.children, told, strict=True)}
    cells[call.relative_rank] = own
    if tree.parent:
        yield SendInts((sum(cells.values()),), to=call.absolute(tree.parent))
    return cells


class Group(NamedTuple):
    """Consecutive ranks whose blocks will come together at one of them."""

    cells: int
    incoming: int
    """Cells that the other ranks of the group send to that one."""
    root: int


def adapted(call: Call, own: int) -> Generator[Yielded, Answer, tuple[Branches, Cells]]:
    """Agree on a tree that fits the sizes: groups of 1, 2, 4, ... ranks merge, two into one.

    Of each two roots the one that had more to receive goes on, in order not to send that much.
    """
    me, size = call.rank, call.size
    group, width = Group(own, 0, me), 1
    tree, cells = Branches(None, [], {me: range(size)}), {me: own}
    while width < size:
        first = me - me % (2 * width)
        halves = range(first, first + width), range(first + width, min(first + 2 * width, size))
        if halves[1]:
            group, (winner, loser, moved) = yield from _merge(call, halves, group, tree)
            span = halves[loser in halves[1]]
            if me == winner:
                tree = Branches(None, [(loser,), *tree.levels], tree.spans | {loser: span})
                cells[loser] = moved
            elif me == loser:
                tree = Branches(winner, tree.levels, tree.spans | {me: span})
        width *= 2
    return _from_root(tree, call), {(r - call.root) % size: n for r, n in cells.items()}


def _merge(
    call: Call, halves: tuple[range, range], group: Group, tree: Branches
) -> Generator[Yielded, Answer, tuple[Group, tuple[int, ...]]]:
    """Merge two groups: their first ranks meet, and tell (winner, loser, cells) to both roots.

    A rank that is told nothing gets (-1, -1, 0).
    """
    me, first, second = call.rank, halves[0].start, halves[1].start
    verdict: tuple[int, ...] = (-1, -1, 0)
    if me == second:
        yield SendInts(group, to=first)
    if me == first:
        other = Group(*(yield RecvInts(3, source=second))[0])
        keep = group.root == call.root or (
            other.root != call.root and group.incoming >= other.incoming
        )
        winner, loser = (group, other) if keep else (other, group)
        verdict = (winner.root, loser.root, loser.cells)
        group = Group(winner.cells + loser.cells, winner.incoming + loser.cells, winner.root)
        yield [SendInts(verdict, to=root) for root in verdict[:2] if root != me]
    elif tree.parent is None:
        (verdict,) = yield RecvInts(3, source=first)
    return group, verdict


def _from_root(tree: Branches, call: Call) -> Branches:
    """The same tree with ranks counted from the root."""
    root, size = call.root, call.size
    return Branches(
        None if tree.parent is None else (tree.parent - root) % size,
        [tuple((child - root) % size for child in level) for level in tree.levels],
        {(r - root) % size: range(s.start - root, s.stop - root) for r, s in tree.spans.items()},
    )


def two_stage(
    call: Call,
    groups: Sequence[Sequence[int]],
    heads: Sequence[int],
    inside: str | Choice,
    between: str | Choice,
    segment: int = 0,
) -> Steps:
    """Gather in each group to its head, then from the heads to the root; or scatter, in reverse.

    With segments the stages overlap: all blocks are cut at the same places.
    """
    everything, own = call.output_blocks, call.input
    if call.collective == "scatter":
        everything, own = call.input_blocks, call.output
    members, head = next(pair for pair in zip(groups, heads, strict=True) if call.rank in pair[0])
    blocks = yield from _member_blocks(call, members, head, everything, len(own))

    def in_group(cut: Cut | None) -> Steps:
        if cut:
            sizes = call.sizes and [_clip(call.sizes[rank], cut) for rank in members]
            part = blocks and _cut(blocks, cut)
            yield from run(_in_group(call, members, head, own.part(*cut), part, sizes), inside)

    def between_heads(cut: Cut | None) -> Steps:
        if cut and blocks:
            sizes = call.sizes and [sum(_clip(call.sizes[r], cut) for r in g) for g in groups]
            part = _cut(everything, cut).regroup(groups) if call.rank == call.root else None
            mine = _cut(blocks, cut).whole
            yield from run(_in_group(call, heads, call.root, mine, part, sizes), between)

    stages = (in_group, between_heads)
    first, second = stages if call.collective == "gather" else reversed(stages)
    cuts = _cuts(call, segment)
    for now, before in zip([*cuts, None], [None, *cuts], strict=True):
        yield from merge(first(now), second(before))


def _in_group(
    call: Call,
    ranks: Sequence[int],
    root: int,
    own: Region,
    blocks: Blocks | None,
    sizes: Sequence[int] | None,
) -> Call:
    """The same collective in a group: `own` is the block of this rank, `blocks` all at the root."""
    sides: tuple[Region | Blocks, Region | Blocks] = (own, blocks or EMPTY)
    input, output = sides if call.collective == "gather" else reversed(sides)
    name, at = call.collective, ranks.index(root)
    return call.sub(name, ranks=ranks, root=at, input=input, output=output, sizes=sizes)


def _cuts(call: Call, segment: int) -> list[Cut]:
    """Where to cut every block: not at all if nobody knows how long the longest one is."""
    if not segment or call.sizes is None:
        return [(0, UNCUT)]
    cells = call.segment_cells(segment)
    return [(start, start + cells) for start in range(0, max(call.sizes), cells)]


def _cut(blocks: Blocks, cut: Cut) -> Blocks:
    return Blocks([block.part(*cut) for block in blocks])


def _clip(cells: int, cut: Cut) -> int:
    return min(cells, cut[1]) - min(cells, cut[0])


def _member_blocks(
    call: Call, members: Sequence[int], head: int, everything: Blocks, own: int
) -> Generator[Yielded, Answer, Blocks | None]:
    """At the head of a group, where the blocks of its members stand; None at other ranks.

    At the root that is among `everything`, at other heads in scratch. Where ranks do not know the
    sizes of blocks, the members tell the head theirs, `own`.
    """
    if call.rank == head == call.root:
        return Blocks([everything[rank] for rank in members])
    if call.sizes is not None:
        sizes = [call.sizes[rank] for rank in members]
    elif call.rank == head:
        told = yield [RecvInts(1, source=rank) for rank in members if rank != head]
        told.insert(members.index(head), (own,))
        sizes = [cells for (cells,) in told]
    elif head != call.root:
        yield SendInts((own,), to=head)
    return call.scratch(sum(sizes)).blocks(sizes) if call.rank == head else None


@algorithm(
    needs=Need.NODE_MAP,
    covers=("two-level",),
    inter=("binomial", "linear"),
    intra=("linear", "binomial"),
    segment=(0, 65536, 524288),
)
def two_level(
    call: Call,
    inter: str | Choice = "binomial",
    intra: str | Choice = "linear",
    segment: int = 0,
) -> Steps:
    """Gather to one leader on each node, and then from the leaders to the root.

    With segments, of which every block has its own, the two levels overlap (not where ranks do
    not know the sizes of blocks).

    The cost is that with the default algorithms inside.

    Cost: rounds <= (ceil(n / m) + 1) * ceil(log2(P)), sent <= n
    Reference: Karonis et al. 2000; Luo et al. 2020 (HAN).
    """
    nodes = by_node(call.nodes)
    leaders = [call.root if call.root in node else node[0] for node in nodes]
    yield from two_stage(call, nodes, leaders, intra, inter, segment)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("full lane",),
    lane=("linear", "binomial"),
    intra=("linear", "binomial"),
)
def full_lane(call: Call, lane: str | Choice = "linear", intra: str | Choice = "linear") -> Steps:
    """Gather to the node of the root, to each rank there from one lane, and then to the root.

    A lane has one rank of every node: each rank of the root's node receives from other nodes,
    all at the same time.

    The cost is that with the default algorithms inside.

    Cost: rounds <= 2, sent <= n
    Reference: Träff, Hunold 2020.
    """
    nodes = by_node(call.nodes)
    here = next(node for node in nodes if call.root in node)
    lanes = [[rank for node in nodes for rank in node[i :: len(here)]] for i in range(len(here))]
    yield from two_stage(call, lanes, here, lane, intra)
