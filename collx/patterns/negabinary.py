"""Bine trees: binomial trees over numbers in base -2, so that distances alternate in sign.

Ranks are relative: the root is rank 0. A rank past the middle counts as a negative label. The ways
on a ring are about 0.7 times as long as those of a binomial tree.

| tree          | subtree of a rank   | order that folds ranks in order                     |
|---------------|---------------------|-----------------------------------------------------|
| bine          | contiguous *labels* | only of labels, which run from negative to positive |
| bine_doubling | spread out          | none                                                |
"""

from __future__ import annotations

from functools import cache

from collx.patterns.trees import Branches, Tree

_ODD_DIGITS = 0xAAAAAAAAAAAAAAAA


def _negabinary(label: int) -> int:
    """The digits of a signed number in base -2."""
    return (label + _ODD_DIGITS) ^ _ODD_DIGITS


def _label(digits: int) -> int:
    """The signed number with these digits in base -2."""
    return (digits ^ _ODD_DIGITS) - _ODD_DIGITS


def _bine_run(label: int, size: int) -> int:
    """How many of the lowest digits are equal; for label 0 all that `size` labels need."""
    digits = _negabinary(label)
    changes = digits ^ digits >> 1
    return (changes & -changes).bit_length() or (size - 1).bit_length() + 1


def _bine_parent(label: int, size: int) -> int:
    return _label(_negabinary(label) ^ ((1 << _bine_run(label, size)) - 1))


def bine(rank: int, size: int) -> Tree:
    """The tree with halving distances: a child differs from its parent in all low digits.

    >>> bine(0, 8), bine(3, 8)
    (Tree(parent=None, children=(3, 7, 1)), Tree(parent=0, children=(4, 2)))
    """
    labels = bine_labels(size)
    label = rank if rank in labels else rank - size
    digits = _negabinary(label)
    children = [
        _label(digits ^ ((1 << run) - 1)) for run in range(_bine_run(label, size) - 1, 0, -1)
    ]
    parent = _bine_parent(label, size) % size if label else None
    return Tree(parent, tuple(child % size for child in children if child in labels))


def bine_branches(rank: int, size: int) -> Branches:
    """The tree `bine` with the labels in its subtrees.

    >>> bine_branches(3, 8)
    Branches(parent=0, levels=[(4,), (2,)], spans={4: range(4, 6), 2: range(2, 3), 3: range(2, 6)})
    """
    parent, children = bine(rank, size)
    spans = {r: _bine_span(r, size) for r in (*children, rank)}
    return Branches(parent, [(child,) for child in children], spans)


def _bine_span(rank: int, size: int) -> range:
    """The labels in the subtree of a rank: all that differ from it in few enough digits."""
    labels = bine_labels(size)
    label = rank if rank in labels else rank - size
    below = (1 << (_bine_run(label, size) - 1)) - 1
    start = _label(_negabinary(label) & ~below) - (_ODD_DIGITS & below)
    return range(max(start, labels.start), min(start + below + 1, labels.stop))


@cache
def bine_labels(size: int) -> range:
    """The labels of all ranks in `bine`: the most balanced range that has all its parents.

    >>> bine_labels(8), bine_labels(6)
    (range(-2, 6), range(-2, 4))
    """
    below = (1 << (size - 1).bit_length()) - 1
    first = -(_ODD_DIGITS & below)
    starts = range(max(first, 1 - size), min(first + below + 1 - size, 0) + 1)
    for start in sorted(starts, key=lambda start: abs(2 * start + size - 1)):
        labels = range(start, start + size)
        # Subtrees are contiguous: a parent outside is also outside for the first or the last label.
        if all(_bine_reaches_root(end, labels) for end in (labels[0], labels[-1])):
            return labels
    raise AssertionError(f"no Bine tree of {size} ranks")


def _bine_reaches_root(label: int, labels: range) -> bool:
    while label and label in labels:
        label = _bine_parent(label, len(labels))
    return label == 0


def bine_doubling(rank: int, size: int) -> Tree:
    """The tree with doubling distances: a child has more digits, all others than its parent.

    >>> bine_doubling(0, 8), bine_doubling(6, 8)
    (Tree(parent=None, children=(1, 7, 3)), Tree(parent=1, children=(5,)))
    """
    labels = doubling_labels(size)
    label = rank if rank in labels else rank - size
    digits = _negabinary(label)
    children = [
        _label(digits ^ ((1 << length) - 1))
        for length in range(digits.bit_length() + 1, (size - 1).bit_length() + 1)
    ]
    parent = _doubling_parent(label) % size if label else None
    return Tree(parent, tuple(child % size for child in children if child in labels))


def _doubling_parent(label: int) -> int:
    digits = _negabinary(label)
    return _label(digits ^ ((1 << digits.bit_length()) - 1))


@cache
def doubling_labels(size: int) -> range:
    """The labels of all ranks in `bine_doubling`, a range around 0 that has all its parents.

    >>> doubling_labels(8), doubling_labels(5)
    (range(-2, 6), range(-2, 3))
    """
    below = (1 << (size - 1).bit_length()) - 1
    first = -(_ODD_DIGITS & below)
    for start in sorted(range(first, 1), key=lambda start: abs(2 * start + size - 1)):
        labels = range(start, start + size)
        if labels.stop <= first + below + 1 and all(
            _doubling_parent(label) in labels for label in labels if label
        ):
            return labels
    raise AssertionError(f"no Bine tree of {size} ranks")


TREES = {"halving": bine, "doubling": bine_doubling}
"""Both trees by the order of their distances."""
