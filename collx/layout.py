"""Where the cells of a call are in the memory of its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mpi4py import MPI

from collx.arguments import Arguments, Sides
from collx.buffers import Kind, Message, Packing, packing
from collx.collectives import COLLECTIVES, both_groups
from collx.engine import LARGEST_MESSAGE
from collx.errors import Error
from collx.memory import BYTES, Cells, private_self
from collx.schedule import EMPTY, INPUT, OUTPUT, Blocks, Region


class Layout(NamedTuple):
    """Where the cells of a call are: what its plan depends on, apart from operator and choice.

    Attributes
    ----------
    input, output : Region or Blocks
        In cells of the buffers.
    sizes : sequence of int or None
        Cells of the blocks of all ranks, if this rank knows them.
    cells : Cells
        What a cell is.
    input_packing, output_packing : Packing or None
        How data movement lays out its messages.
    """

    input: Region | Blocks
    output: Region | Blocks
    sizes: Sequence[int] | None
    cells: Cells
    input_packing: Packing | None = None
    output_packing: Packing | None = None


def lay_out(arguments: Arguments, sides: Sides, rank: int, size: int) -> Layout:
    """Find the regions of a call."""
    row = COLLECTIVES[arguments.collective]
    if row.combines:
        return _lay_out_elements(arguments, sides, rank, size)
    return _lay_out_bytes(arguments, sides, rank, size)


def _lay_out_bytes(arguments: Arguments, sides: Sides, rank: int, size: int) -> Layout:
    row = COLLECTIVES[arguments.collective]
    family = row.family.removeprefix("inter_")
    sent = packing(sides.input, INPUT) if sides.input is not None else None
    received = packing(sides.output, OUTPUT) if sides.output is not None else None
    inputs = sent.blocks if sent else None
    outputs = received.blocks if received else None
    input: Region | Blocks = inputs or EMPTY
    output: Region | Blocks = outputs or EMPTY
    if family in ("bcast", "scatter"):
        output = outputs[0] if outputs else EMPTY
    one = ("gather", "allgather", "neighbor_allgather")
    if family in one or arguments.collective == "inter_bcast":
        input = inputs[0] if inputs else EMPTY
    if arguments.in_place:
        if family in ("gather", "allgather") and outputs:
            input = outputs[rank]
        elif family == "scatter" and inputs:
            output = inputs[rank]
        elif family == "alltoall":
            input = output
    if row.inter:
        sizes = _sizes_between(arguments, input, output, both_groups(rank, size, arguments.low))
    else:
        sizes = _block_sizes(arguments.collective, input, output, size)
    device = any(side is not None and side.device for side in sides)
    cells = BYTES._replace(device=device)
    return Layout(input, output, sizes, cells, sent, received)


def _block_sizes(
    collective: str, input: Region | Blocks, output: Region | Blocks, size: int
) -> Sequence[int] | None:
    """The block sizes that all ranks know: for gather and scatter those of any block.

    In a neighbourhood collective a rank may have blocks on one side only, or none.
    """
    match collective:
        case "gather" | "alltoall":
            return [len(input[0] if isinstance(input, Blocks) else input)] * size
        case "scatter":
            return [len(output)] * size
        case "allgather" | "allgatherv":
            assert isinstance(output, Blocks)
            return [len(block) for block in output]
        case "neighbor_allgather" | "neighbor_alltoall":
            sides = [side if isinstance(side, Blocks) else [side] for side in (input, output)]
            return [max(len(block) for side in sides for block in side)] * size
    return None


def _sizes_between(
    arguments: Arguments,
    input: Region | Blocks,
    output: Region | Blocks,
    groups: tuple[range, range],
) -> Sequence[int] | None:
    """The block sizes of both groups where all ranks know them; 0 where a group gives nothing."""
    sent, received = (
        len(side[0] if isinstance(side, Blocks) else side) for side in (input, output)
    )
    match arguments.collective:
        case "inter_allgather" | "inter_alltoall":
            ours, theirs = sent, received
        case "inter_gather" | "inter_scatter" if arguments.root >= 0:
            block = max(sent, received)
            ours, theirs = (block, 0) if arguments.root in groups[1] else (0, block)
        case _:
            return None
    sizes = [ours] * len(groups[0]), [theirs] * len(groups[1])
    return sizes[0] + sizes[1] if groups[0].start == 0 else sizes[1] + sizes[0]


def _lay_out_elements(arguments: Arguments, sides: Sides, rank: int, size: int) -> Layout:
    message = sides.output or sides.input
    if message is None:
        return Layout(EMPTY, EMPTY, None, BYTES)
    if any(side is not None and side.device for side in sides):
        raise TypeError("collx combines in the memory of the processor: copy the array there first")
    cells = Cells(message.kind.extent, message.kind)
    input = _cells_of(sides.input, INPUT)
    output = _cells_of(sides.output, OUTPUT)
    row = COLLECTIVES[arguments.collective]
    if row.family not in ("reduce_scatter", "inter_reduce_scatter"):
        whole = output if arguments.in_place else input
        return Layout(whole, output, None, cells)
    counts = arguments.counts
    local, _ = both_groups(rank, size, arguments.low)
    if row.name.endswith("_block"):
        counts = [message.parts[0].count] * len(local)
    assert counts is not None
    whole = Region((OUTPUT, 0, sum(counts))) if arguments.in_place else input
    if len(whole) != sum(counts):
        raise ValueError(f"mismatch in send count {len(whole)} and sum(counts) {sum(counts)}")
    own, sizes = counts[local.index(rank)], None
    if not arguments.in_place and len(output) != own:
        raise ValueError(
            f"mismatch in receive count {len(output)} and counts[{local.index(rank)}] {own}"
        )
    if not row.inter:
        sizes = counts
    elif row.name.endswith("_block"):
        groups = (range(arguments.low), range(arguments.low, size))
        sizes = [sum(counts) // len(group) for group in groups for _ in group]
    return Layout(whole.blocks(counts), Region((OUTPUT, 0, own)), sizes, cells)


def _cells_of(message: Message | None, buffer: int) -> Region:
    cells = sum(part.count for part in message.parts) if message is not None else 0
    return Region((buffer, 0, cells)) if cells else EMPTY


def element_memory(message: Message) -> MPI.buffer:
    """The memory that begins with the first element of a reduction."""
    part = message.parts[0]
    if message.memory is None or not part.kind.dense:
        return MPI.buffer.fromaddress(message.address + part.offset, 1)
    count = sum(each.count for each in message.parts)
    return message.memory[part.offset : part.offset + count * part.kind.extent]


def place(message: Message | None) -> tuple[int, int] | None:
    """The bytes of its buffer that a message of dense parts touches, first and behind the last."""
    if message is None:
        return None
    parts = [part for part in message.parts if part.nbytes and part.kind.dense]
    if not parts:
        return 0, 0
    first = min(part.offset for part in parts)
    return first, max(part.offset + part.nbytes for part in parts)


def span(message: Message) -> tuple[int, int]:
    """The same as addresses; nothing for `MPI.BOTTOM`."""
    first, last = place(message) or (0, 0)
    return (message.address + first, message.address + last) if message.address else (0, 0)


def check_apart(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Raise an Error if two ranges of addresses overlap."""
    if one[0] < other[1] and other[0] < one[1] and one[0] < one[1] and other[0] < other[1]:
        raise Error(
            MPI.ERR_BUFFER,
            "send and receive buffer overlap; pass MPI.IN_PLACE, or separate buffers",
        )


def pack(message: Message | None, packed: MPI.buffer) -> None:
    """Copy the data of all parts, one after the other, into `packed`."""
    for data, typed in _packed_parts(message, packed):
        private_self().Sendrecv(typed, 0, 0, data, 0, 0)


def unpack(message: Message | None, packed: MPI.buffer) -> None:
    """Copy the data in `packed` to all parts."""
    for data, typed in _packed_parts(message, packed):
        private_self().Sendrecv(data, 0, 0, typed, 0, 0)


def _packed_parts(
    message: Message | None, packed: MPI.buffer
) -> Iterator[tuple[MPI.buffer, list[Any]]]:
    """For each part (cut where it is too large for a message) its packed and its typed form."""
    assert message is not None
    done = 0
    for part in message.parts:
        size, extent = part.kind.size, part.kind.extent
        most = max(LARGEST_MESSAGE // size, 1) if size else 0
        for first in range(0, part.count if size else 0, most or 1):
            count = min(most, part.count - first)
            data = packed[done : done + count * size]
            yield data, _typed(message, part.offset + first * extent, count, part.kind)
            done += count * size


def _typed(message: Message, offset: int, count: int, kind: Kind) -> list[Any]:
    """What mpi4py takes for `count` elements at `offset`."""
    if kind.datatype is None:
        count, datatype = count * kind.size, MPI.BYTE
    else:
        datatype = kind.datatype
    if message.memory is None and not offset:
        return [MPI.BOTTOM, count, datatype]
    return [MPI.buffer.fromaddress(message.address + offset, 1), count, datatype]
