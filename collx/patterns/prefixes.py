"""Scans over trees whose subtrees are consecutive ranks: totals go up, prefixes come down."""

from __future__ import annotations

from typing import NamedTuple

from collx.collectives import Call
from collx.patterns.trees import in_order
from collx.schedule import EMPTY, Action, Combine, Copy, Recv, Region, Send, Steps


class Place(NamedTuple):
    """Where a rank is in a tree, and whether its subtree has the first or the last rank.

    `height` is 0 for a leaf; a parent is higher than its children (at the root, `above` is one
    more than its height).
    """

    parent: int | None
    left: int | None
    right: int | None
    first: bool
    last: bool
    height: int
    above: int


def place(rank: int, size: int, mirrored: bool = False) -> Place:
    """The place of a rank in the tree `in_order`, or in its mirror image.

    The image is that of a tree with an even number of ranks, of which the last has no rank: then
    ranks that have children in one tree are leaves of the other.

    Examples
    --------
    >>> place(2, 4)
    Place(parent=1, left=None, right=None, first=False, last=False, height=0, above=1)
    >>> place(2, 4, mirrored=True)
    Place(parent=0, left=1, right=3, first=False, last=True, height=1, above=2)
    """
    whole = size + size % 2 if mirrored else size

    def image(other: int) -> int:
        return whole - 1 - other if mirrored else other

    tree = in_order(image(rank), whole)
    children = [image(child) for child in tree.children if image(child) < size]
    spot = image(rank) + 1
    reach = spot & -spot
    low, high = spot - reach, min(spot + reach - 1, whole)
    begin, end = (whole - high, whole - low) if mirrored else (low, high)
    return Place(
        None if tree.parent is None else image(tree.parent),
        next((child for child in children if child < rank), None),
        next((child for child in children if child > rank), None),
        begin == 0,
        end >= size,
        _height(spot),
        _height(spot) + 1 if tree.parent is None else _height(tree.parent + 1),
    )


def _height(spot: int) -> int:
    return (spot & -spot).bit_length() - 1


class Vectors:
    """The vectors of a scan at one rank, in segments.

    Attributes
    ----------
    own, out : list of Region
        Its input and its output.
    lower : list of Region
        The total of the left child.
    head : list of Region
        That and the own value.
    total : list of Region
        The total of the subtree, where somebody needs it.
    before : list of Region
        What comes before the subtree.
    after : list of Region
        What comes before the right child.
    """

    def __init__(self, call: Call, cells: int, inclusive: bool, at: Place) -> None:
        def buffer() -> list[Region]:
            return call.scratch(len(call.input)).segments(cells)

        self.inclusive, self.at = inclusive, at
        self.own, self.out = call.input.segments(cells), call.output.segments(cells)
        out, first, leftmost = self.out, at.first, at.left is None
        self.lower = [] if leftmost else buffer() if inclusive else out
        self.head = self.own if leftmost else out if inclusive else buffer()
        self.total = [] if at.last else self.head if at.right is None else buffer()
        self.before = [] if first else out if leftmost and not inclusive else buffer()
        self.after = out if inclusive else self.head if first else buffer()

    def results(self, done: int) -> Steps:
        """Compute the result, and what the right child needs, once it is known what is before."""
        before, head = _at(self.before, done), _at(self.head, done)
        if self.inclusive:
            yield _into(_at(self.out, done), *([head] if self.at.first else [before, head]))
        elif not self.at.first:
            if self.at.left is not None:
                yield [Combine(_at(self.out, done), before, _at(self.lower, done))]
            if self.at.right is not None:
                yield [Combine(_at(self.after, done), before, head)]


def _at(segments: list[Region], index: int) -> Region:
    """Give a segment, or nothing where there is none."""
    return segments[index] if 0 <= index < len(segments) else EMPTY


def _into(into: Region, left: Region, right: Region | None = None) -> list[Action]:
    """Combine, or copy where there is only one operand and it is elsewhere."""
    if right is not None:
        return [Combine(into, left, right)]
    return [] if into == left else [Copy(into, left)]


def doubly_pipelined(call: Call, segment: int, inclusive: bool) -> Steps:
    """For each segment, swap messages with the left child, the right child and the parent in turn.

    A total of a later segment goes up against a prefix of an earlier one.
    """
    at, depth = place(call.rank, call.size), _depth(call.rank, call.size)
    has = Vectors(call, call.segment_cells(segment), inclusive, at)
    count = len(has.own)
    for j in range(count + depth + 1):
        done = j - depth
        below = j < count or 0 < done <= count
        if at.left is not None and below:
            yield Recv(_at(has.lower, j), at.left), Send(_at(has.before, done - 1), at.left)
            yield Combine(_at(has.head, j), _at(has.lower, j), _at(has.own, j))
        if at.right is not None and below:
            partial = _at([] if at.last else has.head, j)
            yield (
                Recv(_at(has.total, j), at.right, left=partial),
                Send(_at(has.after, done - 1), at.right),
            )
        if at.parent is not None and (j < count or 0 <= done < count):
            yield Send(_at(has.total, j), at.parent), Recv(_at(has.before, done), at.parent)
        yield from has.results(done)


def _depth(rank: int, size: int) -> int:
    parent = in_order(rank, size).parent
    return 0 if parent is None else 1 + _depth(parent, size)


def in_two_trees(call: Call, segment: int, inclusive: bool) -> Steps:
    """Scan half of the vector in each of two trees, which take turns."""
    halves = zip(call.input.split(2), call.output.split(2), (False, True), strict=True)
    trees = []
    for half, into, mirrored in halves:
        part = call.sub(call.collective, input=half, output=into)
        at = place(call.rank, call.size, mirrored)
        trees.append(Vectors(part, call.segment_cells(segment), inclusive, at))
    top = (call.size + call.size % 2).bit_length() - 1
    for tick in range(len(trees[0].own) + 2 * top + 1):
        for has in trees:
            yield from _tick(has, tick, top)


def _tick(has: Vectors, tick: int, top: int) -> Steps:
    """Let a segment move by one edge, up and then down; later segments follow.

    A total leaves for a parent of height h in tick h - 1, and a prefix leaves such a parent as many
    ticks before the end: both ends of an edge agree.
    """
    at, fall = has.at, tick - 2 * top - 1
    up, known = tick - at.above + 1, fall + at.above
    arrived, told = tick - at.height + 1, fall + at.height
    actions: list[Action] = []
    if at.parent is not None:
        actions += [Send(_at(has.total, up), at.parent), Recv(_at(has.before, known), at.parent)]
    if at.left is not None:
        actions += [Recv(_at(has.lower, arrived), at.left), Send(_at(has.before, told), at.left)]
    if at.right is not None:
        actions += [Recv(_at(has.total, arrived), at.right), Send(_at(has.after, told), at.right)]
    yield actions
    head, total = _at(has.head, arrived), _at(has.total, arrived)
    if at.left is not None:
        yield Combine(head, _at(has.lower, arrived), _at(has.own, arrived))
    if at.right is not None and not at.last:
        yield Combine(total, head, total)
    yield from has.results(known)
