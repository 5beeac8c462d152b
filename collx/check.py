"""Find out before a call whether all ranks mean the same call, and say so on all of them.

With `collx.using(check=True)` or `COLLX_CHECK=1` the ranks first tell each other which collective
they call and with what, and how many bytes they mean to send to and receive from each. If that
does not fit together, every rank raises the same error and nothing of the call is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from collx.arguments import Arguments
from collx.collectives import COLLECTIVES, Call, Shape, call_of
from collx.errors import Error
from collx.layout import Layout
from collx.neighborhood import Edges
from collx.operators import name_of
from collx.registry import Algorithm
from collx.schedule import RecvInts, Region
from collx.state import State

TEXT_BYTES = 256
"""Longest description that the ranks exchange; longer ones are cut."""


def describe(arguments: Arguments, layout: Layout) -> str:
    """What must be the same on all ranks, in words."""
    row = COLLECTIVES[arguments.collective]
    words = [arguments.collective]
    if row.rooted and not row.inter:
        words.append(f"root {arguments.root}")
    if arguments.op is not None:
        words.append(f"operator {name_of(arguments.op)}")
    if row.combines and layout.cells.kind is not None and not (row.rooted and row.inter):
        kind = layout.cells.kind
        datatype = kind.datatype.Get_name() if kind.datatype is not None else str(kind.dtype)
        words.append(f"datatype {datatype or f'of {kind.size} bytes'}")
        words.append(f"{_cells(layout)} elements")
    if arguments.algorithm is not None:
        words.append(f"algorithm {arguments.algorithm}")
    return ", ".join(words)


def _cells(layout: Layout) -> int:
    input = layout.input
    return len(input if isinstance(input, Region) else input.whole)


def flows(call: Call) -> tuple[Sequence[int], Sequence[int]]:
    """Bytes that this rank means to send to each rank and to receive from each.

    Reductions have none here: their lengths are compared in words.
    """
    nothing = [0] * call.size
    if call.low:
        return _flows_between(call)
    at_root = [call.rank == call.root] * call.size
    from_root = [rank == call.root for rank in range(call.size)]
    match call.collective:
        case "bcast":
            nbytes = len(call.output)
            return [nbytes * at for at in at_root], [nbytes * at for at in from_root]
        case "gather":
            sent = [len(call.input) * at for at in from_root]
            return sent, list(map(len, call.output_blocks)) if at_root[0] else nothing
        case "scatter":
            received = [len(call.output) * at for at in from_root]
            return list(map(len, call.input_blocks)) if at_root[0] else nothing, received
        case "allgather":
            return [len(call.input)] * call.size, list(map(len, call.output_blocks))
        case "alltoall":
            return list(map(len, call.input_blocks)), list(map(len, call.output_blocks))
        case "neighbor_allgather" | "neighbor_alltoall":
            near, together = call.neighbors, call.collective == "neighbor_allgather"
            inputs = [call.input] * len(near.targets) if together else call.input_blocks
            return _by_rank(call, near.targets, inputs), _by_rank(
                call, near.sources, call.output_blocks
            )
    return nothing, nothing


def _by_rank(call: Call, edges: Edges, blocks: Iterable[Region]) -> list[int]:
    """Bytes of the blocks along the edges to each rank, or from each."""
    nbytes = [0] * call.size
    for edge, block in zip(edges, blocks, strict=False):
        if edge:
            nbytes[edge.rank] += len(block)
    return nbytes


def _flows_between(call: Call) -> tuple[Sequence[int], Sequence[int]]:
    """Those of a call between groups: cells for reductions, but nothing for a reduce-scatter."""
    sent, received = [0] * call.size, [0] * call.size
    if call.collective == "inter_reduce_scatter":
        return sent, received
    rooted = COLLECTIVES[call.collective].rooted
    peers: Sequence[int] = call.remote
    if rooted and call.rank != call.root:
        peers = [call.root] if call.opposite else []
    blocks = call.input_blocks, call.output_blocks
    for i, peer in enumerate(peers):
        sent[peer], received[peer] = (
            len(side[i] if len(side) == len(peers) else side.whole) for side in blocks
        )
    return sent, received


def check(state: State, arguments: Arguments, layout: Layout, call: Call) -> None:
    """Compare this rank's call with that of all others.

    Raises
    ------
    Error
        On all ranks, if any two do not fit together.
    """
    text = describe(arguments, layout)
    sent, received = flows(call)
    texts = _exchange(state, [text] * state.size)
    numbers = _exchange(state, [f"{nbytes}" for nbytes in sent])
    complaint = _disagreement(texts) or _wrong_bytes(state.rank, numbers, received)
    complaints = [each for each in _exchange(state, [complaint] * state.size) if each]
    if complaints:
        raise Error(MPI.ERR_OTHER, f"ranks do not make the same call: {complaints[0]}")


ALL_RANKS = 32
"""Up to so many ranks a rehearsal makes the schedules of all of them."""


def rehearse(marked: Algorithm, parameters: Mapping[str, Any], call: Call) -> None:
    """Make the schedules of other ranks as well.

    What is wrong with the algorithms inside an algorithm (a name that does not exist, an unmet
    need) may show in the schedules of some ranks only. This way all ranks raise the same error
    before any of them sends anything.
    """
    if COLLECTIVES[call.collective].sparse or call.root < 0:
        return  # nothing inside, or nothing to do
    whole = max(len(call.input), len(call.output))
    sizes = call.sizes or [whole // call.size + (r < whole % call.size) for r in range(call.size)]
    shape = Shape(
        call.collective,
        call.size,
        tuple(sizes),
        call.root,
        commutative=call.commutative,
        cell_bytes=call.cell_bytes,
        nodes=call.nodes,
        low=call.low,
    )
    for rank in _typical_ranks(call):
        for round_ in marked(call_of(shape, rank), **parameters):
            if any(isinstance(action, RecvInts) for action in round_.actions):
                break


def _typical_ranks(call: Call) -> list[int]:
    """All ranks, or the first two of each node, the root and the last."""
    if call.size <= ALL_RANKS:
        return list(range(call.size))
    members: dict[int, list[int]] = {}
    for rank, node in enumerate(call.nodes):
        members.setdefault(node, []).append(rank)
    first = {rank for ranks in members.values() for rank in ranks[:2]}
    return sorted(first | {call.root, call.size - 1})


def _exchange(state: State, texts: Sequence[str]) -> list[str]:
    """Send a text to each rank; the texts received, by rank."""
    comm, size = state.comm, state.size
    incoming = np.zeros((size, TEXT_BYTES), np.uint8)
    outgoing = [np.zeros(TEXT_BYTES, np.uint8) for _ in range(size)]
    for buffer, text in zip(outgoing, texts, strict=True):
        data = text.encode()[:TEXT_BYTES]
        buffer[: len(data)] = np.frombuffer(data, np.uint8)
    requests = [comm.Irecv(incoming[rank], rank) for rank in range(size)]
    requests += [comm.Isend(outgoing[rank], rank) for rank in range(size)]
    MPI.Request.Waitall(requests)
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in incoming]


def _disagreement(texts: Sequence[str]) -> str:
    """The first two ranks that say different things, or ''."""
    for rank, text in enumerate(texts):
        if text != texts[0]:
            return f"rank 0 calls {texts[0]}; rank {rank} calls {text}"
    return ""


def _wrong_bytes(rank: int, sent: Sequence[str], expected: Sequence[int]) -> str:
    for source, (got, want) in enumerate(zip(sent, expected, strict=True)):
        if int(got) != want:
            return f"rank {source} sends {got} bytes to rank {rank}, which expects {want}"
    return ""
