"""Event-driven progress: every action starts as soon as what it waits for is done.

This is another way to carry out the same schedules. Rounds do not count here; what counts is which
action writes what another one uses (`collx.dependencies`). A tree then sends each segment on to
each child as it comes, whatever the others do (ADAPT; Luo et al. 2018).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence

from mpi4py import MPI

from collx.dependencies import Step
from collx.progress import Bound, OneOf
from collx.schedule import Action, Recv, Send


def channel(action: Action) -> Hashable:
    """What messages that must be posted in order have in common; None for local actions."""
    match action:
        case Send(to=to, lane=lane):
            return "to", to, lane
        case Recv(source=source, lane=lane):
            return "from", source, lane
    return None


class Graph:
    """Bound actions with what each of them waits for.

    Parameters
    ----------
    steps
        The actions in the order of the schedule.
    bound
        For each of them the call that does it, or posts it.
    """

    def __init__(self, steps: Sequence[Step], bound: Sequence[Bound]) -> None:
        self._bound = bound
        self._channels = [channel(step.action) for step in steps]
        self._missing = [len(step.after) for step in steps]
        self._followers: defaultdict[int, list[int]] = defaultdict(list)
        for number, step in enumerate(steps):
            for earlier in step.after:
                self._followers[earlier].append(number)

    def waits(self) -> Iterator[Sequence[MPI.Request]]:
        """Carry out all actions; where there is something to wait for, give it."""
        return _Run(self._bound, self._channels, self._missing, self._followers).waits()


class _Run:
    """One time through a graph."""

    def __init__(
        self,
        bound: Sequence[Bound],
        channels: Sequence[Hashable],
        missing: Sequence[int],
        followers: defaultdict[int, list[int]],
    ) -> None:
        self.bound, self.channels, self.followers = bound, channels, followers
        self.missing = list(missing)
        self.free = deque(n for n, count in enumerate(missing) if not count)
        self.queues: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        for number, key in enumerate(channels):
            if key is not None:
                self.queues[key].append(number)
        self.requests = OneOf()
        self.numbers: list[int] = []

    def waits(self) -> Iterator[Sequence[MPI.Request]]:
        """Start what is free; wait for one request; go on."""
        while True:
            while self.free:
                self._start(self.free.popleft())
            if not self.requests:
                return
            yield self.requests
            self._done(self.numbers.pop(self.requests.taken))

    def _start(self, number: int) -> None:
        key = self.channels[number]
        if key is None:
            function, arguments = self.bound[number]
            function(*arguments)
            self._done(number)
        else:
            self._post(self.queues[key])

    def _post(self, queue: deque[int]) -> None:
        """Post the first messages of a channel, as far as they are free."""
        while queue and not self.missing[queue[0]]:
            number = queue.popleft()
            post, arguments = self.bound[number]
            self.requests.append(post(*arguments))
            self.numbers.append(number)

    def _done(self, number: int) -> None:
        for follower in self.followers.get(number, ()):
            self.missing[follower] -= 1
            if not self.missing[follower]:
                self.free.append(follower)
