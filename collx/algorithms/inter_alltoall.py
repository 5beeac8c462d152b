"""All-to-all between groups: each rank sends a block to each rank of the other group."""

from __future__ import annotations

from collx.choice import Choice
from collx.collectives import Call
from collx.registry import algorithm, run
from collx.schedule import EMPTY, Action, Blocks, Recv, Round, Send, Steps


@algorithm(covers=("linear",), window=(0, 8, 32))
def linear(call: Call, window: int = 0) -> Steps:
    """Post all receives and sends, at most `window` of them at the same time.

    Each rank begins with another rank of the other group.

    Cost: rounds = 1, sent = B * n / P, messages = B
    Reference: folklore.
    """
    steps = range(max(len(call.local), len(call.remote)))
    actions = [action for step in steps for action in exchange(call, call.input_blocks, step)]
    yield Round(tuple(actions), window)


def exchange(call: Call, blocks: Blocks, step: int) -> list[Action]:
    """Send to the rank `step` places further on in the other group, and receive from as far back.

    Both groups have as many places as the larger has ranks; at some of them there is nobody.
    """
    places = max(len(call.local), len(call.remote))
    source, to = ((call.local.index(call.rank) + way * step) % places for way in (-1, 1))
    actions: list[Action] = []
    if source < len(call.remote):
        actions.append(Recv(call.output_blocks[source], source=call.remote[source]))
    if to < len(call.remote):
        actions.append(Send(blocks[to], to=call.remote[to]))
    return actions


@algorithm(
    covers=("pairwise",),
)
def pairwise(call: Call) -> Steps:
    """In step i send to the rank i places further on in the other group, and receive from i back.

    Cost: rounds = B, sent = B * n / P, messages = B
    Reference: Thakur, Rabenseifner, Gropp 2005.
    """
    for step in range(max(len(call.local), len(call.remote))):
        yield exchange(call, call.input_blocks, step)


@algorithm(inner=("exchange", "pairwise"))
def merged(call: Call, inner: str | Choice = "exchange") -> Steps:
    """Exchange among all ranks of both groups, with empty blocks for the own group.

    Cost: rounds = B, sent = B * n / P, messages = B
    Reference: folklore.
    """
    nothing = [EMPTY] * len(call.local)
    sends, receives = [*call.input_blocks], [*call.output_blocks]
    if call.local.start:
        sends, receives = sends + nothing, receives + nothing
    else:
        sends, receives = nothing + sends, nothing + receives
    part = call.sub("alltoall", input=Blocks(sends), output=Blocks(receives))
    part.sizes = None
    yield from run(part, inner)
