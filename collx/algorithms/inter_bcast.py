"""Broadcast between groups: the other group gets the data of the root."""

from __future__ import annotations

from collx.choice import Choice
from collx.collectives import Call
from collx.registry import algorithm, run
from collx.schedule import Recv, Send, Steps


@algorithm(
    covers=("linear",),
)
def linear(call: Call) -> Steps:
    """The root sends to every rank of the other group.

    Cost: rounds = 1, sent = B * n, messages = B
    Reference: folklore.
    """
    if call.rank == call.root:
        yield [Send(call.input, to=rank) for rank in call.remote]
    elif call.opposite:
        yield Recv(call.output, source=call.root)


@algorithm(
    covers=("remote send + local bcast",),
    bcast=("binomial", "linear", "scatter_allgather"),
)
def remote_send_local_bcast(call: Call, bcast: str | Choice = "binomial") -> Steps:
    """The root sends to the first rank of the other group, which broadcasts in its group.

    Cost: rounds = 1 + ceil(log2(B)), sent = max(ceil(log2(B)), 1) * n
    Reference: MPI 4.1, section 6.4.
    """
    if call.rank == call.root:
        yield Send(call.input, to=call.remote[0])
    elif call.opposite:
        if call.rank == call.local[0]:
            yield Recv(call.output, source=call.root)
        yield from run(call.sub("bcast", ranks=call.local, output=call.output), bcast)


@algorithm(
    inner=("binomial", "chain(chains=1, segment=64K)", "scatter_allgather"),
)
def joined(call: Call, inner: str | Choice = "binomial") -> Steps:
    """Broadcast as if the root belonged to the other group.

    Cost: rounds = ceil(log2(B + 1)), sent = ceil(log2(B + 1)) * n
    Reference: folklore.
    """
    if call.opposite:
        ranks, data = [call.root, *call.opposite], call.input or call.output
        yield from run(call.sub("bcast", ranks=ranks, output=data), inner)


@algorithm(allgather=("ring", "bruck"))
def scatter_allgather(call: Call, allgather: str | Choice = "ring") -> Steps:
    """The root sends a part to each rank of the other group, which puts the parts together.

    Cost: rounds = B, sent = n
    Reference: Barnett, Payne, van de Geijn, Watts 1996.
    """
    parts = (call.input or call.output).split(max(len(call.opposite), 1))
    if call.rank == call.root:
        yield [Send(part, to=rank) for part, rank in zip(parts, call.remote, strict=True)]
    elif call.opposite:
        mine = parts[call.local.index(call.rank)]
        yield Recv(mine, source=call.root)
        together = call.sub("allgather", ranks=call.local, input=mine, output=parts)
        yield from run(together, allgather)
