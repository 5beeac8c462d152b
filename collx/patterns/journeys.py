"""Blocks of a neighbourhood: straight to their targets, or in company over other ranks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from operator import itemgetter
from typing import Protocol, TypeAlias

from collx.collectives import Call
from collx.neighborhood import Graph
from collx.schedule import (
    Action,
    Answer,
    Copy,
    Recv,
    RecvInts,
    Region,
    Send,
    SendInts,
    Steps,
    Yielded,
)


def straight(call: Call, block_for: Callable[[int], Region]) -> list[Action]:
    """Send the block of each slot to the neighbour there, and receive from each, near ones first.

    All ranks list the edges in one and the same order: so many of them as a rank likes may be under
    way at a time, and no ranks wait for each other in a circle.
    """
    near, rank, size = call.neighbors, call.rank, call.size
    listed: list[tuple[tuple[int, int, int], Action]] = []
    for slot, edge in enumerate(near.sources):
        if edge:
            order = (rank - edge.rank) % size, edge.lane, edge.rank
            listed.append((order, Recv(call.output_blocks[slot], edge.rank, edge.lane)))
    for slot, edge in enumerate(near.targets):
        if edge:
            order = (edge.rank - rank) % size, edge.lane, rank
            listed.append((order, Send(block_for(slot), edge.rank, edge.lane)))
    return [action for _, action in sorted(listed, key=itemgetter(0))]


Item: TypeAlias = "tuple[int, ...]"
"""A block that travels: (source,), or (source, target, lane) if every edge has its own."""


def edge_items(graph: Graph) -> dict[Item, tuple[int, ...]]:
    """A block for each edge, and the rank it is for.

    Examples
    --------
    >>> from collx.neighborhood import Edge
    >>> edge_items(((Edge(1), Edge(0)), ()))
    {(0, 1, 0): (1,), (0, 0, 0): (0,)}
    """
    return {
        (source, target, lane): (target,)
        for source, edges in enumerate(graph)
        for target, lane in edges
    }


def source_items(graph: Graph) -> dict[Item, tuple[int, ...]]:
    """A block for each rank, and the ranks it is for.

    Examples
    --------
    >>> from collx.neighborhood import Edge
    >>> source_items(((Edge(1), Edge(1, 1), Edge(0)), ()))
    {(0,): (1, 0), (1,): ()}
    """
    return {
        (source,): tuple(dict.fromkeys(edge.rank for edge in edges))
        for source, edges in enumerate(graph)
    }


class Way(Hashable, Protocol):
    """How blocks travel: over which ranks from one rank to another, always as many of them."""

    def stops(self, source: int, target: int) -> Sequence[int]:
        """The ranks after the source, up to the target; a block may stay where it is."""


@dataclass(frozen=True)
class ByDimension:
    """In a grid: first to the coordinate of the target in dimension 0, then in 1, and so on.

    A grid that is too small has one more dimension before the others. A block does not stop at a
    place where no rank is.

    Examples
    --------
    >>> ByDimension((2, 3), 6).stops(0, 5), ByDimension((3,), 5).stops(2, 3)
    ([0, 3, 5], [2, 3])
    """

    dims: tuple[int, ...]
    size: int

    def stops(self, source: int, target: int) -> list[int]:
        """One stop for each dimension."""
        dims = (-(-self.size // prod(self.dims)), *self.dims)
        place, weight, found = source, prod(dims), []
        for extent in dims:
            weight //= extent
            place += (target // weight % extent - place // weight % extent) * weight
            source = place if place < self.size else source
            found.append(source)
        return found


@dataclass(frozen=True)
class ByHalves:
    """To an agent in the half of the ranks where the target is, then in the half of this half, ...

    The agent is the rank at the same place in the other half. Ranges of up to `smallest` ranks are
    not halved: there blocks go straight to their targets.

    Examples
    --------
    >>> ByHalves(7).stops(1, 6), ByHalves(7, 2).stops(1, 6)
    ([5, 6, 6], [5, 6, 6])
    """

    size: int
    smallest: int = 1

    def stops(self, source: int, target: int) -> list[int]:
        """One stop for each halving of the largest range, and the target."""
        first, last, longest, found = 0, self.size, self.size, []
        while longest > self.smallest:
            middle = (first + last + 1) // 2
            if source < middle <= target:
                source = min(source - first + middle, last - 1)
            elif target < middle <= source:
                source += first - middle
            first, last = (middle, last) if target >= middle else (first, middle)
            longest = (longest + 1) // 2
            found.append(source)
        return [*found, target] if self.smallest > 1 else found


@dataclass(frozen=True)
class ByNode:
    """To the own node's rank for the target's node, to that node's rank for the own one, and on.

    Examples
    --------
    >>> ByNode((0, 0, 1, 1)).stops(0, 3), ByNode((0, 0, 1, 1)).stops(0, 1)
    ([1, 2, 3], [0, 0, 1])
    """

    nodes: tuple[int, ...]
    _members: dict[int, list[int]] = field(init=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for rank, node in enumerate(self.nodes):
            self._members.setdefault(node, []).append(rank)

    def stops(self, source: int, target: int) -> list[int]:
        """Two stops between nodes, and the target."""
        here, there = self.nodes[source], self.nodes[target]
        if here == there:
            return [source, source, target]
        return [self._gate(here, there), self._gate(there, here), target]

    def _gate(self, node: int, other: int) -> int:
        members = self._members[node]
        return members[other % len(members)]


@dataclass(frozen=True)
class ByGroup:
    """To one of the `group` ranks around the source that have an edge to the target, then there.

    Examples
    --------
    >>> from collx.neighborhood import Edge
    >>> graph = ((Edge(2), Edge(3)), (Edge(2), Edge(3)), (), (Edge(0),))
    >>> ByGroup(graph, 2).stops(0, 2), ByGroup(graph, 2).stops(0, 3), ByGroup(graph, 2).stops(3, 0)
    ([0, 2], [1, 3], [3, 0])
    """

    graph: Graph
    group: int
    _targets: list[frozenset[int]] = field(init=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        self._targets.extend(frozenset(edge.rank for edge in edges) for edges in self.graph)

    def stops(self, source: int, target: int) -> list[int]:
        """One rank of the group, and the target."""
        first = source - source % self.group
        members = range(first, min(first + self.group, len(self.graph)))
        common = [rank for rank in members if target in self._targets[rank]]
        return [common[target % len(common)], target]


@dataclass
class Moves:
    """What a rank sends to each rank, and receives from each, in one round."""

    sends: dict[int, list[Item]] = field(default_factory=dict)
    receives: dict[int, list[Item]] = field(default_factory=dict)


@lru_cache(16)
def journey(graph: Graph, each_edge: bool, way: Way) -> list[dict[int, Moves]]:
    """For each round the moves of every rank that has some.

    Blocks that go between the same two ranks travel in one message. A rank never gets a block that
    it has: where the ways to several targets of a block begin alike, it goes there once.

    Examples
    --------
    >>> from collx.neighborhood import Edge
    >>> ring = tuple((Edge((rank + 1) % 4), Edge((rank - 1) % 4)) for rank in range(4))
    >>> first, second = journey(ring, True, ByDimension((2, 2), 4))
    >>> first[1].sends, second[3].sends
    ({3: [(1, 2, 0)]}, {2: [(1, 2, 0), (3, 2, 0)]})
    """
    items = edge_items(graph) if each_edge else source_items(graph)
    ways = {
        (source, target): [source, *way.stops(source, target)]
        for (source, *_), targets in items.items()
        for target in targets
        if target != source
    }
    holders = {item: {item[0]} for item in items}
    rounds: list[dict[int, Moves]] = []
    for number in range(max(map(len, ways.values()), default=1) - 1):
        rounds.append({})
        for item, targets in items.items():
            for way_there in (ways[item[0], target] for target in targets if target != item[0]):
                at, to = way_there[number : number + 2]
                if to not in holders[item]:
                    holders[item].add(to)
                    _note(rounds[-1], item, at, to)
    return [moves for moves in rounds if moves]


def _note(moves: dict[int, Moves], item: Item, at: int, to: int) -> None:
    moves.setdefault(at, Moves()).sends.setdefault(to, []).append(item)
    moves.setdefault(to, Moves()).receives.setdefault(at, []).append(item)


Sizes: TypeAlias = "dict[Item, int]"


def carry(call: Call, way: Way, each_edge: bool) -> Steps:
    """Let blocks travel `way`: one for each edge, or one for each rank.

    Ranks that pass blocks on must know their sizes. Where not all blocks are equal, or a rank
    without neighbours cannot know how large they are, sizes travel ahead of the blocks.
    """
    assert call.neighbors.graph is not None
    graph, rank = call.neighbors.graph, call.rank
    arrivals = _by_slot(call, each_edge)
    places = {item: call.output_blocks[slot] for slot, item in reversed(arrivals.items())}
    held = _own_items(call, each_edge)
    known = call.sizes[0] if call.sizes and _all_have_edges(graph) else None
    for moves in journey(graph, each_edge, way):
        mine = moves.get(rank, Moves())
        sizes = (yield from _told(mine, held)) if known is None else {}
        landing = {
            item: places[item] if item in places else call.scratch(sizes.get(item, known or 0))
            for items in mine.receives.values()
            for item in items
        }
        yield (
            *(Recv(_joined(landing, items), q) for q, items in mine.receives.items()),
            *(Send(_joined(held, items), q) for q, items in mine.sends.items()),
        )
        held.update(landing)
    yield [Copy(call.output_blocks[slot], held[item]) for slot, item in arrivals.items()]


def _by_slot(call: Call, each_edge: bool) -> dict[int, Item]:
    """For each block of the output what arrives there."""
    return {
        slot: (edge.rank, call.rank, edge.lane) if each_edge else (edge.rank,)
        for slot, edge in enumerate(call.neighbors.sources)
        if edge
    }


def _own_items(call: Call, each_edge: bool) -> dict[Item, Region]:
    if not each_edge:
        return {(call.rank,): call.input}
    return {
        (call.rank, *edge): call.input_blocks[slot]
        for slot, edge in enumerate(call.neighbors.targets)
        if edge
    }


@lru_cache(16)
def _all_have_edges(graph: Graph) -> bool:
    targets = {edge.rank for edges in graph for edge in edges}
    return all(edges or rank in targets for rank, edges in enumerate(graph))


def _joined(regions: dict[Item, Region], items: Sequence[Item]) -> Region:
    return Region(*(piece for item in items for piece in regions[item].pieces))


def _told(moves: Moves, held: dict[Item, Region]) -> Generator[Yielded, Answer, Sizes]:
    """Tell the sizes of the blocks that are sent, and learn those of the blocks received."""
    sends = [
        SendInts(tuple(len(held[item]) for item in items), to) for to, items in moves.sends.items()
    ]
    receives = [RecvInts(len(items), source) for source, items in moves.receives.items()]
    answer = yield [*receives, *sends]
    return {
        item: size
        for items, sizes in zip(moves.receives.values(), answer, strict=True)
        for item, size in zip(items, sizes, strict=True)
    }
