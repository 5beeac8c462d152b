"""Time the native collective and the algorithms in turn, repetition by repetition."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from collx.bench.candidates import Candidate, Facts, block_sizes, choices, distinct, spread
from collx.bench.problems import Problem
from collx.bench.validation import Session, Trial, Validated, judge
from collx.environment import native_path
from collx.registry import find
from collx.statistics import FEWEST, median

WARM_UPS = 5
"""Calls before the first sample, where time allows: MPICH changes its way at the 5th call."""
_AT_ONCE = 4
"""Candidates that are looked at between two exchanges."""
_FOR_SAMPLES = 0.6
"""Part of a row's time that looking leaves for repetitions."""
_BATCH = 0.5
"""Seconds of samples between two exchanges."""


@dataclass(eq=False)
class Cell:
    """One candidate at one size.

    Attributes
    ----------
    call
        The call, ready to be made.
    estimate : float
        Seconds that a repetition takes, as far as known.
    warm_ups : int
        Calls before the first sample.
    maxima, spreads : list of int
        For each repetition the time of the slowest rank, and how far apart the ranks started (where
        they have a common clock), in nanoseconds.
    """

    candidate: Candidate
    call: Callable[[], Any]
    estimate: float = 0.0
    warm_ups: int = 0
    maxima: list[int] = field(default_factory=list)
    spreads: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Row:
    """One collective at one size: what was measured, and what was left out for lack of time.

    Attributes
    ----------
    native_way : str
        Which algorithm the MPI library takes, as far as it tells.
    own : Candidate
        What collx chooses.
    cells : list of Cell
        Those that have samples.
    cut : list of str
        Names of candidates that were tried and then left for being slow.
    unseen : list of str
        Names of candidates that there was no time to try.
    """

    collective: str
    nbytes: int
    own: Candidate
    native_way: str = ""
    cells: list[Cell] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def cell(self, candidate: Candidate) -> Cell | None:
        """The cell of a candidate, if it was measured."""
        return next((cell for cell in self.cells if cell.candidate == candidate), None)

    @property
    def native(self) -> Cell | None:
        """The cell of the native collective."""
        return self.cell(Candidate(self.collective))

    @property
    def best(self) -> Cell | None:
        """The fastest of collx's algorithms."""
        own = [cell for cell in self.cells if cell.candidate.choice]
        return min(own, key=lambda cell: median(cell.maxima), default=None)


class Task(NamedTuple):
    """A row to be measured."""

    collective: str
    sizes: tuple[int, ...]
    nbytes: int


class Sweep:
    """All rows, as many as time allows.

    Parameters
    ----------
    session, validated
        What is run, and how long it took when it was validated.
    show
        Called with a line on the progress.
    """

    def __init__(self, session: Session, validated: Validated, show: Callable[[str], None]) -> None:
        self.session, self.show = session, show
        self.seconds = dict(validated.seconds)
        self.dice = random.Random(session.options.seed)
        self.rows: list[Row] = []
        self.barrier = 0.0  # seconds of a repetition besides the call, as last measured

    def run(self) -> list[Task]:
        """Measure; the tasks that there was no time for."""
        tasks, later = self.affordable(self.tasks())
        gc.collect()
        gc.freeze()
        while tasks and self.session.left() > self.least(tasks[0]) / 2:
            share = tasks[0].nbytes + _FLAT
            whole = sum(task.nbytes + _FLAT for task in tasks)
            self.measure(tasks.pop(0), self.session.left() * share / whole)
        self.rows.sort(key=lambda row: (_order(self.session)[row.collective], row.nbytes))
        return tasks + later

    def tasks(self) -> list[Task]:
        """All collectives at all sizes, the sizes in the order of `spread`."""
        options, itemsize = self.session.options, self.session.data.dtype.itemsize
        tasks = []
        for nbytes in spread(options.sizes):
            for name in self.session.collectives:
                sizes = block_sizes(name, -(-nbytes // itemsize), self.session.size)
                tasks.append(Task(name, tuple(sizes), sum(sizes) * itemsize))
        return list(dict.fromkeys(tasks))

    def affordable(self, tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
        """Take as many tasks as time allows, one at least; the rest is for later."""
        costs = accumulate(self.least(task) for task in tasks)
        number = max(sum(cost < self.session.left() for cost in costs), 1)
        return sorted(tasks[:number], key=lambda task: task.nbytes), [*tasks[number:]]

    def least(self, task: Task) -> float:
        """Seconds for the least worth measuring: native and own choice, few repetitions."""
        known = [s for candidate, s in self.seconds.items() if candidate[0] == task.collective]
        return 2 * (2 + FEWEST) * median(known or [0.0])

    def measure(self, task: Task, allowance: float) -> None:
        """Measure one row."""
        session = self.session
        problem = session.problem(task.collective, task.sizes)
        facts = Facts(problem)
        row = Row(task.collective, task.nbytes, facts.own(), self.native_way(task))
        end = session.meeting.elapsed + allowance
        cells = self.look(row, self.candidates(facts, row.own), problem, end)
        cells = self.keep(row, cells, problem, end)
        self.warm_up(cells, end)
        self.repeat(cells, end)
        row.cells = [cell for cell in cells if cell.maxima]
        self.rows.append(row)

    def native_way(self, task: Task) -> str:
        """Which way the MPI library goes."""
        blocks = task.collective in ("allgather", "reduce_scatter_block")
        nbytes = task.nbytes // self.session.size if blocks else task.nbytes
        return native_path(task.collective, nbytes, self.session.size, self.session.one_node)

    def candidates(self, facts: Facts, own: Candidate) -> list[Candidate]:
        """Native and own choice, then what was validated and takes the call, fastest first."""
        name = facts.collective
        rest = [
            candidate
            for choice in choices(name, self.session.options.algorithms)
            if (candidate := Candidate(name, choice)) in self.seconds
            and facts.take(find(name, choice)[0])
        ]
        rest.sort(key=lambda candidate: self.seconds[candidate])
        order = distinct([Candidate(name), own, *rest])
        return [candidate for candidate in order if candidate not in self.session.excluded]

    def look(
        self, row: Row, candidates: Sequence[Candidate], problem: Problem, end: float
    ) -> list[Cell]:
        """Check candidates at this size and see how long they take, while there is time.

        At first native and own choice, later some at once. Time is kept for the fewest repetitions.
        """
        until = end - _FOR_SAMPLES * (end - self.session.meeting.elapsed)
        cells = self._look(candidates[:2], problem)
        for first in range(2, len(candidates), _AT_ONCE):
            some = candidates[first : first + _AT_ONCE]
            if self.session.meeting.elapsed < min(until, end - FEWEST * self._each(cells)):
                cells += self._look(some, problem)
            else:
                row.unseen += [candidate.name for candidate in some]
        return cells

    def _look(self, some: Sequence[Candidate], problem: Problem) -> list[Cell]:
        judge(self.session, [Trial(candidate, problem) for candidate in some])
        good = [candidate for candidate in some if candidate not in self.session.excluded]
        cells = [Cell(candidate, self._bound(candidate, problem)) for candidate in good]
        self.sample(cells, 1)
        for cell in cells:
            cell.estimate, cell.warm_ups = cell.maxima.pop() / 1e9, 2
            cell.spreads.clear()
            self.seconds[cell.candidate] = cell.estimate
        return cells

    def _bound(self, candidate: Candidate, problem: Problem) -> Callable[[], Any]:
        return candidate.bind(self.session.places.of(candidate.collective), problem)

    def keep(self, row: Row, cells: Sequence[Cell], problem: Problem, end: float) -> list[Cell]:
        """Cut the slow ones if there is no time for the fewest repetitions of all."""
        left = end - self.session.meeting.elapsed
        first = {Candidate(row.collective), row.own}
        kept = []
        for cell in sorted(cells, key=lambda c: (c.candidate not in first, c.estimate)):
            left -= FEWEST * (cell.estimate + self.barrier)
            if left > 0 or cell.candidate in first:
                kept.append(cell)
                cell.call = self._bound(cell.candidate, problem)
            else:
                row.cut.append(cell.candidate.name)
        return kept

    def warm_up(self, cells: Sequence[Cell], end: float) -> None:
        """Bring each cell to `WARM_UPS` calls if that leaves time for the fewest repetitions."""
        left = end - self.session.meeting.elapsed
        each = sum(cell.estimate + self.barrier for cell in cells)
        calls = min(WARM_UPS - 2, int(left / each - FEWEST)) if each else WARM_UPS - 2
        for _ in range(calls):
            for cell in cells:
                self._doing(cell)
                cell.call()
                cell.warm_ups += 1

    def repeat(self, cells: Sequence[Cell], end: float) -> None:
        """Take samples in batches until there are enough or time is up; one at least."""
        wanted = self.session.options.repetitions
        done, start = 0, self.session.meeting.elapsed
        while done < wanted and (not done or self.session.meeting.elapsed < end):
            each = (self.session.meeting.elapsed - start) / done if done else self._each(cells)
            left = min(end - self.session.meeting.elapsed, _BATCH)
            count = max(1, min(wanted - done, int(left / each) if each else wanted))
            self.sample(cells, count)
            done += count

    def _each(self, cells: Iterable[Cell]) -> float:
        return sum(cell.estimate + self.barrier for cell in cells)

    def sample(self, cells: Sequence[Cell], count: int) -> None:
        """Take `count` samples of each cell, in a new order each time."""
        before = self.session.meeting.elapsed
        times = np.array([self._in_turn(cells) for _ in range(count)], np.int64)
        start, stop = times[..., 0], times[..., 1]
        both = np.stack([stop - start, start, -start])
        seen = self.session.meeting.maximum(both.ravel()).reshape(both.shape)
        for index, cell in enumerate(cells):
            cell.maxima += seen[0, :, index].tolist()
            cell.spreads += (seen[1] + seen[2])[:, index].tolist()
        spent = self.session.meeting.elapsed - before - float(seen[0].sum()) / 1e9
        self.barrier = max(spent, 0.0) / max(count * len(cells), 1)

    def _in_turn(self, cells: Sequence[Cell]) -> list[tuple[int, int]]:
        """One repetition: start and stop of each cell on this rank."""
        order = self.dice.sample(range(len(cells)), len(cells))
        times = [(0, 0)] * len(cells)
        gc.disable()
        for index in order:
            self._doing(cells[index])
            times[index] = _timed(cells[index].call, self.session.meeting.barrier)
        gc.enable()
        return times

    def _doing(self, cell: Cell) -> None:
        self.session.guard.doing = f"{cell.candidate.collective} {cell.candidate.name} (timing)"


_FLAT = 512 * 1024
"""What a row weighs besides its bytes, when time is shared out."""


def _timed(call: Callable[[], Any], barrier: Callable[[], None]) -> tuple[int, int]:
    now = time.perf_counter_ns
    barrier()
    start = now()
    call()
    return start, now()


def _order(session: Session) -> dict[str, int]:
    return {name: place for place, name in enumerate(session.options.collectives)}
