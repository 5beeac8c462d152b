"""Reduce-scatter between groups: each rank gets its block of what the other group combines."""

from __future__ import annotations

from collx.algorithms.inter_reduce import Cut, at_leader, own_part, swapped
from collx.choice import Choice
from collx.collectives import Call
from collx.patterns.groups import overlaps
from collx.registry import algorithm, run
from collx.schedule import EMPTY, Action, Copy, Recv, Region, Send, Steps


@algorithm(
    covers=("remote reduce + local scatter",),
    reduce=("binomial", "linear"),
    scatter=("binomial", "linear"),
)
def remote_reduce_local_scatter(
    call: Call, reduce: str | Choice = "binomial", scatter: str | Choice = "binomial"
) -> Steps:
    """Combine in each group; the first ranks swap the results and scatter them in their groups.

    Cost: rounds = 2 * ceil(log2(B)) + 1, sent <= 2 * n, combined = ceil(log2(B)) * n
    Reference: MPI 4.1, section 6.10.
    """
    sizes = [*map(len, call.input_blocks)]
    result, blocks = (yield from at_leader(call, reduce)), None
    if call.rank == call.local[0]:
        blocks = call.scratch(sum(sizes)).blocks(sizes)
        other = call.remote[0]
        yield Send(result, to=other), Recv(blocks.whole, source=other)
    part = call.sub("scatter", ranks=call.local, input=blocks or EMPTY, output=call.output)
    part.sizes = sizes
    yield from run(part, scatter)


@algorithm(reduce_scatter=("butterfly", "circulant", "ring"))
def reduce_scatter_exchange(call: Call, reduce_scatter: str | Choice = "butterfly") -> Steps:
    """Combine a part on each rank; the groups swap parts, so that each rank has its block.

    Where the blocks of the other group are not known, equal parts are swapped and each group
    passes them on inside.

    Cost: rounds <= ceil(log2(B)) + 2, sent <= 3 * n / 2
    Reference: Rabenseifner 2004.
    """
    held = yield from own_part(call, reduce_scatter)
    even = _even(call.input, call.local), _even(call.input, call.remote)
    if call.sizes is not None:
        ours, theirs = ([call.sizes[rank] for rank in g] for g in (call.local, call.remote))
        yield swapped(call, held, call.output, even, (ours, theirs))
    else:
        part = call.scratch(even[0][call.local.index(call.rank)])
        yield swapped(call, held, part, even, even)
        yield _passed_on(call, part, even[0], [*map(len, call.input_blocks)])


def _even(vector: Region, ranks: range) -> Cut:
    return [*map(len, vector.split(len(ranks)))]


def _passed_on(call: Call, part: Region, held: Cut, wanted: Cut) -> list[Action]:
    """Change from one cut of a vector among the ranks of this group to another."""
    me = call.local.index(call.rank)
    sends = {i: part.part(start, stop) for i, start, stop in overlaps(held, me, wanted)}
    receives = {i: call.output.part(start, stop) for i, start, stop in overlaps(wanted, me, held)}
    return [
        Copy(receives.pop(me, EMPTY), sends.pop(me, EMPTY)),
        *(Recv(into, source=call.local[i]) for i, into in receives.items()),
        *(Send(piece, to=call.local[i]) for i, piece in sends.items()),
    ]
