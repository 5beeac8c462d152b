"""Gather between groups: the root gets the blocks of the other group."""

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
    """Send every block straight to the root, which has at most `window` receives open.

    Cost: rounds = 1, sent = n / P, messages = 1
    Reference: folklore.
    """
    if call.rank == call.root:
        pairs = zip(call.output_blocks, call.remote, strict=True)
        yield Round(tuple(Recv(block, source) for block, source in pairs), window)
    elif call.opposite:
        yield Send(call.input, to=call.root)


@algorithm(
    covers=("local gather + remote send",),
    gather=("binomial", "linear"),
)
def local_gather_remote_send(call: Call, gather: str | Choice = "binomial") -> Steps:
    """Gather in the other group at its first rank, which sends all blocks to the root.

    Where ranks do not know the sizes of blocks, each tells its own to that rank.

    Cost: rounds = ceil(log2(B)) + 1, sent = B * n / P
    Reference: MPI 4.1, section 6.5.
    """
    if call.rank == call.root:
        yield Recv(call.output, source=call.remote[0])
    elif call.opposite:
        gathered = yield from at_leader(call, gather)
        if call.rank == call.local[0]:
            yield Send(gathered.whole, to=call.root)


@algorithm(inner=("binomial", "knomial"))
def joined(call: Call, inner: str | Choice = "binomial") -> Steps:
    """Gather as if the root belonged to the other group, with an empty block.

    Cost: rounds = ceil(log2(B + 1)), sent <= n / 2
    Reference: folklore.
    """
    if call.opposite:
        blocks = Blocks([EMPTY, *call.output_blocks]) if call.rank == call.root else EMPTY
        ranks = [call.root, *call.opposite]
        part = call.sub("gather", ranks=ranks, input=call.input, output=blocks)
        part.sizes = call.sizes and [0, *(call.sizes[rank] for rank in call.opposite)]
        yield from run(part, inner)


def at_leader(call: Call, inner: str | Choice) -> Generator[Yielded, Answer, Blocks]:
    """Gather the blocks of this group at its first rank; gives them there."""
    sizes = yield from _told_sizes(call)
    blocks = call.scratch(sum(sizes)).blocks(sizes)
    at_root = call.rank == call.local[0]
    part = call.sub(
        "gather", ranks=call.local, input=call.input, output=blocks if at_root else EMPTY
    )
    part.sizes = call.sizes and [call.sizes[rank] for rank in call.local]
    yield from run(part, inner)
    return blocks


def _told_sizes(call: Call) -> Generator[Yielded, Answer, list[int]]:
    """Cells in the blocks of this group, at its first rank: known, or told by the others."""
    if call.rank != call.local[0]:
        if call.sizes is None:
            yield SendInts((len(call.input),), to=call.local[0])
        return []
    if call.sizes is not None:
        return [call.sizes[rank] for rank in call.local]
    told = yield [RecvInts(1, source=rank) for rank in call.local[1:]]
    return [len(call.input), *(cells for (cells,) in told)]
