"""The census of algorithms elsewhere: all that collx can have it has, and the pages say so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from collx.__main__ import main
from collx.census import Reason, Row, covering, marks, rows, serves
from collx.collectives import COLLECTIVES
from collx.pages import PAGES, costs_page
from collx.registry import Algorithm, everything

ALGORITHMS = {f"{a.family}.{a.name}": a for a in everything()}
DOCS = Path(__file__).parents[2] / "docs"


def test_census_is_complete() -> None:
    between_groups = sum(row.collectives[0].startswith("inter_") for row in rows())
    assert sum(row.kind == "library" for row in rows()) == 176 + between_groups
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
    known = {row.name for row in rows() if any(serves(algorithm, name) for name in row.collectives)}
    assert marks(algorithm).keys() <= known
    assert len(marks(algorithm)) == len(algorithm.covers)


def test_row_without_algorithm_is_found() -> None:
    assert not covering(Row("telepathy", ("bcast",), "nobody"), "bcast")


@pytest.mark.parametrize("name", ["algorithms", "census", "reductions"])
def test_page_is_up_to_date(name: str) -> None:
    written = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: python -m collx docs"


def test_costs_name_every_algorithm() -> None:
    """Counting takes minutes: what is compared is who is there."""
    written = (DOCS / "costs.md").read_text(encoding="utf-8")
    for section in written.split("\n## ")[1:]:
        family = section.partition("\n")[0]
        for algorithm in ALGORITHMS.values():
            assert algorithm.family != family or f"\n| `{algorithm.name}`" in section
    assert all(f"\n## {algorithm.family}\n" in written for algorithm in ALGORITHMS.values())


def test_costs_are_counted() -> None:
    page = costs_page((7, 8), ["reduce_scatter"])
    assert "| `circulant` ★ | **3**, **5760** | **3**, **6720** |" in page
    assert "| `ring` | 6, **5760** | 7, **6720** |" in page


def test_command_line_shows_the_census(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--census", "--collective", "bcast"]) == 0
    shown = capsys.readouterr().out
    assert "-> `bcast.chain(chains=1, segment=64K)`" in shown
    assert "-> none: it depends on when ranks arrive." in shown
