"""The one grammar for naming an algorithm with its parameters.

`ring`, `knomial(radix=4)`, `two_level(intra=knomial(radix=4), inter=ring(segment=64K))`: the same
in the argument `algorithm=`, in environment variables, JSON files and on the command line.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = "int | str | tuple[int, ...] | Choice"


@dataclass(frozen=True)
class Choice:
    """An algorithm's name with the parameters that differ from their defaults.

    Examples
    --------
    >>> parse("two_level(intra=knomial(radix=4), inter=ring(segment=64K))").parameters["inter"]
    Choice(name='ring', items=(('segment', 65536),))
    >>> str(parse("bcube(factors=(2, 3))"))
    'bcube(factors=(2, 3))'
    """

    name: str
    items: tuple[tuple[str, Value], ...] = field(default=())

    @property
    def parameters(self) -> dict[str, Value]:
        """The parameters as a dictionary."""
        return dict(self.items)

    def __str__(self) -> str:
        inside = ", ".join(f"{key}={value}" for key, value in self.items)
        return f"{self.name}({inside})" if inside else self.name


def parse(text: str | Choice) -> Choice:
    """Parse the name of an algorithm with its parameters.

    Sizes may end in K, M or G (powers of 1024).

    Raises
    ------
    ValueError
        If the text does not follow the grammar.

    Examples
    --------
    >>> parse("ring(segment=8K)")
    Choice(name='ring', items=(('segment', 8192),))
    """
    if isinstance(text, Choice):
        return text
    try:
        tree = ast.parse(_plain_numbers(text.strip()), mode="eval").body
        choice = _value(tree)
    except (SyntaxError, ValueError):
        choice = None
    if isinstance(choice, str):
        return Choice(choice)
    if isinstance(choice, Choice):
        return choice
    raise ValueError(f"cannot read {text!r}: write it as name or name(parameter=value, ...)")


def _plain_numbers(text: str) -> str:
    """Write 64K as 65536."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return re.sub(r"\b(\d+)([KMG])\b", lambda m: str(int(m[1]) * units[m[2]]), text)


def _value(node: ast.expr) -> Value:
    match node:
        case ast.Constant(value=int(number)):  # True and False as well
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
        case ast.Name(id=name):
            return name
        case ast.Tuple(elts=elements):
            return tuple(_integer(element) for element in elements)
        case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords):
            items = tuple((str(keyword.arg), _value(keyword.value)) for keyword in keywords)
            if len(dict(items)) == len(items):
                return Choice(name, items)
    raise ValueError(ast.dump(node))


def _integer(node: ast.expr) -> int:
    value = _value(node)
    if isinstance(value, int):
        return value
    raise ValueError("not an integer")
