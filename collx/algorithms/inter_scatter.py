"""Scatter between groups: each rank of the other group gets its block of the root's data."""

from __future__ import annotations

from collections.abc import Generator

from collx.choice import Choice
from collx.collectives import Call
from collx.registry import algorithm, run
from collx.schedule import (
    EMPTY,
    Answer,
    Blocks,
    Recv,
    RecvInts,
    Round,
    Send,
    SendInts,
    Steps,
    Yielded,
)


@algorithm(
    covers=("linear",),
    window=(0, 8, 32),
)
def linear(call: Call, window: int = 0) -> Steps:
    """The root sends every block straight to its rank, at most `window` at the same time.

    Cost: rounds = 1, sent = B * n / P, messages = B
    Reference: folklore.
    """
    if call.rank == call.root:
        pairs = zip(call.input_blocks, call.remote, strict=True)
        yield Round(tuple(Send(block, to) for block, to in pairs), window)
    elif call.opposite:
        yield Recv(call.output, source=call.root)


@algorithm(
    covers=("remote send + local scatter",),
    scatter=("binomial", "linear"),
)
def remote_send_local_scatter(call: Call, scatter: str | Choice = "binomial") -> Steps:
    """The root sends all blocks to the first rank of the other group, which scatters them there.

    Where ranks do not know the sizes of blocks, the root tells them to that rank.

    Cost: rounds = ceil(log2(B)) + 1, sent = B * n / P
    Reference: MPI 4.1, section 6.6.
    """
    if call.rank == call.root:
        if call.sizes is None:
            yield SendInts(tuple(map(len, call.input_blocks)), to=call.remote[0])
        yield Send(call.input, to=call.remote[0])
    elif call.opposite:
        blocks = yield from _from_root(call)
        part = call.sub("scatter", ranks=call.local, input=blocks or EMPTY, output=call.output)
        part.sizes = call.sizes and [call.sizes[rank] for rank in call.local]
        yield from run(part, scatter)


def _from_root(call: Call) -> Generator[Yielded, Answer, Blocks | None]:
    """Receive all blocks at the first rank of this group; gives them there."""
    if call.rank != call.local[0]:
        return None
    if call.sizes is None:
        (sizes,) = yield RecvInts(len(call.local), source=call.root)
    else:
        sizes = tuple(call.sizes[rank] for rank in call.local)
    blocks = call.scratch(sum(sizes)).blocks(sizes)
    yield Recv(blocks.whole, source=call.root)
    return blocks


@algorithm(inner=("binomial", "knomial"))
def joined(call: Call, inner: str | Choice = "binomial") -> Steps:
    """Scatter as if the root belonged to the other group, with an empty block.

    Cost: rounds = ceil(log2(B + 1)), sent = B * n / P
    Reference: folklore.
    """
    if call.opposite:
        blocks = Blocks([EMPTY, *call.input_blocks]) if call.rank == call.root else EMPTY
        ranks = [call.root, *call.opposite]
        part = call.sub("scatter", ranks=ranks, input=blocks, output=call.output)
        part.sizes = call.sizes and [0, *(call.sizes[rank] for rank in call.opposite)]
        yield from run(part, inner)
