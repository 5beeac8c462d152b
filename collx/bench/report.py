"""What a run has to say: table, notes, JSON, CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from collx.bench.candidates import measurable
from collx.bench.places import kind_of
from collx.bench.timing import WARM_UPS, Cell, Row, Task
from collx.bench.validation import Session, Validated
from collx.collectives import COLLECTIVES
from collx.environment import summary
from collx.statistics import FEWEST, median, median_interval, ratio_interval

_HEAD = (
    *("", "bytes", "n", "native us"),
    *("collx's choice", "us", "ratio", "best algorithm", "us", "ratio"),
)
_LEGEND = """\
Medians of n repetitions of the slowest rank, in microseconds; ratios to native, below 1 is faster,
with 95 % confidence intervals (none below {fewest} repetitions). The best algorithm is picked from
these same samples, so its ratio is a little optimistic."""


class Progress:
    """One line on a terminal that is written over and over; nothing elsewhere."""

    def __init__(self, rank: int) -> None:
        self._live = rank == 0 and sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Show a text; an empty one removes the line."""
        if self._live:
            print(f"\r{text:78.78}\r{text:.78}", end="", file=sys.stderr, flush=True)


class Result(NamedTuple):
    """All that a run found out."""

    validated: Validated
    rows: list[Row]
    left_out: list[Task]


def size_text(nbytes: int) -> str:
    """Bytes, short where that is exact.

    Examples
    --------
    >>> size_text(8), size_text(4096), size_text(2**20), size_text(1032)
    ('8', '4K', '1M', '1032')
    """
    for unit, letter in ((2**30, "G"), (2**20, "M"), (2**10, "K")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit}{letter}"
    return str(nbytes)


def time_text(nanoseconds: float) -> str:
    """Microseconds with as many decimals as make sense.

    Examples
    --------
    >>> time_text(1234), time_text(1234567)
    ('1.2', '1235')
    """
    return f"{nanoseconds / 1e3:.{int(nanoseconds < 1e5)}f}"


def ratio_text(cell: Cell, native: Cell | None) -> str:
    """Ratio to native with its confidence interval."""
    if native is None:
        return "-"
    ratio = median(cell.maxima) / median(native.maxima)
    interval = ratio_interval(cell.maxima, native.maxima)
    return f"{ratio:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else f"{ratio:.2f}"


def _columns(cell: Cell | None, native: Cell | None) -> tuple[str, str, str]:
    if cell is None:
        return "-", "-", "-"
    return cell.candidate.name, time_text(median(cell.maxima)), ratio_text(cell, native)


def table(rows: Iterable[Row]) -> Iterator[str]:
    """Lines of the table."""
    lines = [_HEAD, *(_line(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    left = (0, 4, 6, 7, 9)
    before = ""
    for line in lines:
        shown = ("" if line[0] == before else line[0], *line[1:])
        before = line[0]
        yield "  ".join(
            f"{text:{'<' if column in left else '>'}{width}}"
            for column, (text, width) in enumerate(zip(shown, widths, strict=True))
        ).rstrip()


def _line(row: Row) -> tuple[str, ...]:
    native, size = row.native, size_text(row.nbytes) if row.nbytes else "-"
    time = time_text(median(native.maxima)) if native else "-"
    own, best = _columns(row.cell(row.own), native), _columns(row.best, native)
    samples = str(max((len(cell.maxima) for cell in row.cells), default=0))
    return row.collective, size, samples, time, *own, *best


def text(session: Session, result: Result) -> Iterator[str]:
    """All lines of the report."""
    if result.rows:
        yield from table(result.rows)
        yield f"\n{_LEGEND.format(fewest=FEWEST)}\n"
        yield from _native_ways(result.rows)
        yield ""
    yield from _validation(session, result.validated)
    yield from _left_out(session, result)
    for failure in session.failures:
        yield f"FAILED {failure}"


def _native_ways(rows: Sequence[Row]) -> Iterator[str]:
    """Which way the library goes, for each collective; sizes with the same way together."""
    yield "The ways of the MPI library, as far as it tells:"
    ways: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        ways.setdefault((row.collective, row.native_way), []).append(size_text(row.nbytes))
    for (collective, way), sizes in ways.items():
        at = f" {sizes[0]}" + f"-{sizes[-1]}" * (len(sizes) > 1) if sizes != ["0"] else ""
        yield f"  {collective}{at}: {way}"


def _validation(session: Session, validated: Validated) -> Iterator[str]:
    algorithms = {(c.collective, c.choice.name) for c in validated.seconds if c.choice}
    of_each = Counter(collective for collective, _ in algorithms)
    each = ", ".join(f"{name} {count}" for name, count in of_each.items())
    wrong = len({(failure.collective, failure.algorithm) for failure in session.failures})
    calls = f"{validated.tried} calls, {wrong} wrong"
    yield f"Validated: {len(algorithms)} algorithms in {calls} ({each})."
    if further := validated.planned - validated.tried:
        yield f"Not validated for lack of time: {further} further calls (a larger --budget helps)."


def _left_out(session: Session, result: Result) -> Iterator[str]:
    """What was not measured, and why."""
    rows = result.rows
    tasks: dict[str, list[str]] = {}
    for task in result.left_out:
        tasks.setdefault(task.collective, []).append(size_text(task.nbytes))
    if tasks:
        some = "; ".join(f"{name} {' '.join(sizes)}" for name, sizes in tasks.items())
        yield f"Not timed for lack of time (a larger --budget helps): {some}."
    if unseen := sum(len(row.unseen) for row in rows):
        yield f"Not timed for lack of time: {unseen} cells, the algorithms that looked slowest."
    if cut := sum(len(row.cut) for row in rows):
        yield f"Cut after two calls for being slow: {cut} cells."
    cells = [cell for row in rows for cell in row.cells]
    if cold := sum(cell.warm_ups < WARM_UPS for cell in cells):
        yield f"Fewer than {WARM_UPS} calls before the first sample: {cold} of {len(cells)} cells."
    if len(session.collectives) < len(session.options.collectives):
        yield "Not measured: collectives between two groups, since there is only one rank."
    if others := ", ".join(_others(session.options.collectives)):
        yield f"Not asked for: {others} (--collective, --full)."
    taken, all_ = session.budget - session.left(), session.meeting.elapsed
    yield f"Took {taken:.0f} s of {session.budget:.0f} s; {all_:.0f} s with the start."


def _others(asked: Sequence[str]) -> Iterator[str]:
    """What else there is: names, or how many where they are many."""
    others = [name for name in measurable() if name not in asked]
    kinds = [kind_of(COLLECTIVES[name]) for name in others]
    yield from (name for name, kind in zip(others, kinds, strict=True) if kind == "world")
    for kind, words in (("torus", "among neighbours"), ("halves", "between groups")):
        if count := kinds.count(kind):
            yield f"{count} {words}"


def head(session: Session) -> str:
    """What is said before measuring."""
    options = session.options
    what = f"{options.dtype}, {options.op}, root 0, seed {options.seed}"
    return f"{summary(session.info)}\n{what}; sizes: whole vector, or the blocks of all ranks\n"


def document(session: Session, result: Result) -> dict[str, Any]:
    """Everything, ready for JSON."""
    options = asdict(session.options)
    options["algorithms"] = [str(choice) for choice in session.options.algorithms]
    validated = result.validated
    return {
        "schema": 1,
        "environment": session.info,
        "options": options,
        "elapsed_s": session.meeting.elapsed,
        "failures": [failure._asdict() for failure in session.failures],
        "validation": {"calls": validated.tried, "planned": validated.planned,
                       "candidates": [f"{c[0]} {c.name}" for c in validated.seconds]},
        "rows": [_row(row) for row in result.rows],
        "left_out": [{"collective": t.collective, "bytes": t.nbytes} for t in result.left_out],
    }  # fmt: skip


def _row(row: Row) -> dict[str, Any]:
    best = row.best
    return {
        "collective": row.collective,
        "bytes": row.nbytes,
        "own_choice": row.own.name,
        "best": best.candidate.name if best else None,
        "native_way": row.native_way,
        "cells": [_cell(cell, row.native) for cell in row.cells],
        "cut": row.cut,
        "not_timed": row.unseen,
    }


def _cell(cell: Cell, native: Cell | None) -> dict[str, Any]:
    """One cell; times in nanoseconds."""
    return {
        "algorithm": cell.candidate.name,
        "warm_ups": cell.warm_ups,
        "median_ns": median(cell.maxima),
        "interval_ns": median_interval(cell.maxima),
        "ratio": median(cell.maxima) / median(native.maxima) if native else None,
        "ratio_interval": ratio_interval(cell.maxima, native.maxima) if native else None,
        "maxima_ns": cell.maxima,
        "start_spreads_ns": cell.spreads,
    }


def write(session: Session, result: Result) -> None:
    """Write the files that were asked for."""
    if session.options.json:
        with open(session.options.json, "w") as file:
            json.dump(document(session, result), file, indent=1)
            file.write("\n")
    if session.options.csv:
        with open(session.options.csv, "w", newline="") as file:
            _write_csv(file, result.rows)


def _write_csv(file: Any, rows: Iterable[Row]) -> None:
    names = ["algorithm", "repetitions", "median_us", "low_us", "high_us", "ratio", "ratio_low"]
    out = csv.writer(file)
    out.writerow(["collective", "bytes", *names, "ratio_high"])
    for row in rows:
        for cell in row.cells:
            facts = _cell(cell, row.native)
            low, high = facts["interval_ns"] or (None, None)
            ends = facts["ratio_interval"] or (None, None)
            times = [None if t is None else t / 1e3 for t in (facts["median_ns"], low, high)]
            start = [row.collective, row.nbytes, facts["algorithm"], len(cell.maxima)]
            out.writerow([*start, *times, facts["ratio"], *ends])
