"""From the arguments of a call to something that can be run, and run again.

`prepare` reads the arguments, chooses the algorithm and makes (or finds) the plan. What it gives is
an `Entry`, which can be called again with other buffers of the same layout.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import copy_context
from typing import Any

import numpy as np
from mpi4py import MPI

from collx.arguments import Arguments, Sides, read
from collx.buffers import Message, Packing
from collx.check import check, rehearse
from collx.choice import Choice
from collx.choose import Decision, decide, settings
from collx.collectives import COLLECTIVES, Call
from collx.engine import Plan
from collx.layout import (
    Layout,
    check_apart,
    element_memory,
    lay_out,
    pack,
    place,
    span,
    unpack,
)
from collx.operators import Operator, operator_for
from collx.progress import run
from collx.registry import Need, find
from collx.schedule import Schedule
from collx.state import State

STAGED_BYTES = 4096
"""Calls of at most this many bytes run in buffers of their own, with persistent requests."""
STAGED_REQUESTS = 64
"""... if they need no more than this many requests."""

_NOTHING = MPI.buffer.allocate(0)


class Entry:
    """A prepared call.

    Parameters
    ----------
    plan
        What to run.
    layout
        Where its cells are.
    """

    def __init__(
        self,
        state: State,
        plan: Plan,
        layout: Layout,
        arguments: Arguments,
        decision: Decision,
        sides: Sides,
    ) -> None:
        self.state, self.plan, self.layout = state, plan, layout
        self.decision = decision
        self._input_place, self._output_place = map(place, sides)
        self._combines = plan.operator is not None
        self.kept = (arguments.op, arguments.algorithm)
        self.at_root = state.rank == arguments.root
        self._only_reads = arguments.collective == "bcast" and self.at_root
        self._inside = _quietly() if plan.operator is not None and plan.operator.warns else _plainly

    @property
    def on_arrays(self) -> bool:
        """Whether it can be called on other arrays: not if a type has gaps."""
        packings = (self.layout.input_packing, self.layout.output_packing)
        return not self.layout.cells.gaps and not any(p is not None and p.packed for p in packings)

    def run(self, sides: Sides) -> None:
        """Run on the buffers of parsed arguments."""
        input = self._memory(sides.input, self.layout.input_packing)
        output = self._memory(sides.output, self.layout.output_packing)
        if sides.input is not None and sides.output is not None:
            check_apart(span(sides.input), span(sides.output))
        sent, received = self.layout.input_packing, self.layout.output_packing
        if sent is not None and sent.packed:
            pack(sides.input, input)
        bcast_root = self.layout.output and sides.input is None
        if received is not None and received.packed and bcast_root:
            pack(sides.output, output)
        self._run(input, output)
        if received is not None and received.packed:
            unpack(sides.output, output)

    def _memory(self, message: Message | None, packed: Packing | None) -> MPI.buffer:
        """The memory whose beginning is cell 0."""
        if message is None:
            return _NOTHING
        if packed is not None:
            if packed.packed:
                return MPI.buffer.frombuffer(np.empty(packed.nbytes, np.uint8))
            assert message.memory is not None
            return message.memory
        return element_memory(message)

    def _run(self, input: MPI.buffer, output: MPI.buffer) -> None:
        self._inside(self.plan.run_direct, self.state.comm, input, output)

    def __call__(self, send: Any, recv: Any) -> None:
        """Run on arrays of the layout that this entry was made for."""
        input, output = _NOTHING, _NOTHING
        read, written = self._input_place, self._output_place
        if read is not None:
            input = MPI.buffer.frombuffer(send, True)
        if written is not None:
            output = MPI.buffer.frombuffer(recv, self._only_reads)
            if read is not None:
                at, to = input.address, output.address
                check_apart((at + read[0], at + read[1]), (to + written[0], to + written[1]))
        if self._combines:  # cell 0 is where the elements begin, otherwise where the buffer does
            input = input[read[0] :] if read and read[0] else input
            output = output[written[0] :] if written and written[0] else output
        self._run(input, output)

    def free(self) -> None:
        """Give back what MPI holds."""


def _plainly(function: Callable[..., None], *arguments: Any) -> None:
    function(*arguments)


def _quietly() -> Callable[..., None]:
    """Something that calls a function in a context where NumPy does not warn about values."""
    context = copy_context()
    context.run(np.seterr, all="ignore")
    return context.run


class Staged(Entry):
    """A prepared small call on buffers of its own, with persistent requests."""

    def __init__(self, entry: Entry, arguments: Arguments, sides: Sides) -> None:
        state, plan = entry.state, entry.plan
        super().__init__(state, plan, entry.layout, arguments, entry.decision, sides)
        self._input, self._output = _copy_of(arguments.send), _copy_of(arguments.recv)
        writes = self._output is not None
        in_part = COLLECTIVES[arguments.collective].sparse
        self._loads_output = writes and (arguments.in_place or self._only_reads or in_part)
        self._stores = writes and not self._only_reads
        memory = [
            _NOTHING if array is None else MPI.buffer.frombuffer(array)
            for array in (self._input, self._output)
        ]
        self._phases = plan.stage(state.comm, *memory)

    def __call__(self, send: Any, recv: Any) -> None:
        """Copy in, run, copy out."""
        if self._input is not None:
            self._input[...] = send
        if self._loads_output:
            self._output[...] = recv
        self._inside(run, self._phases.waits())
        if self._stores:
            recv[...] = self._output

    def free(self) -> None:
        """Free the persistent requests."""
        for phase in self._phases:
            for request in phase.requests:
                request.Free()
        self._phases.clear()


def _copy_of(buffer: Any) -> Any:
    return np.empty_like(buffer) if type(buffer) is np.ndarray else None


def prepare(state: State, arguments: Arguments) -> tuple[Entry, Sides]:
    """Read the arguments of a call and make it ready to run.

    Raises
    ------
    ValueError, TypeError, KeyError
        If a buffer specification is wrong, or the algorithm does not exist or cannot take the
        call.
    MPI.Exception
        If the root is out of range or the operator is not defined for the datatype.
    """
    if COLLECTIVES[arguments.collective].sparse:
        arguments = arguments._replace(neighbors=state.neighbors)
    sides = read(arguments, state.rank, state.size)
    key = _key(arguments, sides)
    if settings.get().check:
        _check(state, arguments, sides)
    if (entry := state.entries.get(key)) is None:
        entry = _new_entry(state, arguments, sides)
        state.entries.add(key, entry)
    return entry, sides


def _check(state: State, arguments: Arguments, sides: Sides) -> None:
    layout = lay_out(arguments, sides, state.rank, state.size)
    check(state, arguments, layout, _call(state, arguments, layout, None))


def _key(arguments: Arguments, sides: Sides) -> Hashable:
    """What a prepared call depends on."""
    parts = [
        tuple((part.count, part.offset, part.kind.key) for part in side.parts) if side else None
        for side in sides
    ]
    places = [side is not None and (side.memory is None, side.device) for side in sides]
    return (
        *(arguments.collective, arguments.root, id(arguments.op), str(arguments.algorithm)),
        *(arguments.in_place, tuple(arguments.counts or ()), *parts, *places, settings.get()),
    )


def _new_entry(state: State, arguments: Arguments, sides: Sides) -> Entry:
    layout = lay_out(arguments, sides, state.rank, state.size)
    operator = _operator(arguments, layout)
    call = _call(state, arguments, layout, operator)
    decision = decide(arguments.collective, call, arguments.algorithm)
    plan = _plan(state, arguments, layout, operator, decision)
    return Entry(state, plan, layout, arguments, decision, sides)


def _operator(arguments: Arguments, layout: Layout) -> Operator | None:
    kind = layout.cells.kind
    if arguments.op is None or kind is None:
        return None
    return operator_for(arguments.op, kind.datatype, kind.dtype)


def _call(
    state: State,
    arguments: Arguments,
    layout: Layout,
    operator: Operator | None,
    nodes: tuple[int, ...] | None = None,
) -> Call:
    return Call(
        COLLECTIVES[arguments.collective].family,
        state.rank,
        state.size,
        arguments.root,
        input=layout.input,
        output=layout.output,
        sizes=layout.sizes,
        commutative=operator.commutative if operator is not None else True,
        cell_bytes=max(layout.cells.unit, 1),
        nodes=nodes,
        low=arguments.low,
        neighbors=arguments.neighbors,
    )


def _plan(
    state: State,
    arguments: Arguments,
    layout: Layout,
    operator: Operator | None,
    decision: Decision,
) -> Plan:
    marked, parameters = find(arguments.collective, decision.choice)
    nodes = state.nodes() if Need.NODE_MAP in marked.needs else None
    if Need.WHOLE_GRAPH in marked.needs:
        arguments = arguments._replace(neighbors=state.whole_graph())

    if any(isinstance(value, (str, Choice)) for _, value in decision.choice.items):
        rehearse(marked, parameters, _call(state, arguments, layout, operator, nodes))

    def generate() -> tuple[Schedule, Callable[[], Sequence[int]]]:
        call = _call(state, arguments, layout, operator, nodes)
        return marked(call, **parameters), lambda: call.scratch_sizes

    return Plan(generate, layout.cells, operator, settings.get().event_driven)


def staged_if_small(entry: Entry, arguments: Arguments, sides: Sides) -> Entry:
    """The same call staged, if it is small and its buffers are simple."""
    plan = entry.plan
    plain = all(_is_plain(buffer) for buffer in (arguments.send, arguments.recv))
    if plan.rounds is None or plan.event_driven or not plain or not entry.on_arrays:
        return entry
    nbytes = sum(_nbytes(buffer) for buffer in (arguments.send, arguments.recv))
    requests = sum(len(round_.actions) for round_ in plan.rounds)
    windows = any(round_.window for round_ in plan.rounds)
    if nbytes > 2 * STAGED_BYTES or requests > STAGED_REQUESTS or windows:
        return entry
    return Staged(entry, arguments, sides)


def _is_plain(buffer: Any) -> bool:
    return type(buffer) is np.ndarray or buffer is None or buffer is MPI.IN_PLACE


def _nbytes(buffer: Any) -> int:
    return buffer.nbytes if type(buffer) is np.ndarray else 0
