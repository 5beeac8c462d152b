"""Reduction between groups: the root gets the combination of the vectors of the other group."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias

from collx.choice import Choice
from collx.collectives import Call
from collx.patterns.groups import overlaps
from collx.registry import algorithm, run
from collx.schedule import EMPTY, Action, Answer, Recv, Region, Send, Steps, Yielded

Cut: TypeAlias = "Sequence[int]"
"""Cells in the part of each rank."""


@algorithm(covers=("linear",), window=(0, 1, 4))
def linear(call: Call, window: int = 0) -> Steps:
    """The root receives all vectors, at most `window` of them at a time, in order.

    Cost: rounds = ceil(B / (window or P)), sent = n, combined = (B - 1) * n
    Reference: folklore.
    """
    if call.rank == call.root:
        receives = combining(call, call.output)
        step = window or len(receives)
        for at in range(0, len(receives), step):
            yield receives[at : at + step]
    elif call.opposite:
        yield Send(call.input, to=call.root)


@algorithm(
    covers=("local reduce + remote send",),
    reduce=("binomial", "linear"),
)
def local_reduce_remote_send(call: Call, reduce: str | Choice = "binomial") -> Steps:
    """Combine in the other group at its first rank, which sends the result to the root.

    Cost: rounds = ceil(log2(B)) + 1, sent = n, combined = ceil(log2(B)) * n
    Reference: MPI 4.1, section 6.9.
    """
    if call.rank == call.root:
        yield Recv(call.output, source=call.remote[0])
    elif call.opposite:
        result = yield from at_leader(call, reduce)
        yield Send(result, to=call.root)


@algorithm(reduce_scatter=("butterfly", "circulant", "ring"))
def reduce_scatter_gather(call: Call, reduce_scatter: str | Choice = "butterfly") -> Steps:
    """Each rank of the other group combines a part of the vectors and sends it to the root.

    Cost: rounds <= ceil(log2(B)) + 2, sent <= 3 * n / 2
    Reference: Rabenseifner 2004.
    """
    if call.rank == call.root:
        parts = call.output.split(len(call.remote))
        yield [Recv(part, source) for part, source in zip(parts, call.remote, strict=True)]
    elif call.opposite:
        part = yield from own_part(call, reduce_scatter)
        yield Send(part, to=call.root)


def combining(call: Call, into: Region) -> list[Recv]:
    """Receive the vectors of the other group, and combine them in order."""
    first, *others = call.remote
    return [Recv(into, first), *(Recv(into, source, left=into) for source in others)]


def at_leader(call: Call, reduce: str | Choice) -> Generator[Yielded, Answer, Region]:
    """Combine in this group at its first rank; gives the result there."""
    if len(call.local) == 1:
        return call.input
    result = call.scratch(len(call.input)) if call.rank == call.local[0] else EMPTY
    part = call.sub("reduce", ranks=call.local, input=call.input, output=result)
    yield from run(part, reduce)
    return result


def own_part(call: Call, reduce_scatter: str | Choice) -> Generator[Yielded, Answer, Region]:
    """Combine in this group, each rank one of equal parts; gives the own one."""
    if len(call.local) == 1:
        return call.input
    parts = call.input.split(len(call.local))
    result = call.scratch(len(parts[call.local.index(call.rank)]))
    part = call.sub("reduce_scatter", ranks=call.local, input=parts, output=result)
    yield from run(part, reduce_scatter)
    return result


def swapped(
    call: Call, held: Region, into: Region, held_by: tuple[Cut, Cut], wanted_by: tuple[Cut, Cut]
) -> list[Action]:
    """Send what this rank holds to where the other group wants it, and receive what it holds.

    Each pair has the cuts of a whole vector among the ranks of this group and of the other.
    """
    me, (ours, theirs) = call.local.index(call.rank), held_by
    sends = overlaps(ours, me, wanted_by[1])
    receives = overlaps(wanted_by[0], me, theirs)
    return [
        *(Recv(into.part(start, stop), call.remote[i]) for i, start, stop in receives),
        *(Send(held.part(start, stop), call.remote[i]) for i, start, stop in sends),
    ]
