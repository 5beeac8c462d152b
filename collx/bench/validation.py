"""Every algorithm against what must come out, outside of any timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from collx.bench.candidates import (
    Candidate,
    Facts,
    block_sizes,
    choices,
    distinct,
    fitting,
    uneven_sizes,
)
from collx.bench.contents import Data
from collx.bench.meeting import Guard, Meeting
from collx.bench.options import BUDGET, LEAST_BUDGET, Options
from collx.bench.places import Places, base
from collx.bench.problems import Problem
from collx.environment import describe
from collx.registry import NeedsError, find

RIGHT, NOT_TAKEN, WRONG, RAISED = 0, 1, 2, 3
_GROUP = 0.5
"""Seconds from one exchange of verdicts to the next."""
_FOR_TIMING, _FOR_TIMING_AND_MORE = 0.3, 0.5
"""Parts of the budget that the first pass over all algorithms, and later ones, leave."""
_LATE = 0.005
"""Seconds that one rank comes late to a barrier."""
_NEVER = 2**62


class Failure(NamedTuple):
    """A wrong result: of what, in which call, on which rank, and what was wrong."""

    collective: str
    algorithm: str
    where: str
    rank: int
    fault: str

    def __str__(self) -> str:
        collective, algorithm, where, rank, fault = self
        return f"{collective} {algorithm} ({where}): rank {rank}: {fault}"


class Session:
    """What all parts of a run on one rank share.

    Attributes
    ----------
    world, places
        The communicator given; those to run on, with the MPI's own collectives and with collx's.
    collectives : list of str
        What is asked for and possible with so many ranks.
    failures : list of Failure
        Equal on all ranks.
    budget : float
        Seconds for validation and timing.
    excluded : set of Candidate
        Candidates not to run (again): wrong, or not defined for the element type.
    """

    def __init__(self, world: MPI.Intracomm, options: Options) -> None:
        self.world, self.options = world, options
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self.guard = Guard(world, options.timeout)
        self.info: dict[str, Any] = describe(world)
        self.meeting = Meeting(world, bool(self.info.get("oversubscribed")))
        self.collectives = fitting(options.collectives, self.size)
        self.places = Places(world, self.collectives)
        self.data = Data(self.size, np.dtype(options.dtype), options.op, options.seed)
        self.failures: list[Failure] = []
        self.excluded: set[Candidate] = set()
        nodes: Any = self.info.get("nodes", ())
        self.one_node = len(nodes) == 1
        self.meeting.maximum()
        spare = max(BUDGET - self.meeting.elapsed, LEAST_BUDGET)
        self.budget = options.budget or spare
        self._end = self.meeting.elapsed + self.budget

    def left(self) -> float:
        """Seconds of the budget that were left at the last exchange."""
        return self._end - self.meeting.elapsed

    def problem(
        self, collective: str, sizes: Sequence[int], root: int = 0, in_place: bool = False
    ) -> Problem:
        """A problem with the contents of this run."""
        return Problem(self.data, self.rank, collective, sizes, root, in_place)


class Trial(NamedTuple):
    """One call to be checked."""

    candidate: Candidate
    problem: Problem


class Verdict(NamedTuple):
    """What one rank saw of a trial.

    Attributes
    ----------
    code : int
        RIGHT, NOT_TAKEN, WRONG or RAISED.
    fault : str
        What was wrong.
    nanoseconds : int
        How long it took.
    entered, left : int
        When, in nanoseconds, where no rank may leave before all have entered.
    checksums : tuple of int
        That of the result and its negative, for ranks of the first group and of the second one.
    """

    code: int
    fault: str = ""
    nanoseconds: int = 0
    entered: int = 0
    left: int = 0
    checksums: tuple[int, ...] = (-_NEVER,) * 4


class Seen(NamedTuple):
    """Verdicts of all ranks on a trial: maxima."""

    code: int
    nanoseconds: int
    entered: int
    negative_left: int
    checksums: tuple[int, ...]

    @property
    def differ(self) -> bool:
        """Whether the results of the ranks of a group differ."""
        most, negative_least = self.checksums[::2], self.checksums[1::2]
        return any(a + b > 0 for a, b in zip(most, negative_least, strict=True))

    @property
    def overlap(self) -> bool:
        """Whether all had entered before the first one left (by a common clock)."""
        return self.entered <= -self.negative_left


def attempt(session: Session, trial: Trial) -> Verdict:
    """Make a call once and look at what came out."""
    candidate, problem = trial
    session.guard.doing = f"{candidate.collective} {candidate.name} ({problem.where})"
    problem.reset()
    if base(candidate.collective) == "barrier" and session.rank == session.size // 2:
        time.sleep(_LATE)
    entered = time.perf_counter_ns()
    try:
        candidate.bind(session.places.of(candidate.collective), problem)()
    except Exception as error:
        return _failed(session, candidate, error)
    left, fault = time.perf_counter_ns(), problem.fault()
    code, times = WRONG if fault else RIGHT, _across(problem, entered, left)
    return Verdict(code, fault, left - entered, *times, _checksums(problem))


def _across(problem: Problem, entered: int, left: int) -> tuple[int, int]:
    """Of two groups, when the upper one entered, which has the late rank, and the lower one left.

    A rank waits for the other group only.
    """
    if not problem.row.inter:
        return entered, left
    return (0, left) if problem.rank < problem.shape.low else (entered, _NEVER)


def _checksums(problem: Problem) -> tuple[int, ...]:
    """Checksum and negative in the place of the own group."""
    own, none = (problem.checksum(), -problem.checksum()), (-_NEVER, -_NEVER)
    return own + none if problem.at.local.start == 0 else none + own


def _failed(session: Session, candidate: Candidate, error: Exception) -> Verdict:
    """Tell refusals, which all ranks share, from failures, which may leave other ranks waiting."""
    fault = f"{type(error).__name__}: {error}"
    if isinstance(error, NeedsError):
        return Verdict(NOT_TAKEN)
    if candidate.choice is None and isinstance(error, (KeyError, TypeError)):
        return Verdict(NOT_TAKEN, fault)  # the MPI library has no such element type
    session.guard.hurry(f"{candidate.collective} {candidate.name} failed with {fault}")
    return Verdict(RAISED, fault)


def judge(session: Session, trials: Sequence[Trial]) -> list[Seen]:
    """Make calls and exchange verdicts; failures are noted in the session."""
    verdicts = [attempt(session, trial) for trial in trials]
    mine = [(v.code, v.nanoseconds, v.entered, -v.left, *v.checksums) for v in verdicts]
    worst = session.meeting.maximum(np.array(mine, np.int64).ravel()).reshape(-1, 8)
    seen = [Seen(a, b, c, d, tuple(sums)) for a, b, c, d, *sums in worst.tolist()]
    common = [_common_fault(session, *pair) for pair in zip(trials, seen, strict=True)]
    if any(common) or any(one.code for one in seen):
        session.guard.relax()
        told = session.world.allgather([verdict[:2] for verdict in verdicts])
        for index, trial in enumerate(trials):
            _note(session, trial, [some[index] for some in told])
            if common[index]:
                _note(session, trial, [(WRONG, common[index])])
        if any(common) or any(one.code >= WRONG for one in seen):
            session.places.renew()
    return seen


def _common_fault(session: Session, trial: Trial, seen: Seen) -> str:
    """What only all ranks together can see, or `""`."""
    if seen.code != RIGHT:
        return ""
    if trial.candidate.same_bits and seen.differ:
        return "the results of the ranks are not equal bit for bit"
    if base(trial.candidate.collective) == "barrier" and session.one_node and not seen.overlap:
        return "a rank left before another one had entered"
    return ""


def _note(session: Session, trial: Trial, told: Sequence[tuple[int, str]]) -> None:
    """Record on all ranks that a candidate failed or refused, from each rank's code and fault."""
    candidate, (worst, fault) = trial.candidate, max(told, key=itemgetter(0))
    if worst != RIGHT:
        session.excluded.add(candidate)
    if worst >= WRONG:
        ranks = [rank for rank, (code, _) in enumerate(told) if code >= WRONG]
        first = next(rank for rank in ranks if told[rank][0] == worst)
        more = f" (wrong on {len(ranks)} ranks)" if len(ranks) > 1 else ""
        where = trial.problem.where
        session.failures.append(
            Failure(candidate.collective, candidate.name, where, first, fault + more)
        )


def variants(session: Session, collective: str) -> list[Problem]:
    """The small problems on which algorithms are checked: an odd one, and the smallest in place."""
    few = block_sizes(collective, 1, session.size)
    if base(collective) == "barrier":
        return [session.problem(collective, few)]
    uneven, middle = uneven_sizes(collective, session.size), session.size // 2
    first = session.problem(collective, uneven, root=middle)
    return [first, session.problem(collective, few, in_place=True)]


def passes(session: Session) -> Iterator[list[Trial]]:
    """All trials in passes, each with the collectives in turn.

    First all algorithms with default parameters (or those asked for) on the first problem, then on
    the second; then parameter values on both.
    """
    problems = [variants(session, name) for name in session.collectives]
    for defaults in (True, False):
        for some in zip_longest(*problems):
            columns = [list(_trials(session, problem, defaults)) for problem in some if problem]
            yield [trial for row in zip_longest(*columns) for trial in row if trial]


def _trials(session: Session, problem: Problem, defaults: bool) -> Iterator[Trial]:
    """The candidates that take the problem."""
    name, wanted, facts = problem.collective, session.options.algorithms, Facts(problem)
    some = [c for c in choices(name, wanted) if defaults == (bool(wanted) or not c.items)]
    candidates = [Candidate(name, choice) for choice in some]
    if defaults:
        candidates = [Candidate(name), facts.own(), *candidates]
    for candidate in distinct(candidates):
        if not candidate.choice or facts.take(find(name, candidate.choice)[0]):
            yield Trial(candidate, problem)


class Validated(NamedTuple):
    """What came of the validation, equal on all ranks.

    Attributes
    ----------
    seconds : dict
        For each candidate that was run, how long a call took.
    tried, planned : int
        Trials.
    """

    seconds: dict[Candidate, float]
    tried: int
    planned: int


def validate(session: Session, show: Callable[[str], None]) -> Validated:
    """Check candidates until all is done, or only so much time is left as timing needs."""
    first, *more = [*passes(session)] or [[]]
    planned = [trial for trials in (first, *more) for trial in trials]
    seconds: dict[Candidate, float] = {}
    session.meeting.maximum()
    start, tried = session.meeting.elapsed, 0
    while tried < len(planned):
        part = _FOR_TIMING_AND_MORE if tried >= len(first) else _FOR_TIMING
        if tried and session.left() < part * session.budget:
            break
        each = (session.meeting.elapsed - start) / tried if tried else _GROUP / 4
        group = planned[tried : tried + max(1, int(_GROUP / each))]
        tried += len(group)
        some = [trial for trial in group if trial.candidate not in session.excluded]
        for trial, seen in zip(some, judge(session, some), strict=True):
            seconds[trial.candidate] = seen.nanoseconds / 1e9
        show(f"validated {tried} of {len(planned)} calls, {len(session.failures)} wrong")
    return Validated(seconds, tried, len(planned))
