"""Run lowered schedules on memory with MPI point-to-point.

A `Plan` is a schedule that was lowered for one shape of call. It runs in one of three ways:
*direct* on the user's memory (bound anew in each call), *staged* through small buffers of its own
with persistent requests, or *live*, round by round while the algorithm generates it, if what it
does depends on data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from mpi4py import MPI

from collx.dependencies import refined
from collx.events import Graph
from collx.lowering import Slots, chunk, lower
from collx.memory import NO_MEMORY, Cells, Storage, at_address, copy_typed
from collx.operators import Operator
from collx.progress import Bound, Operation, Phase, Phases, run
from collx.schedule import (
    INPUT,
    OUTPUT,
    SCRATCH,
    Answer,
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

LARGEST_MESSAGE = 2**31 - 1 if MPI.Get_version()[0] < 4 else 2**40
SMALL_BYTES = 4096
"""Up to this size NumPy combines faster into a third buffer than into an operand."""
KEPT_SCRATCH = 2**26
"""Bytes of scratch that all plans together keep from one call to the next."""


class Binder:
    """Turns lowered rounds into phases on given memory."""

    def __init__(
        self,
        comm: MPI.Comm,
        cells: Cells,
        operator: Operator | None,
        stores: Mapping[int, Storage],
        tag: int = 0,
    ) -> None:
        self.comm, self.cells, self.operator, self.stores = comm, cells, operator, stores
        self.tag = tag
        self.incoming: list[np.ndarray[Any, Any]] = []

    def graph(self, rounds: Iterable[Round]) -> Graph:
        """Bind the actions of rounds, to be started as soon as what they wait for is done."""
        steps = refined(rounds)
        return Graph(steps, [self._bound(step.action) for step in steps])

    def _bound(self, action: Any) -> Bound:
        local = isinstance(action, (Copy, Combine))
        return self._local(action) if local else self._post(action, False)

    def phases(self, rounds: Iterable[Round], *, persistent: bool = False) -> Phases:
        """Bind rounds; with `persistent` transfers become persistent requests."""
        phases = Phases()
        before: list[Bound] = []
        for round_ in rounds:
            local = [self._local(a) for a in round_.actions if isinstance(a, (Copy, Combine))]
            transfers = [a for a in round_.actions if not isinstance(a, (Copy, Combine))]
            if not transfers:
                before += local
                continue
            if not round_.window:  # a window counts in the order that the algorithm lists
                transfers.sort(key=_sends_last)
            posts = [self._post(action, persistent) for action in transfers]
            started = [post(*arguments) for post, arguments in posts] if persistent else []
            phases.append(Phase(before, [] if persistent else posts, started, local, round_.window))
            before = []
        if before:
            phases.append(Phase(before, [], [], [], 0))
        return phases

    def _post(self, action: Any, persistent: bool) -> Bound:
        comm, lane = self.comm, self.tag + action.lane
        match action:
            case Send(region=region, to=to, synchronous=synchronous):
                if synchronous:
                    post = comm.Ssend_init if persistent else comm.Issend
                else:
                    post = comm.Send_init if persistent else comm.Isend
                return post, (self._message(region), to, lane)
            case Recv(into=into, source=source):
                receive = comm.Recv_init if persistent else comm.Irecv
                return receive, (self._message(into), source, lane)
            case SendInts(values=values, to=to):
                return comm.Isend, (np.array(values, np.int64), to, lane)
        numbers = np.empty(action.count, np.int64)
        self.incoming.append(numbers)
        return comm.Irecv, (numbers, action.source, lane)

    def _message(self, region: Region) -> Any:
        """What mpi4py takes for this region."""
        if not region.pieces:
            return NO_MEMORY
        buffer, start, stop = region.pieces[0]
        store, unit = self.stores[buffer], self.cells.unit
        if not self.cells.gaps:
            return store.memory[start * unit : stop * unit]
        return [at_address(store.origin + start * unit), stop - start, self.cells.datatype]

    def _local(self, action: Copy | Combine) -> Bound:
        if isinstance(action, Copy):
            return self._copy(action.into, action.source)
        assert self.operator is not None
        if self.operator.ufunc is not None:
            left, right, into = map(self._array, (action.left, action.right, action.into))
            return self.operator.ufunc, (left, right, into)
        return self._reduce_local(action)

    def _copy(self, into: Region, source: Region) -> Bound:
        if self.cells.gaps:
            return copy_typed, (self._message(into), self._message(source))
        return np.copyto, (self._raw(into), self._raw(source))

    def _raw(self, region: Region) -> np.ndarray[Any, Any]:
        buffer, start, stop = region.pieces[0]
        unit = self.cells.unit
        return self.stores[buffer].raw[start * unit : stop * unit]

    def _array(self, region: Region) -> np.ndarray[Any, Any]:
        buffer, start, stop = region.pieces[0]
        array = self.stores[buffer].array
        assert array is not None
        return array[start:stop]

    def _reduce_local(self, action: Combine) -> Bound:
        """`Op.Reduce_local` combines into its right operand: arrange the operands for that."""
        assert self.operator is not None
        op, commutative = self.operator.op, self.operator.commutative
        into, left, right = action.into, action.left, action.right
        operand = self._operand
        if into == right:
            return op.Reduce_local, (operand(left), operand(into))
        if into == left and commutative:
            return op.Reduce_local, (operand(right), operand(into))
        result = into
        if into == left:
            cells = len(into)
            scratch = self.cells.scratch(cells)
            number = min(self.stores, default=0) - 1_000_000
            self.stores = {**self.stores, number: scratch}
            result = Region((number, 0, cells))
        steps: list[Bound] = [
            self._copy(result, right),
            (op.Reduce_local, (operand(left), operand(result))),
        ]
        if result != into:
            steps.append(self._copy(into, result))
        return _in_turn, (steps,)

    def _operand(self, region: Region) -> list[Any]:
        buffer, start, stop = region.pieces[0]
        assert self.cells.kind is not None
        address = self.stores[buffer].origin + start * self.cells.unit
        return [at_address(address), stop - start, self.cells.kind.datatype]


def _sends_last(action: Any) -> bool:
    """Receives are posted before sends, so that messages find them."""
    return isinstance(action, (Send, SendInts))


def _in_turn(steps: Sequence[Bound]) -> None:
    for function, arguments in steps:
        function(*arguments)


class Plan:
    """A schedule lowered for one shape of call.

    Parameters
    ----------
    generate
        Gives a new schedule of this rank, and the scratch sizes as they grow.
    cells, operator
        What a cell is, and how two are combined.
    event_driven
        Whether actions start as soon as what they wait for is done, and not round by round. (With
        windows, or in schedules that depend on data, they start round by round all the same.)
    """

    kept_bytes = 0

    _kept = 0

    def __init__(
        self,
        generate: Callable[[], tuple[Schedule, Callable[[], Sequence[int]]]],
        cells: Cells,
        operator: Operator | None,
        event_driven: bool = False,
    ) -> None:
        self.cells, self.operator, self._generate = cells, operator, generate
        self.event_driven = event_driven
        self.rounds: list[Round] | None = self._lowered()
        self._scratch: dict[int, Storage] | None = None
        self._bound_to: tuple[int, int] | None = None
        self._bound: Phases | Graph = Phases()

    def _lowered(self) -> list[Round] | None:
        """All rounds lowered, or None if the schedule depends on data."""
        schedule, scratch_sizes = self._generate()
        slots, lowered = Slots(self._small()), []
        for round_ in schedule:
            if any(isinstance(action, (SendInts, RecvInts)) for action in round_.actions):
                schedule.close()
                return None
            lowered += [self._limited(part) for part in lower(round_, slots)]
        self._sizes = _buffer_sizes(scratch_sizes(), slots)
        return lowered

    def _small(self) -> int:
        """Up to how many cells a message is better combined from a buffer of its own."""
        numpy = self.operator is not None and self.operator.ufunc is not None
        return SMALL_BYTES // max(self.cells.unit, 1) if numpy else 0

    def _limited(self, round_: Round) -> Round:
        return chunk(round_, max(LARGEST_MESSAGE // max(self.cells.unit, 1), 1))

    def copy(self) -> Plan:
        """The same plan with scratch of its own, for an operation beside others."""
        other = copy(self)
        other._scratch, other._kept, other._bound_to = None, 0, None
        return other

    def scratch(self) -> dict[int, Storage]:
        """Memory for the scratch buffers, kept while all plans together do not keep too much."""
        if self._scratch is not None:
            return self._scratch
        made = {number: self.cells.scratch(cells) for number, cells in self._sizes.items()}
        nbytes = sum(self._sizes.values()) * max(self.cells.unit, 1)
        if Plan.kept_bytes + nbytes <= KEPT_SCRATCH:
            Plan.kept_bytes += nbytes
            self._scratch, self._kept = made, nbytes
        return made

    def __del__(self) -> None:
        """Let other plans keep scratch instead."""
        Plan.kept_bytes -= self._kept

    def run_direct(self, comm: MPI.Comm, input: MPI.buffer, output: MPI.buffer) -> None:
        """Run on the user's memory."""
        if self.rounds is None:
            stores = {INPUT: self.cells.storage(input), OUTPUT: self.cells.storage(output)}
            self._run_live(comm, stores)
            return
        addresses = (input.address, output.address)
        if addresses != self._bound_to:
            bound = self._bind(comm, _borrowed(input), _borrowed(output))
            if self._scratch is None:
                run(bound.waits())
                return
            self._bound_to, self._bound = addresses, bound
        run(self._bound.waits())

    def _bind(
        self, comm: MPI.Comm, input: MPI.buffer, output: MPI.buffer, tag: int = 0
    ) -> Phases | Graph:
        assert self.rounds is not None
        binder = self._binder(comm, input, output, tag)
        if self.event_driven and not any(round_.window for round_ in self.rounds):
            return binder.graph(self.rounds)
        return binder.phases(self.rounds)

    def _binder(self, comm: MPI.Comm, input: MPI.buffer, output: MPI.buffer, tag: int) -> Binder:
        stores = {INPUT: self.cells.storage(input), OUTPUT: self.cells.storage(output)}
        stores.update(self.scratch())
        return Binder(comm, self.cells, self.operator, stores, tag)

    def _run_live(self, comm: MPI.Comm, stores: dict[int, Storage]) -> None:
        """Run round by round, giving the algorithm the integers that it received."""
        schedule, scratch_sizes = self._generate()
        answer: Answer = None  # type: ignore[assignment]  # what a generator is first sent
        slots = Slots()
        while True:
            try:
                round_ = schedule.send(answer)
            except StopIteration:
                return
            parts = [self._limited(part) for part in lower(round_, slots)]
            for number, cells in _buffer_sizes(scratch_sizes(), slots).items():
                if number not in stores or (number < 0 and self._short(stores[number], cells)):
                    stores[number] = self.cells.scratch(cells)
            binder = Binder(comm, self.cells, self.operator, stores)
            run(binder.phases(parts).waits())
            answer = [tuple(numbers.tolist()) for numbers in binder.incoming]

    def _short(self, store: Storage, cells: int) -> bool:
        return store.memory.nbytes < cells * self.cells.unit

    def operation(
        self, comm: MPI.Comm, input: MPI.buffer, output: MPI.buffer, tag: int
    ) -> Operation:
        """The same as an operation that others may overtake: its messages have tags of its own.

        Parameters
        ----------
        tag
            The first tag; it takes one for each lane (`lanes`). While the operation is under way
            neither its plan nor the memory may be used for another.
        """
        return Operation(self._bind(comm, input, output, tag).waits())

    @property
    def lanes(self) -> int:
        """How many lanes the messages use."""
        lanes = [getattr(a, "lane", 0) for round_ in self.rounds or () for a in round_.actions]
        return max(lanes, default=0) + 1

    def stage(self, comm: MPI.Comm, input: MPI.buffer, output: MPI.buffer) -> Phases:
        """Bind once to memory that stays, with persistent requests."""
        assert self.rounds is not None
        return self._binder(comm, input, output, 0).phases(self.rounds, persistent=True)


def _borrowed(memory: MPI.buffer) -> MPI.buffer:
    """The same memory without keeping its owner alive.

    What is bound to it may only run while somebody else does.
    """
    return MPI.buffer.fromaddress(memory.address, memory.nbytes, memory.readonly)


def _buffer_sizes(scratch_sizes: Sequence[int], slots: Slots) -> dict[int, int]:
    sizes = {SCRATCH + index: cells for index, cells in enumerate(scratch_sizes)}
    return sizes | {-1 - index: cells for index, cells in enumerate(slots.sizes)}
