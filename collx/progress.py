"""Operations under way in this process, and how they get on while the process waits.

A blocking call carries out its phases to the end. An operation that was started earlier and not
finished stands in one process-wide set; whoever waits here lets the whole set advance, because
other ranks may need this rank's part of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from mpi4py import MPI

Bound: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"
"""A function with the arguments it will be called with."""


class Phase(NamedTuple):
    """What a rank does between two waits: local work, posts, local work, wait.

    `requests` are persistent requests to start, `posts` the calls that give requests, of which at
    most `window` may be outstanding (0: no limit).
    """

    before: list[Bound]
    posts: list[Bound]
    requests: list[MPI.Request]
    during: list[Bound]
    window: int


ACTIVE: list[Operation] = []
"""The operations that were started and have not finished, in all communicators."""

_waitall, _testall = MPI.Request.Waitall, MPI.Request.Testall
_startall = MPI.Prequest.Startall


def run(waits: Iterator[Sequence[MPI.Request]]) -> None:
    """Carry out to the end what gives these waits."""
    for requests in waits:
        if ACTIVE or type(requests) is OneOf:
            wait(requests)
        else:
            _waitall(requests)  # the native wait also leaves the core to other ranks


class OneOf(list[MPI.Request]):
    """Requests of which one has to complete, and is then taken out of the list.

    Attributes
    ----------
    taken : int
        The index of the one that was taken out last.
    """

    taken = -1

    def take(self, index: int) -> None:
        """Take out the one that completed."""
        del self[index]
        self.taken = index


class Phases(list[Phase]):
    """The phases of a rank, one after the other."""

    def waits(self) -> Iterator[Sequence[MPI.Request]]:
        """Carry them out; where there is something to wait for, give it, and then go on."""
        for before, posts, requests, during, window in self:
            for function, arguments in before:
                function(*arguments)
            if requests:
                _startall(requests)  # type: ignore[arg-type]  # persistent ones
            elif posts:
                requests = yield from _post(posts, window)
            for function, arguments in during:
                function(*arguments)
            if requests:
                yield requests


def _post(
    posts: Sequence[Bound], window: int
) -> Generator[Sequence[MPI.Request], None, list[MPI.Request]]:
    """Post with at most `window` requests outstanding; returns those that still are."""
    requests = OneOf()
    for post, arguments in posts:
        if len(requests) == window > 0:
            yield requests
        requests.append(post(*arguments))
    return list(requests)


def test(requests: Sequence[MPI.Request]) -> bool:
    """Whether one does not have to wait for these requests any longer."""
    if not isinstance(requests, OneOf):
        return _testall(requests)
    index, done = MPI.Request.Testany(requests)
    if done:
        requests.take(index)
    return done


def wait(requests: Sequence[MPI.Request]) -> None:
    """Wait for requests, and let operations under way advance meanwhile."""
    while not test(requests):
        advance_all()
        os.sched_yield()


class Operation:
    """Phases that were started and are carried out bit by bit.

    Parameters
    ----------
    waits
        What to carry out, as the waits it gives. Nothing is done before `start`.
    """

    def __init__(self, waits: Iterator[Sequence[MPI.Request]]) -> None:
        self._waits = waits
        self._requests: Sequence[MPI.Request] = []
        self.done = False

    def start(self) -> Operation:
        """Do what can be done without waiting, and join the set of operations under way."""
        ACTIVE.append(self)
        self.advance()
        return self

    def advance(self) -> bool:
        """Go on as far as possible without waiting; whether the operation has finished."""
        while not self.done and test(self._requests):
            following = next(self._waits, None)
            if following is None:
                self.done = True
                ACTIVE.remove(self)
            else:
                self._requests = following
        return self.done

    def wait(self) -> None:
        """Go on to the end, and let the others advance."""
        while not self.done:
            advance_all()
            os.sched_yield()


def advance_all() -> None:
    """Let every operation under way go on as far as possible without waiting."""
    for operation in ACTIVE[:]:
        operation.advance()
