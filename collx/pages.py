"""The pages of the documentation that follow from the code: `python -m collx docs`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from collx.census import Row, covering, rows
from collx.collectives import COLLECTIVES, FAMILIES, Shape, call_of
from collx.cost import Bound, count, equal_blocks, evaluate, lower_bound, stated
from collx.registry import CHECKS, Algorithm, Need, Promise, algorithms

GENERATED = "<!-- Written by `python -m collx docs`: change the code, not this page. -->"
SIZES = (7, 8, 64, 1000)
CELLS_PER_RANK = 120
RANKS_PER_NODE = 8
COUNTED = 64
"""Most ranks on which the page of costs counts; on more it takes what is stated."""


def _page(title: str, text: str, body: Iterable[str]) -> str:
    intro = textwrap.fill(" ".join(text.split()), 100, break_long_words=False)
    return "\n".join([GENERATED, "", f"# {title}", "", intro, *body, ""])


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    r"""Give the lines of a table, with an empty one before it.

    Examples
    --------
    >>> print(*_table(["a", "b"], [["1", "x|y"]]), sep="\n")
    <BLANKLINE>
    | a | b |
    |---|---|
    | 1 | x\|y |
    """
    yield from ("", f"| {' | '.join(head)} |", "|---" * len(head) + "|")
    for line in lines:
        yield f"| {' | '.join(entry.replace('|', chr(92) + '|') for entry in line)} |"


def _families(combining: bool = False) -> Iterator[tuple[str, list[Algorithm]]]:
    for family in FAMILIES:
        known = list(algorithms(family).values())
        if known and (COLLECTIVES[family].combines or not combining):
            yield family, known


def _code(values: Iterable[object]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _yes(condition: bool) -> str:
    return "yes" if condition else ""


# -- algorithms.md ---------------------------------------------------------------------------------


def algorithms_page() -> str:
    """All algorithms, a table for each family."""
    text = """An algorithm is asked for as `name` or `name(parameter=value, ...)`. The first value
    of a parameter is its default. Further names stand for the algorithm with the parameters in
    parentheses. An algorithm that does not need a commutative operator keeps the order of ranks."""
    body: list[str] = []
    for family, known in _families():
        carried = [row.name for row in COLLECTIVES.values() if row.family == family]
        body += ["", f"## {family}", "", f"For {_code(carried)}."]
        head = ("Algorithm", "How it works", "Parameters", "Needs", "Promises", "Reference")
        body += _table(head, (_algorithm_line(algorithm) for algorithm in known))
    return _page("Algorithms", text, body)


def _algorithm_line(algorithm: Algorithm) -> Sequence[str]:
    return (
        "<br>".join([f"`{algorithm.name}`", *_further_names(algorithm)]),
        algorithm.summary,
        "<br>".join(_parameters(algorithm)),
        "; ".join(CHECKS[need][1] for need in CHECKS if need in algorithm.needs),
        "; ".join(_promises(algorithm)),
        algorithm.entry("Reference"),
    )


def _further_names(algorithm: Algorithm) -> Iterator[str]:
    for name, parameters in algorithm.also.items():
        given = ", ".join(f"{key}={value}" for key, value in parameters.items())
        yield f"`{name}`" + (f" ({given})" if given else "")


def _parameters(algorithm: Algorithm) -> Iterator[str]:
    for key, default in algorithm.defaults.items():
        values = dict.fromkeys([default, *algorithm.values.get(key, ())])
        yield f"{key}: {_code(values)}"


def _promises(algorithm: Algorithm) -> Iterator[str]:
    if Promise.SAME_BITS in algorithm.promises:
        yield "same bits on all ranks"
    if keeps_order(algorithm):
        yield "order of ranks"


def keeps_order(algorithm: Algorithm) -> bool:
    """Whether an algorithm of a reduction combines the operands in the order of ranks."""
    combines = COLLECTIVES[algorithm.family].combines
    return combines and Need.COMMUTATIVE not in algorithm.needs


# -- census.md -------------------------------------------------------------------------------------

KINDS = {
    "library": ("Algorithms of other libraries", "Libraries"),
    "frontier": ("Algorithms of papers", "Source"),
    "hardware": ("What is no matter of messages", "Libraries"),
}
"""For each kind of row the title of its table, and that of the column with the source."""


def census_page() -> str:
    """Each algorithm that exists elsewhere, and ours that is it or why there is none."""
    text = """What other libraries and papers have, and the algorithm here that is the same. Numbers
    are those by which a library selects an algorithm (Open MPI: those of `tuned`, unless another
    component is named). Where several algorithms here are meant, each is one of the forms that
    the other library has under one name."""
    body: list[str] = []
    for kind, (title, column) in KINDS.items():
        found = [row for row in rows() if row.kind == kind]
        missing = sum(row.reason is not None for row in found)
        body += ["", f"## {title}", "", f"{len(found)}, of which {missing} cannot be had here."]
        head = ("Collective", "Algorithm", column, "In collx")
        body += _table(head, (_row_line(row) for row in found))
    return _page("Census", text, body)


def _row_line(row: Row) -> Sequence[str]:
    return ", ".join(row.collectives), row.name, row.source, "<br>".join(answers(row))


def answers(row: Row) -> list[str]:
    """What covers a row, as a choice of each family, or why nothing does.

    Examples
    --------
    >>> answers(next(row for row in rows() if row.name == "segmented ring"))
    ['`allreduce.ring(segment=64K)`']
    """
    if row.reason:
        return [f"none: it {row.reason.value}. {row.why}"]
    covers = (cover for name in row.collectives for cover in covering(row, name))
    return list(dict.fromkeys(f"`{cover.algorithm.family}.{cover.choice}`" for cover in covers))


# -- reductions.md ---------------------------------------------------------------------------------


def reductions_page() -> str:
    """What each algorithm of a reduction promises about its results."""
    text = """Floating point addition is not associative, so that results may differ in the last
    bits with the order in which an algorithm combines. **From run to run** the results of every
    algorithm are the same: on the same ranks, with the same parameters, operands are combined in
    the same order, whatever arrives first. The tables tell the rest.

    *Same bits on all ranks* (allreduce only: elsewhere a result has one owner, or differs by
    meaning): every rank gets the very same floating point numbers. *Keeps the order of ranks*:
    operands are never exchanged, so that the operator need not commute; the others are refused
    for an operator that does not. *Depends on nodes*: a different placement of ranks on nodes may
    change the last bits. A parameter that names another algorithm brings in what holds for
    that one."""
    body: list[str] = []
    for family, known in _families(combining=True):
        body += ["", f"## {family}"]
        body += _table(*_reduction_table(family, known))
    paragraphs = text.split("\n\n")
    body = ["", textwrap.fill(" ".join(paragraphs[1].split()), 100), *body]
    return _page("Results of reductions", paragraphs[0], body)


def _reduction_table(
    family: str, known: Sequence[Algorithm]
) -> tuple[Sequence[str], list[Sequence[str]]]:
    columns: dict[str, Callable[[Algorithm], bool]] = {
        "Same bits on all ranks": lambda algorithm: Promise.SAME_BITS in algorithm.promises,
        "Keeps the order of ranks": keeps_order,
        "Depends on nodes": lambda algorithm: Need.NODE_MAP in algorithm.needs,
    }
    if not family.endswith("allreduce"):
        del columns["Same bits on all ranks"]
    lines = [(f"`{a.name}`", *(_yes(holds(a)) for holds in columns.values())) for a in known]
    return ("Algorithm", *columns), list(lines)


# -- costs.md --------------------------------------------------------------------------------------


def costs_page(sizes: Sequence[int] = SIZES, families: Sequence[str] = FAMILIES) -> str:
    """Rounds and bytes of each algorithm beside the fewest that there can be."""
    text = f"""The longest chain of rounds that wait for one another, and the bytes that the busiest
    rank sends or receives (whichever is more), with default parameters and {CELLS_PER_RANK}
    elements per rank, of 8 bytes in reductions and of 1 byte elsewhere. `2 x 3` means 2 rounds with
    up to 3 messages at a time each way. The algorithms that look at nodes see {RANKS_PER_NODE}
    ranks on each. The numbers are counted on the schedules of all ranks, but on more than {COUNTED}
    ranks, where that takes too long: there they follow from the formulas in the docstrings, exactly
    (=) or at most (≤), and the bytes are those sent. **Bold** is what no algorithm can do with
    less, in rounds with as many messages at a time (the first line: with one); ★ marks an algorithm
    that is so in both wherever it was counted."""
    body: list[str] = []
    known = [(family, a) for family, found in _families() for a in found if family in families]
    tasks = [(family, a.name, size) for family, a in known for size in sizes]
    with ProcessPoolExecutor() as pool:
        done = dict(zip(tasks, pool.map(_cost_entry, tasks), strict=True))
    for family in dict.fromkeys(family for family, _ in known):
        bounds = [_bound(family, size) for size in sizes]
        lines = [["*fewest*", *(f"{b.rounds}, {b.volume * _cell(family)}" for b in bounds)]]
        for name in (a.name for of, a in known if of == family):
            entries = [done[family, name, size] for size in sizes]
            tried = [entry for entry in entries if entry.startswith(("*", *"0123456789"))]
            best = bool(tried) and all(entry.count("**") == 4 for entry in tried)
            lines.append([f"`{name}`{' ★' if best else ''}", *entries])
        body += ["", f"## {family}"]
        body += _table(["Rounds, bytes", *(f"P = {size}" for size in sizes)], lines)
    return _page("Costs", text, body)


def _cell(family: str) -> int:
    return 8 if COLLECTIVES[family].combines else 1


def _bound(family: str, size: int, ports: int = 1) -> Bound:
    return lower_bound(family, size, CELLS_PER_RANK * size, ports)


def _cost_entry(task: tuple[str, str, int]) -> str:
    """Give the rounds and bytes of an algorithm, in bold where none can do with less."""
    family, name, size = task
    algorithm, cell = algorithms(family)[name], _cell(family)
    shape = _on_nodes(algorithm, size)
    if unmet := algorithm.unmet(call_of(shape, 0)):
        return "needs " + " and ".join(CHECKS[need][1] for need in unmet)
    if size > COUNTED:
        return _stated_entry(algorithm, size, cell)
    counted = count(algorithm, shape)
    bound = _bound(family, size, counted.ports)
    rounds = _bold(counted.rounds, counted.rounds <= bound.rounds)
    together = f" x {counted.ports}" if counted.ports > 1 else ""
    return f"{rounds}{together}, {_bold(counted.volume * cell, counted.volume <= bound.volume)}"


def _on_nodes(algorithm: Algorithm, size: int) -> Shape:
    shape = equal_blocks(algorithm.family, size, CELLS_PER_RANK * size)
    if Need.NODE_MAP not in algorithm.needs:
        return shape
    return replace(shape, nodes=tuple(rank // RANKS_PER_NODE for rank in range(size)))


def _bold(value: int, met: bool) -> str:
    return f"**{value}**" if met else str(value)


def _stated_entry(algorithm: Algorithm, size: int, cell: int) -> str:
    entries = {"sent": "= 0"}  # barriers do not state it
    for name, relation, expression in stated(algorithm):
        value = evaluate(expression, size, CELLS_PER_RANK * size, algorithm.defaults, cell)
        sign = "≤" if relation == "<=" else "="
        entries[name] = f"{sign} {value * (cell if name == 'sent' else 1):.0f}"
    return f"{entries['rounds']}, {entries['sent']}"


# -- all of them -----------------------------------------------------------------------------------

PAGES: dict[str, Callable[[], str]] = {
    "algorithms": algorithms_page,
    "census": census_page,
    "costs": costs_page,
    "reductions": reductions_page,
}
"""The pages by name, each with what writes it."""


def write(directory: Path, names: Iterable[str] = PAGES) -> None:
    """Write pages to a directory, `<name>.md` each."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / f"{name}.md").write_text(PAGES[name](), encoding="utf-8")
