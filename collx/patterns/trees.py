"""Trees: who is the parent of a rank and who are its children.

All ranks here are relative: the root is rank 0 unless said otherwise. `children` stand in the order
in which a broadcast best sends to them, the deepest subtree first.

| tree              | subtree of a rank  | order that folds ranks in order                    |
|-------------------|--------------------|----------------------------------------------------|
| knomial           | contiguous         | own value, then the children ascending             |
| knomial_doubling  | spread out         | none                                               |
| kary, strided     | spread out         | none                                               |
| chain             | contiguous         | own value, then the children ascending             |
| flat              | contiguous         | own value, then the children ascending             |
| post_order        | contiguous         | the children, then the own value (root: last rank) |
| in_order          | contiguous         | left child, own value, right child                 |
| double_tree       | spread out         | none                                               |
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Tree(NamedTuple):
    """What one rank sees of a tree: its parent (None at the root) and its children."""

    parent: int | None
    children: tuple[int, ...]


class Branches(NamedTuple):
    """What one rank sees of a tree whose subtrees are ranges of ranks.

    `levels` are the children, those with the largest subtrees first. `spans` are the ranks in the
    subtree of each child and of the rank itself; a negative one means that many before rank 0.
    """

    parent: int | None
    levels: list[tuple[int, ...]]
    spans: dict[int, range]

    @property
    def children(self) -> list[int]:
        """All children."""
        return [child for level in self.levels for child in level]


def flat(rank: int, size: int) -> Tree:
    """All ranks are children of rank 0.

    >>> flat(0, 4), flat(2, 4)
    (Tree(parent=None, children=(3, 2, 1)), Tree(parent=0, children=()))
    """
    return Tree(0, ()) if rank else Tree(None, tuple(range(size - 1, 0, -1)))


def chain(rank: int, size: int, heads: int = 1) -> Tree:
    """The root feeds `heads` chains of consecutive ranks; the first chains may be one rank longer.

    >>> [chain(rank, 6, heads=2).children for rank in range(6)]
    [(1, 4), (2,), (3,), (), (5,), ()]
    """
    length, longer = divmod(size - 1, min(heads, max(size - 1, 1)))
    turn = 1 + longer * (length + 1)
    if rank == 0:
        return Tree(None, (*range(1, turn, length + 1), *range(turn, size, max(length, 1))))
    length, place = (length + 1, rank - 1) if rank < turn else (length, rank - turn)
    last = place % length == length - 1
    return Tree(rank - 1 if place % length else 0, () if last else (rank + 1,))


def _weight(rank: int, size: int, radix: int) -> int:
    """The power of `radix` at the lowest digit that is not 0; for rank 0 the first >= size."""
    weight = 1
    while weight < size and rank // weight % radix == 0:
        weight *= radix
    return weight


def knomial(rank: int, size: int, radix: int = 2) -> Tree:
    """The parent clears the lowest digit (base `radix`) that is not 0: distances shrink.

    >>> knomial(0, 9), knomial(4, 9)
    (Tree(parent=None, children=(8, 4, 2, 1)), Tree(parent=0, children=(6, 5)))
    >>> knomial(0, 9, radix=3)
    Tree(parent=None, children=(6, 3, 2, 1))
    """
    levels = knomial_levels(rank, size, radix)
    weight = _weight(rank, size, radix)
    parent = rank - rank % (weight * radix) if rank else None
    return Tree(parent, tuple(child for level in levels for child in level))


def knomial_levels(rank: int, size: int, radix: int = 2) -> list[tuple[int, ...]]:
    """The children in `knomial`, grouped by level, the largest subtrees first.

    >>> knomial_levels(0, 9, radix=3)
    [(6, 3), (2, 1)]
    """
    levels, weight = [], _weight(rank, size, radix) // radix
    while weight:
        last = min(radix - 1, (size - 1 - rank) // weight)
        levels.append(tuple(rank + z * weight for z in range(last, 0, -1)))
        weight //= radix
    return [level for level in levels if level]


def knomial_branches(rank: int, size: int, radix: int = 2) -> Branches:
    """The tree `knomial` with the ranks in its subtrees.

    >>> knomial_branches(4, 7)
    Branches(parent=0, levels=[(6,), (5,)], spans={6: range(6, 7), 5: range(5, 6), 4: range(4, 7)})
    """
    parent, children = knomial(rank, size, radix)
    spans = {r: range(r, min(r + _weight(r, size, radix), size)) for r in (*children, rank)}
    return Branches(parent, knomial_levels(rank, size, radix), spans)


def knomial_doubling(rank: int, size: int, radix: int = 2) -> Tree:
    """The parent clears the highest digit that is not 0: distances grow.

    >>> knomial_doubling(0, 9), knomial_doubling(1, 9)
    (Tree(parent=None, children=(1, 2, 4, 8)), Tree(parent=0, children=(3, 5)))
    """
    levels = knomial_doubling_levels(rank, size, radix)
    return Tree(
        rank % _place(rank, radix) if rank else None,
        tuple(child for level in levels for child in level),
    )


def knomial_doubling_levels(rank: int, size: int, radix: int = 2) -> list[tuple[int, ...]]:
    """The children in `knomial_doubling`, grouped by level, the largest subtrees first.

    >>> knomial_doubling_levels(1, 9, radix=3)
    [(4, 7)]
    """
    levels, weight = [], _place(rank, radix) * radix if rank else 1
    while rank + weight < size:
        levels.append(tuple(range(rank + weight, min(rank + radix * weight, size), weight)))
        weight *= radix
    return levels


def _place(rank: int, radix: int) -> int:
    """The power of `radix` at the highest digit of a rank."""
    weight = 1
    while weight * radix <= rank:
        weight *= radix
    return weight


def kary(rank: int, size: int, arity: int = 2) -> Tree:
    """The heap: the children of rank r are arity * r + 1, ..., arity * r + arity.

    >>> kary(3, 8), kary(1, 8, arity=3)
    (Tree(parent=1, children=(7,)), Tree(parent=0, children=(4, 5, 6)))
    """
    first = arity * rank + 1
    parent = (rank - 1) // arity if rank else None
    return Tree(parent, tuple(range(first, min(first + arity, size))))


def strided(rank: int, size: int) -> Tree:
    """Binary tree with stride 2^level: the left half has the odd ranks, the right the even ones.

    >>> [strided(rank, 8).children for rank in range(4)]
    [(1, 2), (3, 5), (4, 6), (7,)]
    """
    width = 1 << ((rank + 1).bit_length() - 1)
    children = tuple(child for child in (rank + width, rank + 2 * width) if child < size)
    near = rank - width // 2
    parent = near if near < width - 1 else rank - width
    return Tree(parent if rank else None, children)


def post_order(rank: int, size: int) -> Tree:
    """Balanced binary tree rooted at the last rank; the last rank of each subtree is its root.

    >>> post_order(5, 6), post_order(2, 6)
    (Tree(parent=None, children=(2, 4)), Tree(parent=5, children=(0, 1)))
    """
    start, stop, parent = 0, size, None
    while rank != stop - 1:
        middle, parent = (start + stop) // 2, stop - 1
        start, stop = (start, middle) if rank < middle else (middle, stop - 1)
    middle = (start + stop) // 2
    first = (middle - 1,) if middle > start else ()
    return Tree(parent, first + ((stop - 2,) if stop - 1 > middle else ()))


def in_order(rank: int, size: int) -> Tree:
    """Binary search tree: ranks below a node in its left subtree; every even rank is a leaf.

    The root is rank 2^k - 1 with the largest k that fits.

    >>> in_order(3, 6), in_order(5, 6)
    (Tree(parent=None, children=(1, 5)), Tree(parent=3, children=(4,)))
    """
    node, low = rank + 1, (rank + 1) & -(rank + 1)
    parent: int | None = (node ^ low) | 2 * low
    while parent is not None and parent > size:
        parent = node ^ low or None
    half = low // 2
    left = (node - half,) if half else ()
    while half and node + half > size:
        half //= 2
    right = (node + half,) if half else ()
    return Tree(parent - 1 if parent else None, tuple(child - 1 for child in left + right))


class TimedTree(NamedTuple):
    """One of two trees that share all ranks, and when its edges carry their first message.

    An edge carries a message in every other round from then on. `arrival` is the first round for
    the edge from the parent (root: -1), `departures` are those of the edges to the children. Read
    backwards these are the rounds of a reduction.
    """

    parent: int | None
    children: tuple[int, ...]
    arrival: int
    departures: tuple[int, ...]


def double_tree(rank: int, size: int) -> tuple[TimedTree, TimedTree]:
    """Two binary trees: each rank but the root has children in at most one of them.

    In one round every rank receives at most one message and sends at most one, both trees taken
    together.

    >>> for tree in double_tree(2, 6): print(*tree)
    4 (1, 3) 1 (2, 3)
    3 () 4 ()
    """
    return _timed(rank, size, 0), _timed(rank, size, 1)


def _timed(rank: int, size: int, side: int) -> TimedTree:
    parent, children = _double_side(rank, size, side)
    departures = tuple(_arrival(child, size, side) for child in children)
    return TimedTree(parent, children, _arrival(rank, size, side), departures)


def _arrival(rank: int, size: int, side: int) -> int:
    """The first round of the right colour after the parent got its first message."""
    if rank == 0:
        return -1
    parent = _double_side(rank, size, side).parent
    after = _arrival(parent or 0, size, side) + 1
    return after + (after ^ _double_colors(size)[rank] ^ side) % 2


def _double_side(rank: int, size: int, side: int) -> Tree:
    """Rank 0 above `in_order` of the other ranks (side 0), or the image of this tree (side 1).

    The image is the mirrored tree or, where that would leave even ranks even, the tree moved by 1.
    """
    others = size - 1
    if rank == 0:
        return Tree(None, (_image(1 << (others.bit_length() - 1), size, side),))
    place = rank
    if side:
        place = size - rank if size % 2 else (rank - 2) % others + 1
    parent, children = in_order(place - 1, others)
    return Tree(
        0 if parent is None else _image(parent + 1, size, side),
        tuple(_image(child + 1, size, side) for child in children),
    )


def _image(place: int, size: int, side: int) -> int:
    """The rank at a place of one of the two trees."""
    if side == 0:
        return place
    return size - place if size % 2 else place % (size - 1) + 1


@cache
def _double_colors(size: int) -> bytes:
    """For each rank the colour, 0 or 1, of its edge to the parent in the first tree.

    No two edges to one rank and no two from one rank have the same colour. So the edge in the
    second tree has the other colour, and siblings differ; the tops of the two trees have one
    colour in this table, as they are both children of the root.
    """
    colors: dict[int, int] = {0: 0}
    tops = [_double_side(0, size, side).children[0] for side in (0, 1)]
    for start in (*tops, *range(1, size)):
        open_ = [(start, 0)]
        while open_:
            rank, color = open_.pop()
            if rank not in colors:
                colors[rank] = color
                open_ += [(sibling, 1 - color) for sibling in _double_siblings(rank, size)]
    return bytes(colors[rank] for rank in range(size))


def _double_siblings(rank: int, size: int) -> list[int]:
    parents = [_double_side(rank, size, side).parent for side in (0, 1)]
    families = [_double_side(p, size, side).children for side, p in enumerate(parents) if p]
    return [child for family in families for child in family if child != rank]
