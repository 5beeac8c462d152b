"""Scatter: every rank gets its block of what the root has."""

from __future__ import annotations

from collx.algorithms import gather
from collx.choice import Choice
from collx.collectives import Call
from collx.patterns import negabinary, trees
from collx.patterns.digits import by_node
from collx.patterns.trees import Branches
from collx.registry import Need, algorithm
from collx.schedule import Action, Blocks, Copy, Recv, Region, Round, Send, Steps


def _kept(call: Call, block: Region) -> list[Action]:
    """The copy of the own block, if it does not stand in its place already."""
    return [Copy(call.output, block)] if call.output != block else []


@algorithm(
    covers=("linear", "linear bounded: window=8"),
    window=(0, 8, 16),
)
def linear(call: Call, window: int = 0) -> Steps:
    """Send every block straight from the root, which has at most `window` sends open.

    Cost: rounds = 1, sent = n * (P - 1) / P, messages = P - 1
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    if call.rank != call.root:
        yield Recv(call.output, source=call.root)
        return
    blocks = call.input_blocks
    others = (call.absolute(i) for i in range(1, call.size))
    sends = [Send(blocks[rank], to=rank) for rank in others]
    yield Round((*sends, *_kept(call, blocks[call.rank])), window)


@algorithm(
    covers=("binomial: radix=2", "k-nomial", "k-nomial trees"),
    also={"binomial": {"radix": 2}},
    radix=(2, 4, 8),
)
def knomial(call: Call, radix: int = 4) -> Steps:
    """Hand on the blocks of smaller and smaller groups of ranks, one group cut into `radix`.

    Where ranks do not know the sizes of blocks, the sizes of groups are sent to the root first.

    Cost: rounds = ceil(log(P, radix)), sent = n * (P - 1) / P
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    tree = trees.knomial_branches(call.relative_rank, call.size, radix)
    cells = yield from gather.branch_cells(call, tree, len(call.output))
    yield from _distribute(call, tree, cells)


@algorithm(covers=("Bine tree",))
def bine(call: Call) -> Steps:
    """Hand on the blocks of groups of ranks, one cut into two, over distances of alternating sign.

    Where ranks do not know the sizes of blocks, the sizes of groups are sent to the root first.

    Cost: rounds <= ceil(log2(P)), sent = n * (P - 1) / P
    Reference: De Sensi et al. 2025 (Bine trees).
    """
    tree = negabinary.bine_branches(call.relative_rank, call.size)
    cells = yield from gather.branch_cells(call, tree, len(call.output))
    yield from _distribute(call, tree, cells)


@algorithm(covers=("TUW trees",))
def tuw(call: Call) -> Steps:
    """Hand on the blocks of groups of neighbours, one group cut into two, as the sizes suggest.

    The sizes are exchanged first. A group is served by the rank that saves most by having its own
    part there already, so that a large block travels about once.

    Cost: rounds <= 3 * ceil(log2(P)), sent = n * (P - 1) / P
    Reference: Träff 2018 (TUW gatherv and scatterv).
    """
    tree, cells = yield from gather.adapted(call, len(call.output))
    yield from _distribute(call, tree, cells)


def _distribute(call: Call, tree: Branches, cells: gather.Cells) -> Steps:
    """Receive the blocks of the subtree, and send to the children theirs, the largest first."""
    if not tree.levels:
        yield Recv(call.output, source=call.absolute(tree.parent or 0))
        return
    place = gather.places(call, tree, cells, call.input_blocks)
    if tree.parent is not None:
        whole = Blocks(list(place.values())).whole
        yield Recv(whole, source=call.absolute(tree.parent))
    for level in tree.levels[:-1]:
        yield [Send(place[child], to=call.absolute(child)) for child in level]
    last = [Send(place[child], to=call.absolute(child)) for child in tree.levels[-1]]
    yield [*last, *_kept(call, place[call.relative_rank])]


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
    """Scatter from the root to one leader on each node, and then from the leaders on the nodes.

    With segments, of which every block has its own, the two levels overlap (not where ranks do
    not know the sizes of blocks).

    The cost is that with the default algorithms inside.

    Cost: rounds <= (ceil(n / m) + 1) * ceil(log2(P)), sent <= 2 * n
    Reference: Karonis et al. 2000; Luo et al. 2020 (HAN).
    """
    nodes = by_node(call.nodes)
    leaders = [call.root if call.root in node else node[0] for node in nodes]
    yield from gather.two_stage(call, nodes, leaders, intra, inter, segment)


@algorithm(
    needs=Need.NODE_MAP,
    covers=("full lane",),
    intra=("linear", "binomial"),
    lane=("linear", "binomial"),
)
def full_lane(call: Call, intra: str | Choice = "linear", lane: str | Choice = "linear") -> Steps:
    """Scatter on the node of the root, and then from each rank there along its lane.

    A lane has one rank of every node: each rank of the root's node sends to other nodes, all at
    the same time.

    The cost is that with the default algorithms inside.

    Cost: rounds <= 2, sent <= n
    Reference: Träff, Hunold 2020.
    """
    nodes = by_node(call.nodes)
    here = next(node for node in nodes if call.root in node)
    lanes = [[rank for node in nodes for rank in node[i :: len(here)]] for i in range(len(here))]
    yield from gather.two_stage(call, lanes, here, lane, intra)
