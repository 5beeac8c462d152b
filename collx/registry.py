"""The mark that makes a function an algorithm, and the lists of what was marked.

An algorithm is a generator function in `collx/algorithms/<family>.py` under `@algorithm`. There is
no other list: everything that needs the algorithms asks `algorithms(family)`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache, cached_property
from typing import Any

from collx.choice import Choice, parse
from collx.collectives import COLLECTIVES, FAMILIES, Call
from collx.schedule import Copy, Schedule, Steps, renumber, rounds


class Need(Flag):
    """What an algorithm needs of a call, beyond what MPI promises."""

    NOTHING = 0
    COMMUTATIVE = auto()
    POWER_OF_TWO = auto()
    EVEN_SIZE = auto()
    TWO_RANKS = auto()
    EQUAL_BLOCKS = auto()
    KNOWN_SIZES = auto()
    CELL_PER_RANK = auto()
    WHOLE_GRAPH = auto()
    """Not a restriction: the schedule depends on the neighbours of all ranks."""
    NODE_MAP = auto()
    """Not a restriction: the schedule depends on which ranks share a node."""
    SEPARATE_BUFFERS = auto()
    """Not a restriction: with `MPI.IN_PLACE` the input is copied first."""


class Promise(Flag):
    """What an algorithm guarantees beyond the meaning of the collective.

    That a reduction keeps the order of ranks is not among them: every algorithm without
    `Need.COMMUTATIVE` does.
    """

    NOTHING = 0
    SAME_BITS = auto()
    """All ranks compute each result in the same bracketing: floating point results are equal."""


def _is_power_of_two(call: Call) -> bool:
    return call.size & (call.size - 1) == 0


def _equal_blocks(call: Call) -> bool:
    return call.sizes is not None and len(set(call.sizes)) <= 1


def _cell_per_rank(call: Call) -> bool:
    return max(len(call.input), len(call.output)) >= call.size


CHECKS: dict[Need, tuple[Callable[[Call], bool], str]] = {
    Need.COMMUTATIVE: (lambda call: call.commutative, "a commutative operator"),
    Need.POWER_OF_TWO: (_is_power_of_two, "a power of two as the number of ranks"),
    Need.EVEN_SIZE: (lambda call: call.size % 2 == 0, "an even number of ranks"),
    Need.TWO_RANKS: (lambda call: call.size == 2, "exactly two ranks"),
    Need.EQUAL_BLOCKS: (_equal_blocks, "blocks of equal size"),
    Need.KNOWN_SIZES: (
        lambda call: call.sizes is not None,
        "block sizes that every rank knows (not gatherv or scatterv)",
    ),
    Need.CELL_PER_RANK: (_cell_per_rank, "at least one element per rank"),
    Need.WHOLE_GRAPH: (lambda call: True, "the whole graph"),
    Need.NODE_MAP: (lambda call: True, "a node map"),
    Need.SEPARATE_BUFFERS: (lambda call: True, "separate buffers"),
}
"""For each need, the test of it and how it reads in an error message."""


class NeedsError(ValueError):
    """An algorithm was asked for a call that it cannot carry out."""


def flags(value: Flag) -> Iterator[Flag]:
    """Iterate over the single members of a flag value (Python 3.10 has no iteration)."""
    return (member for member in type(value) if member.value and member in value)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of one family of collectives.

    Calling it with a `Call` (and parameters) gives the schedule of that call's rank.

    Attributes
    ----------
    name, family : str
        Its name, and the family of collectives it belongs to.
    function : callable
        The generator function.
    needs, promises : Need, Promise
        Restrictions and guarantees.
    covers : sequence of str
        The rows of the census that it is: `"name"`, or `"name: parameter=value, ..."`.
    values : dict
        For each parameter the values worth trying.
    also : dict
        Further names of the field, each with the parameters it stands for.
    """

    name: str
    family: str
    function: Callable[..., Steps]
    needs: Need
    promises: Promise
    covers: Sequence[str]
    values: Mapping[str, tuple[Any, ...]]
    also: Mapping[str, Mapping[str, Any]]

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The parameters with their default values."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    @cached_property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return inspect.getdoc(self.function).split("\n\n")[0].replace("\n", " ")  # type: ignore[union-attr]

    def entry(self, title: str) -> str:
        """The text of the entry `title:` (Cost, Reference, ...) of the docstring, or ''."""
        doc = inspect.getdoc(self.function) or ""
        found = re.search(rf"^{title}:\s*(.*?)(?=^\w+:|\n\n|\Z)", doc, re.S | re.M)
        return " ".join(found[1].split()) if found else ""

    def unmet(self, call: Call) -> list[Need]:
        """The needs that this call does not meet."""
        return [need for need in CHECKS if need in self.needs and not CHECKS[need][0](call)]

    def choices(self) -> Iterator[Choice]:
        """Itself with default parameters, then with each other declared value of one parameter."""
        yield Choice(self.name)
        for key, values in self.values.items():
            for value in values:
                if value != self.defaults[key]:
                    yield Choice(self.name, ((key, parse_value(value)),))

    def __call__(self, call: Call, **parameters: Any) -> Schedule:
        """The schedule of this call's rank.

        Raises
        ------
        NeedsError
            If the call does not meet the needs.
        TypeError
            If there is no such parameter.
        """
        if unmet := self.unmet(call):
            missing = " and ".join(CHECKS[need][1] for need in unmet)
            raise NeedsError(f"{self.family} algorithm {self.name!r} needs {missing}")
        if unknown := parameters.keys() - self.defaults.keys():
            raise TypeError(
                f"{self.family} algorithm {self.name!r} has no parameter {min(unknown)!r};"
                f" it has: {', '.join(self.defaults) or 'none'}"
            )
        if call.ranks is None:
            return rounds(self._steps(call, parameters))
        return renumber(self._steps(call.inside(), parameters), call.ranks)

    def _steps(self, call: Call, parameters: dict[str, Any]) -> Steps:
        if call.size == 1 and not COLLECTIVES[self.family].sparse:
            yield from alone(call)
            return
        if Need.SEPARATE_BUFFERS in self.needs and call.in_place:
            saved = call.scratch(len(call.input))
            yield Copy(saved, call.input)
            call = call.with_input(saved)
        yield from self.function(call, **parameters)


def alone(call: Call) -> Steps:
    """What any collective is on one rank: a copy of the input to the output, at most."""
    if call.collective not in ("bcast", "exscan") and call.input != call.output:
        yield Copy(call.output, call.input)


_REGISTRY: dict[str, dict[str, Algorithm]] = {family: {} for family in FAMILIES}


def algorithm(
    *,
    needs: Need = Need.NOTHING,
    promises: Promise = Promise.NOTHING,
    covers: Sequence[str] = (),
    family: str = "",
    also: Mapping[str, Mapping[str, Any]] | None = None,
    **values: tuple[Any, ...],
) -> Callable[[Callable[..., Steps]], Algorithm]:
    """Mark a generator function as an algorithm.

    Parameters
    ----------
    needs, promises
        Restrictions and guarantees; the verifier checks them.
    covers
        Which rows of `census.txt`, the algorithms of other libraries and of papers, this is: their
        names, each followed by `: parameter=value, ...` where it is so with these parameters.
    family
        Family of collectives; by default the name of the module.
    also
        Further names, each with the parameters it stands for.
    **values
        For each parameter of the function the values worth trying.
    """

    def mark(function: Callable[..., Steps]) -> Algorithm:
        where = family or function.__module__.rpartition(".")[2]
        if where not in _REGISTRY:
            raise ValueError(f"no collective {where!r}: write @algorithm(family=...)")
        marked = Algorithm(
            function.__name__, where, function, needs, promises, covers, values, also or {}
        )
        _REGISTRY[where][marked.name] = marked
        return marked

    return mark


def unregister(marked: Algorithm) -> None:
    """Forget an algorithm (for tests that register one for a while)."""
    del _REGISTRY[marked.family][marked.name]


def algorithms(collective: str) -> dict[str, Algorithm]:
    """All algorithms of a collective, by name.

    Raises
    ------
    ValueError
        If there is no such collective.
    """
    _load()
    row = COLLECTIVES.get(collective.lower())
    if row is None:
        raise ValueError(f"no collective {collective!r}; there are: {', '.join(COLLECTIVES)}")
    return dict(_REGISTRY[row.family])


def everything() -> Iterator[Algorithm]:
    """Every algorithm of every family."""
    _load()
    for named in _REGISTRY.values():
        yield from list(named.values())


def find(collective: str, choice: str | Choice) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm that a choice names, and its parameters.

    Raises
    ------
    ValueError
        If there is no such algorithm or parameter; the message lists those that exist.
    """
    choice = parse(choice)
    known = algorithms(collective)
    parameters = choice.parameters
    for marked in known.values():
        if choice.name in (marked.name, *marked.also):
            merged = {**marked.also.get(choice.name, {}), **parameters}
            if unknown := merged.keys() - marked.defaults.keys():
                raise ValueError(
                    f"{collective} algorithm {choice.name!r} has no parameter {min(unknown)!r};"
                    f" it has: {', '.join(marked.defaults) or 'none'}"
                )
            return marked, merged
    names = sorted(name for marked in known.values() for name in (marked.name, *marked.also))
    raise ValueError(f"no {collective} algorithm {choice.name!r}; there are: {', '.join(names)}")


def run(call: Call, choice: str | Choice) -> Schedule:
    """The schedule of a (sub-)call under the algorithm that `choice` names."""
    marked, parameters = find(call.collective, choice)
    return marked(call, **parameters)


def parse_value(value: Any) -> Any:
    """A declared parameter value as it stands in a `Choice`."""
    if isinstance(value, str) and "(" in value:
        return parse(value)
    return value


@cache
def _load() -> None:
    """Import every module of `collx.algorithms`, and those that `COLLX_ALGORITHMS` names."""
    package = importlib.import_module("collx.algorithms")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"collx.algorithms.{module.name}")
    for name in filter(None, os.environ.get("COLLX_ALGORITHMS", "").split(",")):
        importlib.import_module(name)
