"""Allreduce between groups: each group gets the combination of the vectors of the other one."""

from __future__ import annotations

from collx.algorithms.inter_reduce import at_leader, combining, own_part, swapped
from collx.choice import Choice
from collx.collectives import Call
from collx.registry import Promise, algorithm, run
from collx.schedule import Recv, Send, Steps


@algorithm(
    promises=Promise.SAME_BITS,
    covers=("reduce + exchange + bcast", "remote reduce + local bcast"),
    reduce=("binomial", "linear"),
    bcast=("binomial", "scatter_allgather"),
)
def reduce_exchange_bcast(
    call: Call, reduce: str | Choice = "binomial", bcast: str | Choice = "binomial"
) -> Steps:
    """Combine in each group; the first ranks swap the results and broadcast them in their groups.

    Cost: rounds = 2 * ceil(log2(B)) + 1, sent = (1 + ceil(log2(B))) * n,
    combined = ceil(log2(B)) * n
    Reference: MPI 4.1, section 6.9.
    """
    result = yield from at_leader(call, reduce)
    if call.rank == call.local[0]:
        other = call.remote[0]
        yield Send(result, to=other), Recv(call.output, source=other)
    yield from run(call.sub("bcast", ranks=call.local, output=call.output), bcast)


@algorithm(
    promises=Promise.SAME_BITS,
    bcast=("binomial", "scatter_allgather"),
)
def remote_reduce_local_bcast(call: Call, bcast: str | Choice = "binomial") -> Steps:
    """Send every vector to the first rank of the other group, which combines and broadcasts them.

    Cost: rounds = 1 + ceil(log2(B)), sent = (1 + ceil(log2(B))) * n, combined = (B - 1) * n
    Reference: folklore.
    """
    send = Send(call.input, to=call.remote[0])
    if call.rank == call.local[0]:
        yield [send, *combining(call, call.output)]
    else:
        yield send
    yield from run(call.sub("bcast", ranks=call.local, output=call.output), bcast)


@algorithm(allreduce=("recursive_doubling", "rabenseifner"))
def local_allreduce_remote_send(
    call: Call, allreduce: str | Choice = "recursive_doubling"
) -> Steps:
    """Combine in each group on all ranks; each sends the result to its share of the other group.

    Cost: rounds <= ceil(log2(B)) + 2, sent <= (ceil(log2(B)) + 2) * n
    Reference: folklore.
    """
    result, me = call.scratch(len(call.input)), call.local.index(call.rank)
    part = call.sub("allreduce", ranks=call.local, input=call.input, output=result)
    yield from run(part, allreduce)
    source = call.remote[me % len(call.remote)]
    targets = call.remote[me :: len(call.local)]
    yield [Recv(call.output, source), *(Send(result, to) for to in targets)]


@algorithm(
    promises=Promise.SAME_BITS,
    reduce_scatter=("butterfly", "circulant", "ring"),
    allgather=("ring", "bruck"),
)
def reduce_scatter_exchange_allgather(
    call: Call, reduce_scatter: str | Choice = "butterfly", allgather: str | Choice = "ring"
) -> Steps:
    """Combine a part on each rank; the groups swap parts, and each puts its own ones together.

    Cost: rounds <= ceil(log2(B)) + B + 1, sent <= 5 * n / 2
    Reference: Rabenseifner 2004.
    """
    part = yield from own_part(call, reduce_scatter)
    parts = call.output.split(len(call.local))
    mine = parts[call.local.index(call.rank)]
    cuts = [*map(len, parts)], [*map(len, call.output.split(len(call.remote)))]
    yield swapped(call, part, mine, cuts, cuts)
    together = call.sub("allgather", ranks=call.local, input=mine, output=parts)
    yield from run(together, allgather)
