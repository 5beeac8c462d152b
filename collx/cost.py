"""Count what a call costs: rounds, messages and cells; compare with what is stated and possible.

The numbers come from the schedules of all ranks, so they are those of what runs. The docstring of
an algorithm states them as formulas (`Cost:`); a test holds the two against each other.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from collx.collectives import COLLECTIVES, Shape, call_of
from collx.interleave import Interleaving
from collx.registry import Algorithm
from collx.schedule import (
    Combine,
    Copy,
    Recv,
    RecvInts,
    Round,
    Send,
    SendInts,
    Transfer,
    is_message,
)


class Count(NamedTuple):
    """The cost of one call; every number but the last is that of the busiest rank.

    Attributes
    ----------
    rounds : int
        Length of the longest chain of rounds that wait for one another.
    ports : int
        Most messages sent, or received, in one round.
    messages : int
        Messages sent.
    sent, received, combined, copied : int
        Cells. Integers that an algorithm computed count as messages without cells.
    crossing : int
        Bytes that all ranks together send from one node to another.
    """

    rounds: int = 0
    ports: int = 0
    messages: int = 0
    sent: int = 0
    received: int = 0
    combined: int = 0
    copied: int = 0
    crossing: int = 0

    @property
    def volume(self) -> int:
        """Cells sent or received, whichever is more."""
        return max(self.sent, self.received)

    def in_bytes(self, cell_bytes: int) -> Count:
        """The same with bytes in place of cells."""
        return self._replace(**{name: getattr(self, name) * cell_bytes for name in _IN_CELLS})


_IN_CELLS = ("sent", "received", "combined", "copied")


class TooLong(Exception):
    """A call has more actions than the caller wants to count."""


class _Clock:
    """A watcher that counts, with a clock for each rank.

    A message leaves when the round of its sender starts and arrives one tick later. A round with
    messages takes a tick, and lasts until all that it receives has arrived.
    """

    def __init__(self, shape: Shape, limit: int) -> None:
        self.shape, self.left = shape, limit
        self.started = [0] * shape.size
        self.now = [0] * shape.size
        self.totals = {name: [0] * shape.size for name in ("messages", *_IN_CELLS)}
        self.ports = self.crossing = 0

    def begin(self, rank: int, index: int, round_: Round) -> None:
        """Count what the rank sends, and what it does by itself."""
        self._spend(len(round_.actions))
        sends = receives = 0
        for action in round_.actions:
            match action:
                case Copy(into, source) if into != source:
                    self.totals["copied"][rank] += len(into)
                case Combine(into):
                    self.totals["combined"][rank] += len(into)
                case Send() | SendInts() if is_message(action):
                    sends += 1
                    self.totals["sent"][rank] += cells_of(action)
                case Recv() | RecvInts() if is_message(action):
                    receives += 1
        self.totals["messages"][rank] += sends
        self.ports = max(self.ports, sends, receives)
        self.started[rank] = self.now[rank]
        self.now[rank] += bool(sends or receives)

    def _spend(self, actions: int) -> None:
        self.left -= actions
        if self.left < 0:
            raise TooLong("more actions than the limit")

    def deliver(self, source: int, send: Transfer, to: int, recv: Transfer) -> None:
        """Count what the rank receives, and let it wait until then."""
        cells = cells_of(send)
        self.now[to] = max(self.now[to], self.started[source] + 1)
        self.totals["received"][to] += cells
        if isinstance(recv, Recv) and recv.combining:
            self.totals["combined"][to] += cells
        if self.shape.nodes and self.shape.nodes[source] != self.shape.nodes[to]:
            self.crossing += cells * self.shape.cell_bytes

    def end(self, rank: int, index: int, round_: Round) -> None:
        """Nothing happens: what has to wait has waited."""

    def count(self) -> Count:
        """The count so far."""
        busiest = {name: max(per_rank) for name, per_rank in self.totals.items()}
        return Count(max(self.now), self.ports, **busiest, crossing=self.crossing)


def cells_of(send: Transfer) -> int:
    """Cells in a message."""
    return len(send.region) if isinstance(send, Send) else 0


def count(algorithm: Algorithm, shape: Shape, *, limit: int = 10**8, **parameters: Any) -> Count:
    """Count the cost of one call of a group.

    Parameters
    ----------
    algorithm, shape, **parameters
        What is called.
    limit
        Most actions of all ranks together.

    Raises
    ------
    TooLong
        If there are more.
    NeedsError
        If the shape does not meet the needs of the algorithm.

    Examples
    --------
    >>> from collx.registry import algorithms
    >>> count(algorithms("allgather")["ring"], equal_blocks("allgather", 4, 40)).sent
    30
    """
    clock = _Clock(shape, limit)
    calls = [call_of(shape, rank) for rank in range(shape.size)]
    Interleaving([algorithm(call, **parameters) for call in calls], clock).run()
    return clock.count()


def equal_blocks(family: str, P: int, n: int) -> Shape:
    """The shape on which costs are stated: `n` cells in nearly equal blocks, root 0.

    Between two groups, these are the halves of the ranks; among neighbours, everybody is one.
    """
    row = COLLECTIVES[family]
    low = P // 2 if row.inter else 0
    groups = [low, P - low] if family == "inter_reduce_scatter" else [P]
    sizes = tuple(n // of + (rank < n % of) for of in groups for rank in range(of))
    if family in ("barrier", "inter_barrier"):
        sizes = (0,) * P
    return Shape(family, P, sizes, cell_bytes=8 if row.combines else 1, low=low)


class Statement(NamedTuple):
    """One entry of a `Cost:` line, for example `rounds = P - 1`."""

    name: str
    relation: str
    expression: str

    def holds(self, counted: Count, value: float) -> bool:
        """Whether the count is what was stated."""
        found = float(getattr(counted, self.name))
        close = math.isclose(found, value, rel_tol=1e-9, abs_tol=1e-9)
        return close or (self.relation == "<=" and found < value)


def stated(algorithm: Algorithm) -> list[Statement]:
    """The costs that the docstring of an algorithm states.

    Raises
    ------
    ValueError
        If there is none, or one that cannot be read; the text says which and why.
    """
    try:
        return parse_cost(algorithm.entry("Cost"), algorithm.defaults)
    except ValueError as error:
        raise ValueError(f"{algorithm.family}.{algorithm.name}: {error}") from None


def parse_cost(text: str, parameters: Mapping[str, Any]) -> list[Statement]:
    """Read `name = expression, name <= expression, ...`.

    Examples
    --------
    >>> parse_cost("rounds = ceil(log(P, radix)), sent <= n", {"radix": 2})[0]
    Statement(name='rounds', relation='=', expression='ceil(log(P, radix))')
    """
    if not text:
        raise ValueError("no line 'Cost: rounds = ..., sent = ...' in the docstring")
    statements = []
    for entry in _entries(text):
        found = re.fullmatch(r"(\w+)\s*(<=|=)\s*(.+)", entry)
        if not found or found[1] not in Count._fields:
            known = ", ".join(Count._fields)
            raise ValueError(f"cannot read {entry!r}: write name = expression, name of {known}")
        _checked(found[3], parameters)
        statements.append(Statement(*found.groups()))
    return statements


def _entries(text: str) -> list[str]:
    """Cut at the commas that are not inside parentheses."""
    entries, depth = [""], 0
    for character in text.rstrip(" ."):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            entries.append("")
        else:
            entries[-1] += character
    return [entry.strip() for entry in entries]


def log(x: float, base: float) -> float:
    """Logarithm that is exact where it is an integer.

    Examples
    --------
    >>> log(125, 5), log(243, 3)
    (3.0, 5.0)
    """
    value = math.log(x) / math.log(base)
    return float(round(value)) if base ** round(value) == x else value


FUNCTIONS = {
    "ceil": math.ceil,
    "floor": math.floor,
    "log": log,
    "log2": lambda x: log(x, 2),
    "min": min,
    "max": max,
}
"""What an expression may call."""

_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.IfExp, ast.Compare),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def _checked(expression: str, parameters: Mapping[str, Any]) -> ast.Expression:
    """The syntax tree of an expression that has nothing in it but arithmetic."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"cannot read {expression!r}: {error.msg}") from None
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise ValueError(f"cannot read {expression!r}: {type(node).__name__} is not allowed")
        if isinstance(node, ast.Name):
            known = FUNCTIONS if id(node) in functions else {*"PABnm", *parameters}
            if node.id not in known:
                raise ValueError(f"cannot read {expression!r}: there is no {node.id!r} here")
    return tree


def evaluate(
    expression: str, P: int, n: int, parameters: Mapping[str, Any], cell_bytes: int = 1
) -> float:
    """The value of an expression over P, A, B, n, m and the parameters.

    Parameters
    ----------
    expression
        As in a `Cost:` line.
    P, n
        Ranks; cells in the whole vector, or in the blocks of all ranks together. Of two groups
        A and B are the ranks in the smaller and in the larger one.
    parameters
        Values of all parameters. A `segment` (in bytes) gives m, the cells in a segment.

    Examples
    --------
    >>> evaluate("ceil(log(P, radix)) + n / m", 9, 64, {"radix": 3, "segment": 16})
    6.0
    """
    code = compile(_checked(expression, parameters), "<cost>", "eval")
    segment = parameters.get("segment") or 0
    m = max(segment // cell_bytes, 1) if segment else n
    facts = {"P": P, "n": n, "A": P // 2, "B": P - P // 2}
    return float(eval(code, {"__builtins__": {}, **FUNCTIONS}, {"m": m, **parameters, **facts}))


class Bound(NamedTuple):
    """What no algorithm of a family can do with less than."""

    rounds: int
    volume: int

    def met_by(self, counted: Count) -> str:
        """Which of the two a count meets: `"rounds"`, `"volume"`, `"both"` or `""`."""
        met = [name for name in self._fields if getattr(counted, name) <= getattr(self, name)]
        return "both" if len(met) == 2 else "".join(met)


def lower_bound(family: str, P: int, n: int, ports: int = 1) -> Bound:
    """Fewest rounds, and cells that some rank must send or receive, on `equal_blocks`.

    In a round a rank learns from at most `ports` others, so that after t rounds it knows of
    (ports + 1)^t ranks at most. Volumes: what the root or the last rank must get or give; for
    allreduce Patarasuk and Yuan 2009; see also Chan, Heimlich, Purkayastha, van de Geijn 2007.
    """
    if P == 1:
        return Bound(0, 0)
    apart = COLLECTIVES[family].inter
    others = P - P // 2 if apart else P - 1
    rounds = math.ceil(log(others + 1, max(ports, 1) + 1))
    match family.removeprefix("inter_").removeprefix("neighbor_"):
        case "barrier":
            return Bound(rounds, 0)
        case "allreduce" if not apart:
            return Bound(rounds, -(-2 * n * (P - 1) // P))
        case "gather" | "scatter" | "allgather" | "alltoall":
            return Bound(rounds, n // P * others)
        case "reduce_scatter" if not apart:
            return Bound(rounds, n // P * others)
    return Bound(rounds, n)
