"""A second opinion: run the schedules of all ranks on numbers, with NumPy, and compare results.

This shares nothing with the verifier but the schedules. The order in which ranks proceed, and
whether a message is read and written early or late in its round, are random. Cells are pairs of
integers, affine maps x -> a x + b modulo a prime: composing them is associative, not commutative.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collx.collectives import Call, Shape, call_of
from collx.neighborhood import Edge
from collx.registry import Algorithm
from collx.schedule import (
    SCRATCH,
    TOKEN,
    Action,
    Combine,
    Copy,
    Recv,
    RecvInts,
    Region,
    Round,
    Schedule,
    Send,
    SendInts,
)

Cells = NDArray[np.int64]
PRIME = 2**31 - 1


def random_cells(dice: np.random.Generator, cells: int) -> Cells:
    return dice.integers(1, PRIME, (cells, 2))


def compose(left: Cells, right: Cells) -> Cells:
    factor = left[:, 0] * right[:, 0] % PRIME
    return np.stack([factor, (left[:, 0] * right[:, 1] + left[:, 1]) % PRIME], axis=1)


def add(left: Cells, right: Cells) -> Cells:
    return (left + right) % PRIME


class Rank:
    """One rank: its memory, its schedule, and the round it is in."""

    def __init__(self, call: Call, schedule: Schedule, dice: np.random.Generator) -> None:
        self.call, self.schedule, self.dice = call, schedule, dice
        self.memory: dict[int, Cells] = {}
        for region in (call.input, call.output):
            for buffer, _, stop in region.pieces:
                old = self.memory.get(buffer, random_cells(dice, 0))
                more = random_cells(dice, max(stop - len(old), 0))
                self.memory[buffer] = np.concatenate([old, more])
        self.heard_of = {call.rank}
        self.done = False
        self.round: Round | None = None
        self.late: list[Callable[[], None]] = []
        self.open: set[int] = set()
        self.messages: dict[int, Cells] = {}
        self.answers: dict[int, tuple[int, ...]] = {}

    def view(self, piece: tuple[int, int, int]) -> Cells:
        buffer, start, stop = piece
        if buffer not in self.memory:
            size = self.call.scratch_sizes[buffer - SCRATCH]
            self.memory[buffer] = random_cells(self.dice, size)
        assert 0 <= start <= stop <= len(self.memory[buffer]), "out of bounds"
        return self.memory[buffer][start:stop]

    def read(self, region: Region) -> Cells:
        return np.concatenate([np.empty((0, 2), np.int64), *map(self.view, region.pieces)])

    def write(self, region: Region, cells: Cells) -> None:
        assert len(region) == len(cells), "sizes differ"
        for piece in region.pieces:
            view = self.view(piece)
            view[:], cells = cells[: len(view)], cells[len(view) :]

    def now_or_late(self, what: Callable[[], None]) -> None:
        if self.dice.random() < 0.5:
            what()
        else:
            self.late.append(what)


class Ranks:
    """All ranks of a call."""

    def __init__(
        self, algorithm: Algorithm, shape: Shape, parameters: Mapping[str, Any], seed: int
    ):
        self.dice = np.random.default_rng(seed)
        self.shape = shape
        self.op = add if shape.commutative else compose
        calls = [call_of(shape, rank) for rank in range(shape.size)]
        self.ranks = [Rank(call, algorithm(call, **parameters), self.dice) for call in calls]
        self.sends: defaultdict[tuple[int, int, int], list[tuple[Rank, Any, Any]]]
        self.sends = defaultdict(list)
        self.receives: defaultdict[tuple[int, int, int], list[tuple[Rank, Any]]]
        self.receives = defaultdict(list)

    def run(self) -> None:
        while not all(rank.done for rank in self.ranks):
            moved = [self.advance(self.ranks[i]) for i in self.dice.permutation(len(self.ranks))]
            if not any(moved):
                raise AssertionError("deadlock")

    def advance(self, rank: Rank) -> bool:
        if rank.done or rank.open:
            return False
        answer = self.finish(rank) if rank.round else None
        try:
            rank.round = rank.schedule.send(answer)  # type: ignore[arg-type]
        except StopIteration:
            rank.done = True
            return True
        self.start(rank, rank.round)
        return True

    def start(self, rank: Rank, round_: Round) -> None:
        rank.answers, rank.messages = {}, {}
        local = [a for a in round_.actions if isinstance(a, (Copy, Combine))]
        rank.now_or_late(lambda: [self.do(rank, action) for action in local] and None)
        heard = frozenset(rank.heard_of)
        posted = [
            self.post(rank, number, action, heard) for number, action in enumerate(round_.actions)
        ]
        for channel in filter(None, posted):
            self.match(channel)

    def post(self, rank: Rank, number: int, action: Action, heard: frozenset[int]) -> Any:
        match action:
            case Send(region, peer, lane) if region or region is TOKEN:
                early = rank.read(region) if self.dice.random() < 0.5 else None
                channel = (rank.call.rank, peer, lane)
                self.sends[channel].append((rank, number, (action, early, heard)))
            case SendInts(_, peer, lane):
                channel = (rank.call.rank, peer, lane)
                self.sends[channel].append((rank, number, (action, None, heard)))
            case Recv(into, peer, lane) if into or into is TOKEN:
                channel = (peer, rank.call.rank, lane)
                self.receives[channel].append((rank, (number, action)))
            case RecvInts(_, peer, lane):
                channel = (peer, rank.call.rank, lane)
                self.receives[channel].append((rank, (number, action)))
            case _:
                return None
        rank.open.add(number)
        return channel

    def match(self, channel: tuple[int, int, int]) -> None:
        """The k-th send of a channel goes to the k-th receive of it."""
        while self.sends[channel] and self.receives[channel]:
            source, sent, (send, early, heard) = self.sends[channel].pop(0)
            to, (number, recv) = self.receives[channel].pop(0)
            source.open.remove(sent)
            to.open.remove(number)
            to.heard_of |= heard
            if isinstance(send, SendInts):
                assert len(send.values) == recv.count, "sizes differ"
                to.answers[number] = send.values
                continue
            cells = source.read(send.region) if early is None else early
            assert len(cells) == len(recv.into), "sizes differ"
            if recv.combining:
                to.messages[number] = cells
            else:
                to.now_or_late(lambda to=to, recv=recv, cells=cells: to.write(recv.into, cells))

    def finish(self, rank: Rank) -> list[tuple[int, ...]]:
        self.dice.shuffle(rank.late)  # type: ignore[arg-type]
        for what in rank.late:
            what()
        rank.late = []
        for number, recv in enumerate(rank.round.actions if rank.round else ()):
            if number in rank.messages:
                left, right = (
                    rank.messages[number] if region is None else rank.read(region)
                    for region in (recv.left, recv.right)  # type: ignore[union-attr]
                )
                rank.write(recv.into, self.op(left, right))  # type: ignore[union-attr]
        return [rank.answers[number] for number in sorted(rank.answers)]

    def do(self, rank: Rank, action: Copy | Combine) -> None:
        if isinstance(action, Copy):
            rank.write(action.into, rank.read(action.source))
        else:
            rank.write(action.into, self.op(rank.read(action.left), rank.read(action.right)))


def expected(shape: Shape, inputs: list[Cells], op: Callable[[Cells, Cells], Cells]) -> list[Any]:
    """What MPI says that each rank must have at the end; None where it says nothing."""
    size, root = shape.size, shape.root
    nothing = [None] * size
    cuts = list(accumulate(shape.sizes))[:-1]
    match shape.collective:
        case "barrier":
            return nothing
        case "bcast":
            return [inputs[root]] * size
        case "gather":
            return [np.concatenate(inputs) if rank == root else None for rank in range(size)]
        case "scatter":
            return np.split(inputs[root], cuts)
        case "allgather":
            return [np.concatenate(inputs)] * size
        case "alltoall":
            blocks = [
                np.split(cells, list(accumulate(shape.pair(rank, to) for to in range(size)))[:-1])
                for rank, cells in enumerate(inputs)
            ]
            return [np.concatenate([of_one[rank] for of_one in blocks]) for rank in range(size)]
        case "reduce":
            return [reduce(op, inputs) if rank == root else None for rank in range(size)]
        case "allreduce":
            return [reduce(op, inputs)] * size
        case "reduce_scatter":
            return np.split(reduce(op, inputs), cuts)
        case "scan":
            return list(accumulate(inputs, op))
        case "exscan":
            return [None, *list(accumulate(inputs, op))[:-1]]
        case "neighbor_allgather":
            return [
                joined([inputs[edge.rank] for edge in near.sources if edge])
                for near in shape.neighbors
            ]
        case "neighbor_alltoall":
            return [
                joined([along(shape, inputs, rank, edge) for edge in near.sources if edge])
                for rank, near in enumerate(shape.neighbors)
            ]
    return [between_groups(shape, inputs, op, rank) for rank in range(size)]


def joined(parts: Sequence[Cells]) -> Cells:
    return np.concatenate([np.empty((0, 2), np.int64), *parts])


def along(shape: Shape, inputs: list[Cells], rank: int, edge: Edge) -> Cells:
    """The block that a neighbour has for a rank."""
    start = 0
    for target in filter(None, shape.neighbors[edge.rank].targets):
        stop = start + shape.sizes[(edge.rank + target.rank + target.lane) % shape.size]
        if target == (rank, edge.lane):
            return inputs[edge.rank][start:stop]
        start = stop
    raise AssertionError("an edge has one end only")


def between_groups(
    shape: Shape, inputs: list[Cells], op: Callable[[Cells, Cells], Cells], rank: int
) -> Cells | None:
    """What a rank gets from the other group of an inter-communicator."""
    low, root = shape.low, shape.root
    here, there = [range(low), range(low, shape.size)][:: 1 if rank < low else -1]
    place, sizes = here.index(rank), [shape.sizes[q] for q in here]
    theirs = [inputs[q] for q in there]
    match shape.collective:
        case "inter_bcast" if root in there:
            return inputs[root]
        case "inter_scatter" if root in there:
            return np.split(inputs[root], list(accumulate(sizes))[:-1])[place]
        case "inter_gather" if rank == root:
            return np.concatenate(theirs)
        case "inter_reduce" if rank == root:
            return reduce(op, theirs)
        case "inter_allgather":
            return np.concatenate(theirs)
        case "inter_allreduce":
            return reduce(op, theirs)
        case "inter_reduce_scatter":
            return np.split(reduce(op, theirs), list(accumulate(sizes))[:-1])[place]
        case "inter_alltoall":
            cuts = {q: list(accumulate(shape.pair(q, to) for to in here))[:-1] for q in there}
            return np.concatenate([np.split(inputs[q], cuts[q])[place] for q in there])
    return None


def wrong(algorithm: Algorithm, shape: Shape, parameters: Mapping[str, Any], seed: int) -> str:
    """What goes wrong when all ranks run, or ''."""
    ranks = Ranks(algorithm, shape, parameters, seed)
    sources = [
        rank.call.output if shape.collective == "bcast" else rank.call.input for rank in ranks.ranks
    ]
    inputs = [rank.read(source) for rank, source in zip(ranks.ranks, sources, strict=True)]
    try:
        ranks.run()
    except (AssertionError, IndexError) as error:
        return str(error) or "failed"
    for rank, result in enumerate(expected(shape, inputs, ranks.op)):
        found = ranks.ranks[rank].read(ranks.ranks[rank].call.output)
        if result is not None and not np.array_equal(found, result):
            return f"rank {rank} has {found.tolist()} and not {result.tolist()}"
        if (
            not shape.in_place
            and not np.array_equal(
                ranks.ranks[rank].read(ranks.ranks[rank].call.input), inputs[rank]
            )
            and shape.collective != "bcast"
        ):
            return f"rank {rank} has changed its input"
        heard_of, everybody = ranks.ranks[rank].heard_of, set(range(shape.size))
        others = {q for q in everybody if (q < shape.low) != (rank < shape.low) or not shape.low}
        if shape.collective.endswith("barrier") and not heard_of >= others:
            return f"rank {rank} heard only of {heard_of}"
    return ""
