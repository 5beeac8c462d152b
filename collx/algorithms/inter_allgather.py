"""Allgather between groups: each rank gets the blocks of all ranks of the other group."""

from __future__ import annotations

from collx.algorithms.inter_alltoall import exchange
from collx.algorithms.inter_gather import at_leader
from collx.choice import Choice
from collx.collectives import Call
from collx.patterns.groups import receiver_of, receivers
from collx.registry import algorithm, run
from collx.schedule import Action, Blocks, Recv, Round, Send, Steps


@algorithm(window=(0, 8, 32))
def linear(call: Call, window: int = 0) -> Steps:
    """Every rank sends its block to every rank of the other group.

    Cost: rounds = 1, sent = B * n / P, messages = B
    Reference: folklore.
    """
    blocks = Blocks([call.input] * len(call.remote))
    steps = range(max(len(call.local), len(call.remote)))
    yield Round(tuple(a for step in steps for a in exchange(call, blocks, step)), window)


@algorithm(
    covers=("gather + exchange + bcast",),
    gather=("binomial", "linear"),
    bcast=("binomial", "scatter_allgather"),
)
def gather_exchange_bcast(
    call: Call, gather: str | Choice = "binomial", bcast: str | Choice = "binomial"
) -> Steps:
    """Gather in each group; the first ranks swap what they have and broadcast it in their groups.

    Where ranks do not know the sizes of blocks, each tells its own to the first of its group.

    Cost: rounds = 2 * ceil(log2(B)) + 1, sent <= (1 + ceil(log2(B))) * B * n / P
    Reference: MPI 4.1, section 6.7.
    """
    gathered = yield from at_leader(call, gather)
    if call.rank == call.local[0]:
        other = call.remote[0]
        yield Send(gathered.whole, to=other), Recv(call.output, source=other)
    yield from run(call.sub("bcast", ranks=call.local, output=call.output), bcast)


@algorithm(
    covers=("remote gather + local bcast",),
    bcast=("binomial", "scatter_allgather"),
)
def remote_gather_local_bcast(call: Call, bcast: str | Choice = "binomial") -> Steps:
    """Every rank sends its block to the first rank of the other group, which broadcasts them.

    Cost: rounds = 1 + ceil(log2(B)), sent <= n / P + ceil(log2(B)) * B * n / P
    Reference: MPI 4.1, section 6.7.
    """
    actions: list[Action] = [Send(call.input, to=call.remote[0])]
    if call.rank == call.local[0]:
        pairs = zip(call.output_blocks, call.remote, strict=True)
        actions += [Recv(block, source) for block, source in pairs]
    yield actions
    yield from run(call.sub("bcast", ranks=call.local, output=call.output), bcast)


@algorithm(allgather=("ring", "bruck"))
def remote_send_local_allgather(call: Call, allgather: str | Choice = "ring") -> Steps:
    """Every rank sends its block to one of the other group, which puts the blocks together.

    Cost: rounds = B, sent = B * n / P
    Reference: folklore.
    """
    me, ours, theirs = call.local.index(call.rank), len(call.local), len(call.remote)
    heard = receivers(theirs, ours)
    sources = [Recv(call.output_blocks[i], source=call.remote[i]) for i in heard[me]]
    yield Send(call.input, to=call.remote[receiver_of(me, ours, theirs)]), *sources
    parts = call.output_blocks.regroup(heard)
    together = call.sub("allgather", ranks=call.local, input=parts[me], output=parts)
    yield from run(together, allgather)
