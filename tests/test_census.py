"""The census of algorithms elsewhere: all that collx can have it has, and the pages say so."""

from __future__ import annotations

from collections import Counter

import pytest

from collx.census import Reason, Row, covering, marks, rows, serves
from collx.collectives import COLLECTIVES
from collx.registry import Algorithm, everything

ALGORITHMS = {f"{a.family}.{a.name}": a for a in everything()}


def test_census_is_complete() -> None:
    assert sum(row.kind == "library" for row in rows()) == 199
    assert {row.reason for row in rows()} == {None, *Reason}
    pairs = Counter((row.name, name) for row in rows() for name in row.collectives)
    assert max(pairs.values()) == 1


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.collectives[0]}: {row.name}")
def test_row_is_covered_or_has_a_reason(row: Row) -> None:
    """A row without a reason is covered for each collective; one with a reason for none."""
    assert set(row.collectives) <= COLLECTIVES.keys()
    for collective in row.collectives:
        covers = covering(row, collective)
        assert bool(covers) == (row.reason is None), collective
        for cover in covers:
            cover.check()


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_marks_name_rows(algorithm: Algorithm) -> None:
    known = {
        row.name for row in rows() if any(serves(algorithm, name) for name in row.collectives)
    }
    assert marks(algorithm).keys() <= known
    assert len(marks(algorithm)) == len(algorithm.covers)


def test_row_without_algorithm_is_found() -> None:
    assert not covering(Row("telepathy", ("bcast",), "nobody"), "bcast")
