"""The shape of the project itself: who imports whom, sizes, docstrings, and its main promise."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest

import collx
from collx.__main__ import main
from collx.choice import Choice
from collx.collectives import FAMILIES, Call, Shape
from collx.cost import count, stated
from collx.registry import Algorithm, algorithm, algorithms, everything, find, unregister
from collx.schedule import Copy, Recv, Send, Steps
from collx.verify import verify

ROOT = Path(collx.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py"))
IDS = [str(path.relative_to(ROOT)) for path in FILES]
LONGER = {
    "algorithms/allreduce.py": 900,
    "algorithms/reduce_scatter.py": 600,
    "algorithms/allgather.py": 600,
    "algorithms/reduce.py": 600,
    "algorithms/alltoall.py": 500,
    "collectives.py": 600,
}
"""Files that may have more than 400 lines: families with many algorithms, one after the other."""
ALGORITHMS = {f"{a.family}.{a.name}": a for a in everything()}

LAYERS = (
    ("schedule", "choice", "neighborhood"),
    ("collectives", "interleave", "lowering", "dependencies"),
    ("registry",),
    ("patterns",),
    ("algorithms",),
    ("shapes", "verify", "cost", "choose"),
)
"""Who may import whom: only what stands in the same or an earlier line. (The registry imports the
algorithms when it is asked for them, by name.) None of these knows MPI or NumPy: what an algorithm
does is described, proved and counted without them."""
LEVEL = {name: number for number, layer in enumerate(LAYERS) for name in layer}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports, but for the annotations of a type checker."""
    tree = tree_of(path)
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def unit(module: str) -> str:
    """The part of collx that a module belongs to: `patterns` for `collx.patterns.trees`."""
    return module.split(".")[1] if "." in module else ""


def layered() -> list[Path]:
    return [path for path in FILES if owner(path) in LEVEL]


def owner(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", layered(), ids=lambda path: str(path.relative_to(ROOT)))
def test_layers_know_neither_mpi_nor_numpy(path: Path) -> None:
    allowed = {"collx", "__future__", *sys.stdlib_module_names}

    assert {module.split(".")[0] for module in imports(path)} <= allowed


@pytest.mark.parametrize("path", layered(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_layers(path: Path) -> None:
    used = {unit(module) for module in imports(path) if module.startswith("collx.")}

    assert used <= set(LEVEL), "this module is in a layer, and imports one above all layers"
    assert not [name for name in used if LEVEL[name] > LEVEL[owner(path)]]


def test_layers_exist() -> None:
    assert set(LEVEL) == {owner(path) for path in layered()}


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_files_are_short(path: Path) -> None:
    limit = LONGER.get(str(path.relative_to(ROOT)), 400)

    assert len(path.read_text().splitlines()) <= limit


def body_lines(function: ast.FunctionDef) -> int:
    """Lines of a function without its docstring and decorators."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    doc_lines = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - doc_lines


def functions_of(folder: str) -> dict[str, int]:
    return {
        f"{path.stem}.{node.name}": body_lines(node)
        for path in (ROOT / folder).glob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
    }


def test_algorithms_are_short() -> None:
    marked = {
        f"{a.family}.{a.name}": functions_of("algorithms")[f"{a.family}.{a.name}"]
        for a in everything()
    }

    assert median(marked.values()) <= 12
    assert {name: lines for name, lines in functions_of("algorithms").items() if lines > 40} == {}


def public_things(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_everything_public_is_documented(path: Path) -> None:
    tree = tree_of(path)
    documented = [(path.name, ast.get_docstring(tree))]
    documented += [(node.name, ast.get_docstring(node)) for node in public_things(tree)]
    for name, docstring in documented:
        assert docstring, f"{name} has no docstring"
        summary = docstring.split("\n\n")[0]
        assert re.match(r"[A-Z`]|\w-", summary), f"{name}: {summary}"
        assert summary.endswith((".", ":")), f"{name}: {summary}"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_is_documented(name: str) -> None:
    marked = ALGORITHMS[name]

    assert marked.summary[0].isupper()
    assert marked.summary.endswith(".")
    assert stated(marked)
    assert marked.entry("Reference") or marked.covers
    assert marked.values.keys() <= marked.defaults.keys()
    for parameters in marked.also.values():
        assert parameters.keys() <= marked.defaults.keys()


def test_modules_of_algorithms_are_the_families() -> None:
    modules = {path.stem for path in (ROOT / "algorithms").glob("*.py")} - {"__init__"}

    assert modules <= set(FAMILIES)
    for name, marked in ALGORITHMS.items():
        assert marked.function.__module__ == f"collx.algorithms.{marked.family}", name


def test_names_are_unique_in_a_family() -> None:
    for family in FAMILIES:
        names = [
            name for marked in algorithms(family).values() for name in (marked.name, *marked.also)
        ]
        assert len(names) == len(set(names)), family


@pytest.fixture
def toy() -> Iterator[Algorithm]:
    """An algorithm in a module that nobody has heard of."""
    module = ModuleType("allgather")

    def everyone_to_everyone(call: Call, step: int = 1) -> Steps:
        """Send the own block to everybody.

        Cost: rounds = 1, sent = n * (P - 1) / P
        Reference: None.
        """
        others = [(call.rank + k * step) % call.size for k in range(1, call.size)]
        yield Copy(call.output_blocks[call.rank], call.input)
        yield [Send(call.input, to=peer) for peer in others] + [
            Recv(call.output_blocks[peer], source=peer) for peer in others
        ]

    everyone_to_everyone.__module__ = module.__name__
    marked = algorithm(covers="A toy", step=(1, -1), also={"backwards": {"step": -1}})(
        everyone_to_everyone
    )
    yield marked
    unregister(marked)


def test_new_algorithm_is_everywhere(toy: Algorithm, capsys: pytest.CaptureFixture[str]) -> None:
    """One marked function is all it takes: nothing else knows of it, and everything finds it."""
    assert toy in list(everything())
    assert find("allgatherv", "everyone_to_everyone(step=-1)") == (toy, {"step": -1})
    assert find("allgather", "backwards") == (toy, {"step": -1})
    assert Choice("everyone_to_everyone", (("step", -1),)) in list(toy.choices())

    assert main(["list", "--collective", "allgather"]) == 0
    assert "allgather.everyone_to_everyone(step=1)" in capsys.readouterr().out
    arguments = ["--algorithm", "allgather.everyone_to_everyone", "--sizes", "1-6"]
    assert main(["verify", *arguments, "--jobs", "1"]) == 0
    assert main(["cost", *arguments]) == 0
    assert "optimal: both" in capsys.readouterr().out

    verify(toy, Shape("allgather", 3, (2, 0, 1)))
    assert count(toy, Shape("allgather", 3, (2, 2, 2))).sent == 4


def test_forgotten_algorithm_is_gone(toy: Algorithm) -> None:
    unregister(toy)
    try:
        with pytest.raises(ValueError, match="no allgather algorithm 'everyone_to_everyone'"):
            find("allgather", "everyone_to_everyone")
    finally:
        algorithm(family=toy.family)(toy.function)
