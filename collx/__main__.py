"""The command line: `python -m collx list | verify | cost | docs`."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from collx.census import rows
from collx.collectives import COLLECTIVES, Shape
from collx.cost import (
    Count,
    TooLong,
    count,
    equal_blocks,
    evaluate,
    lower_bound,
    stated,
)
from collx.interleave import Fault
from collx.pages import PAGES, answers, write
from collx.registry import Algorithm, Need, NeedsError, algorithms, everything, flags
from collx.shapes import CELL_BYTES, cases
from collx.verify import describe, verify

SIZES = (*range(1, 18), 31, 32, 33, 63, 64)
"""Numbers of ranks that `verify` tries: all small ones, then around powers of two."""

CELLS_PER_RANK = 120
"""Cells of a block in `cost`: divisible by most small numbers."""

MOST_ACTIONS = 200_000
"""Actions of all ranks together that `cost` counts; beyond that it takes what is stated."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 if all is well, 1 if an algorithm is wrong (2: wrong usage)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        chosen = list(_chosen(options.collective, getattr(options, "algorithm", None)))
    except ValueError as error:
        parser.error(str(error))
    try:
        return int(options.command(chosen, options))
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="collx", description="MPI collectives, readable.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = _command(commands, "list", list_algorithms, "show all algorithms")
    names = ["none", *(need.name.lower() for need in flags(~Need.NOTHING) if need.name)]
    listing.add_argument("--needs", choices=names, help="only those that need this")
    listing.add_argument(
        "--census", action="store_true", help="show algorithms elsewhere, and what is the same here"
    )
    checking = _command(commands, "verify", verify_algorithms, "prove all algorithms right")
    checking.add_argument("--algorithm", metavar="FAMILY.NAME", help="only this one")
    checking.add_argument("--sizes", type=_sizes, help="numbers of ranks, as in 1,2,5-9")
    checking.add_argument("--max-size", type=int, metavar="N", help="all numbers of ranks up to N")
    checking.add_argument("--thorough", action="store_true", help="every combination of facts")
    checking.add_argument("--jobs", type=int, default=0, metavar="N", help="processes to use")
    costs = _command(commands, "cost", show_costs, "count rounds and cells")
    costs.add_argument("--algorithm", metavar="FAMILY.NAME", help="only this one")
    costs.add_argument("--sizes", type=_sizes, default=(7, 8, 64), help="numbers of ranks")
    documents = commands.add_parser("docs", help="write the pages that follow from the code")
    documents.add_argument("directory", type=Path, nargs="?", default=Path("docs"), metavar="DIR")
    documents.add_argument(
        "--pages",
        nargs="+",
        choices=PAGES,
        default=list(PAGES),
        help="only these (costs takes a minute)",
    )
    documents.set_defaults(command=write_pages, collective=None)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    function: Callable[[Iterable[Algorithm], argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=function.__doc__)
    parser.add_argument("--collective", metavar="C", help="only algorithms of this collective")
    parser.set_defaults(command=function)
    return parser


def _sizes(text: str) -> tuple[int, ...]:
    """Numbers and ranges.

    Examples
    --------
    >>> _sizes("1,2,5-9")
    (1, 2, 5, 6, 7, 8, 9)
    """
    ends = [list(map(int, part.split("-"))) for part in text.split(",")]
    sizes = tuple(size for end in ends for size in range(end[0], end[-1] + 1))
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"no number of ranks in {text!r}")
    return sizes


def _chosen(collective: str | None, wanted: str | None) -> Iterator[Algorithm]:
    """The algorithms that the options name."""
    family, _, name = (wanted or "").partition(".")
    if collective and family and COLLECTIVES[collective].family != family:
        raise ValueError(f"{wanted} is no algorithm of {collective}")
    among = collective or family
    found = list(algorithms(among).values()) if among else list(everything())
    if name and name not in {algorithm.name for algorithm in found}:
        known = ", ".join(algorithm.name for algorithm in found)
        raise ValueError(f"no {among} algorithm {name!r}; there are: {known}")
    return (algorithm for algorithm in found if not name or algorithm.name == name)


def _id(algorithm: Algorithm) -> str:
    return f"{algorithm.family}.{algorithm.name}"


def list_algorithms(chosen: Iterable[Algorithm], options: argparse.Namespace) -> int:
    """Show each algorithm with its parameters, needs and promises, and what it covers."""
    if options.census:
        return _list_census(options.collective)
    wanted = Need.NOTHING if options.needs in (None, "none") else Need[options.needs.upper()]
    shown = 0
    for algorithm in chosen:
        if wanted in algorithm.needs and (options.needs != "none" or not algorithm.needs):
            print("\n".join(_described(algorithm)), end="\n\n")
            shown += 1
    print(f"{shown} algorithms")
    return 0


def _list_census(collective: str | None) -> int:
    """Show each row of the census with the algorithms that cover it, or why there is none."""
    shown = [row for row in rows() if collective in (None, *row.collectives)]
    for row in shown:
        print(f"{', '.join(row.collectives)}: {row.name}")
        print(textwrap.fill(row.source, 96, initial_indent="    ", subsequent_indent="    "))
        for answer in answers(row):
            print(
                textwrap.fill(f"-> {answer}", 96, initial_indent="    ", subsequent_indent=" " * 7)
            )
        print()
    print(
        f"{len(shown)} rows, {sum(row.reason is not None for row in shown)} of them not to be had"
    )
    return 0


def write_pages(chosen: Iterable[Algorithm], options: argparse.Namespace) -> int:
    """Write the pages that follow from the code."""
    write(options.directory, options.pages)
    return 0


def _described(algorithm: Algorithm) -> Iterator[str]:
    parameters = ", ".join(f"{key}={value}" for key, value in algorithm.defaults.items())
    yield f"{_id(algorithm)}({parameters})"
    entries = {
        "": algorithm.summary,
        "values": "; ".join(f"{key}: {_words(v)}" for key, v in algorithm.values.items()),
        "also": ", ".join(
            f"{name} ({_words(f'{k}={v}' for k, v in setting.items())})"
            for name, setting in algorithm.also.items()
        ),
        "needs": _words(flag.name for flag in flags(algorithm.needs)).lower(),
        "promises": _words(flag.name for flag in flags(algorithm.promises)).lower(),
        "cost": algorithm.entry("Cost"),
        "covers": "; ".join(algorithm.covers),
    }
    width = 96
    for title, text in entries.items():
        if text:
            label = f"    {title + ':':9} " if title else "    "
            yield textwrap.fill(text, width, initial_indent=label, subsequent_indent=" " * 14)


def _words(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


class Task(NamedTuple):
    """A part of the verification: one algorithm on one number of ranks."""

    family: str
    name: str
    size: int
    complete: bool


class Outcome(NamedTuple):
    """What came of a task: shapes tried, seconds taken, and the first fault or `""`."""

    task: Task
    shapes: int
    seconds: float
    fault: str


def check(task: Task) -> Outcome:
    """Verify one algorithm on one number of ranks: all parameters, all shapes to try."""
    algorithm = algorithms(task.family)[task.name]
    start, tried, fault = time.perf_counter(), 0, ""
    thorough = task.size <= 9 or task.complete
    try:
        for shape, parameters in cases(
            algorithm, task.size, thorough=thorough, complete=task.complete
        ):
            tried += verified(algorithm, shape, parameters)
    except Fault as error:
        fault = str(error)
    return Outcome(task, tried, time.perf_counter() - start, fault)


def verified(algorithm: Algorithm, shape: Shape, parameters: Mapping[str, Any]) -> bool:
    """Verify; False if what a parameter names needs more than the algorithm itself does."""
    try:
        verify(algorithm, shape, **parameters)
    except NeedsError as error:
        if not parameters:
            raise Fault(f"{_id(algorithm)}, {describe(shape)}: {error}") from error
        return False
    return True


def verify_algorithms(chosen: Iterable[Algorithm], options: argparse.Namespace) -> int:
    """Prove algorithms right: run all ranks on symbolic contents, for many shapes of call."""
    sizes = options.sizes or SIZES
    if options.max_size:
        sizes = options.sizes or range(1, options.max_size + 1)
    tasks = [
        Task(algorithm.family, algorithm.name, size, options.thorough)
        for algorithm in chosen
        for size in sorted(set(sizes), reverse=True)
    ]
    tasks.sort(key=lambda task: -task.size)
    start = time.perf_counter()
    done: dict[tuple[str, str], list[Outcome]] = {}
    expected = Counter(task[:2] for task in tasks)
    for number, outcome in enumerate(_checked(tasks, options.jobs or _cores())):
        outcomes = done.setdefault(outcome.task[:2], [])
        outcomes.append(outcome)
        if len(outcomes) == expected[outcome.task[:2]]:
            _say(_line(outcomes))
        _show_live(f"{number + 1} of {len(tasks)} parts, {time.perf_counter() - start:.0f} s")
    return _total(done, time.perf_counter() - start)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _checked(tasks: Sequence[Task], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(check, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(check, task) for task in tasks]):
            yield future.result()


def _line(outcomes: Sequence[Outcome]) -> str:
    """One line about an algorithm, and its fault on the smallest number of ranks."""
    task = outcomes[0].task
    tried = sum(outcome.shapes for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    line = f"{task.family + '.' + task.name:44} {tried:7} shapes {seconds:7.1f} s"
    faults = sorted((outcome.task.size, outcome.fault) for outcome in outcomes if outcome.fault)
    if not faults:
        return line
    also = f"\n    also wrong on P = {_words(size for size, _ in faults[1:])}" * (len(faults) > 1)
    return f"{line}  WRONG\n    {faults[0][1]}{also}"


def _say(line: str) -> None:
    _show_live("")
    print(line, flush=True)


def _show_live(text: str) -> None:
    """Overwrite the last line of a terminal; elsewhere show nothing."""
    if sys.stderr.isatty():
        print(f"\r{text:60}\r{text}", end="", file=sys.stderr, flush=True)


def _total(done: dict[tuple[str, str], list[Outcome]], seconds: float) -> int:
    outcomes = [outcome for of_one in done.values() for outcome in of_one]
    wrong = {outcome.task[:2] for outcome in outcomes if outcome.fault}
    tried = sum(outcome.shapes for outcome in outcomes)
    _say(f"{len(done)} algorithms, {tried} shapes, {len(wrong)} wrong, {seconds:.1f} s")
    return 1 if wrong else 0


def show_costs(chosen: Iterable[Algorithm], options: argparse.Namespace) -> int:
    """Count rounds and cells of the busiest rank, beside what no algorithm can do without."""
    chosen = list(chosen)
    for family in dict.fromkeys(algorithm.family for algorithm in chosen):
        for size in options.sizes:
            n = CELLS_PER_RANK * size
            bound = lower_bound(family, size, n)
            print(
                f"{family}, P = {size}, n = {n}:"
                f" at least {bound.rounds} rounds (one message at a time), {bound.volume} cells"
            )
            print(f"  {'':36}{'rounds':>8}{'ports':>7}{'sent':>10}{'received':>10}{'combined':>10}")
            for algorithm in chosen:
                if algorithm.family == family:
                    print(f"  {algorithm.name:36}{_cost_line(algorithm, size, n)}")
            print()
    return 0


def _cost_line(algorithm: Algorithm, size: int, n: int) -> str:
    try:
        counted = count(algorithm, equal_blocks(algorithm.family, size, n), limit=MOST_ACTIONS)
    except NeedsError as error:
        return f"  {str(error).partition(repr(algorithm.name) + ' ')[2]}"
    except TooLong:
        return f"  too long to count; {_stated_line(algorithm, size, n)}"
    return _numbers(counted, lower_bound(algorithm.family, size, n, counted.ports).met_by(counted))


def _numbers(counted: Count, met: str) -> str:
    optimal = f"  optimal: {met}" if met else ""
    return (
        f"{counted.rounds:8}{counted.ports:7}{counted.sent:10}{counted.received:10}"
        f"{counted.combined:10}{optimal}"
    )


def _stated_line(algorithm: Algorithm, size: int, n: int) -> str:
    cell_bytes = CELL_BYTES if COLLECTIVES[algorithm.family].combines else 1
    values = [
        (name, relation, evaluate(expression, size, n, algorithm.defaults, cell_bytes))
        for name, relation, expression in stated(algorithm)
    ]
    return f"stated: {_words(f'{name} {relation} {value:g}' for name, relation, value in values)}"


if __name__ == "__main__":
    sys.exit(main())
