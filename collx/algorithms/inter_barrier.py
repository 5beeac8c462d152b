"""Barrier between groups: no rank leaves before every rank of the other group has entered."""

from __future__ import annotations

from collx.choice import Choice
from collx.collectives import Call
from collx.registry import algorithm, run
from collx.schedule import TOKEN, Recv, Send, Steps


@algorithm()
def linear(call: Call) -> Steps:
    """Every rank signals every rank of the other group.

    Cost: rounds = 1, messages = B
    Reference: folklore.
    """
    yield [Send(TOKEN, to=rank) for rank in call.remote] + [
        Recv(TOKEN, source=rank) for rank in call.remote
    ]


@algorithm(
    covers=("leaders",),
    barrier=("dissemination", "knomial"),
)
def leaders(call: Call, barrier: str | Choice = "dissemination") -> Steps:
    """Let each group meet, then the first ranks of both groups, then each group again.

    Cost: rounds = 2 * ceil(log2(B)) + 1, messages = 2 * ceil(log2(B)) + 1
    Reference: MPI 4.1, section 6.3.
    """
    yield from run(call.sub("barrier", ranks=call.local), barrier)
    if call.rank == call.local[0]:
        yield Send(TOKEN, to=call.remote[0]), Recv(TOKEN, source=call.remote[0])
    yield from run(call.sub("barrier", ranks=call.local), barrier)


@algorithm(inner=("dissemination", "recursive_doubling"))
def merged(call: Call, inner: str | Choice = "dissemination") -> Steps:
    """Let all ranks of both groups meet as if they were one.

    Cost: rounds = ceil(log2(P)), messages = ceil(log2(P))
    Reference: Hensgen, Finkel, Manber 1988.
    """
    yield from run(call.sub("barrier"), inner)
