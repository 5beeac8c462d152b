"""Run the schedules of all ranks together, without MPI: match messages, find deadlocks.

Sends are taken as synchronous: a round ends only when every send of it has met a posted receive.
What runs here runs on any MPI, however little it buffers.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Protocol

from collx.schedule import (
    Answer,
    Recv,
    RecvInts,
    Round,
    Schedule,
    Send,
    SendInts,
    Transfer,
    is_message,
)


class Fault(Exception):
    """An algorithm did something wrong; the text names the rank, the round and the action."""


class Watcher(Protocol):
    """Who is told what happens."""

    def begin(self, rank: int, index: int, round_: Round) -> None:
        """Rank `rank` starts its round number `index`."""

    def deliver(self, source: int, send: Transfer, to: int, recv: Transfer) -> None:
        """A message of `source` meets a receive of `to`; both fit."""

    def end(self, rank: int, index: int, round_: Round) -> None:
        """All transfers of the round are complete."""


class _Progress:
    """Where one rank is."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.index = -1
        self.round = Round(())
        self.waiting: deque[Transfer] = deque()
        self.outstanding = 0
        self.answers: dict[int, tuple[int, ...]] = {}
        self.done = False

    def answer(self) -> Answer:
        asked = [a for a in self.round.actions if isinstance(a, RecvInts)]
        return [self.answers[id(action)] for action in asked]


class Interleaving:
    """All ranks of one call, advanced round by round until all have ended.

    Raises
    ------
    Fault
        On a deadlock, a message nobody receives, or messages that do not fit their receives.
    """

    def __init__(self, schedules: Sequence[Schedule], watcher: Watcher) -> None:
        self._ranks = [_Progress(schedule) for schedule in schedules]
        self._watcher = watcher
        self._posted: defaultdict[tuple[int, int, int], deque[Transfer]] = defaultdict(deque)
        self._ready = deque(range(len(schedules)))

    def run(self) -> None:
        """Run to the end."""
        while self._ready:
            self._advance(self._ready.popleft())
        if not all(progress.done for progress in self._ranks):
            raise Fault(f"deadlock: {'; '.join(self._stuck())}")

    def _advance(self, rank: int) -> None:
        """End the round that rank `rank` is in, and start rounds until one has to wait."""
        progress = self._ranks[rank]
        self._post(rank)
        while not progress.outstanding and not progress.done:
            if progress.index >= 0:
                self._tell(rank, self._watcher.end)
            try:
                answer = progress.answer() if progress.index >= 0 else None
                progress.round = progress.schedule.send(answer)  # type: ignore[arg-type]
            except StopIteration:
                progress.done = True
                break
            progress.index += 1
            self._start(rank)

    def _start(self, rank: int) -> None:
        progress = self._ranks[rank]
        self._tell(rank, self._watcher.begin)
        progress.waiting.extend(filter(is_message, progress.round.actions))  # type: ignore[arg-type]
        self._post(rank)

    def _tell(self, rank: int, what: Callable[[int, int, Round], None]) -> None:
        progress = self._ranks[rank]
        try:
            what(rank, progress.index, progress.round)
        except Fault as fault:
            raise Fault(f"{self._where(rank)}: {fault}") from None

    def _post(self, rank: int) -> None:
        """Post what the window allows."""
        progress = self._ranks[rank]
        window = progress.round.window or math.inf
        while progress.waiting and progress.outstanding < window:
            progress.outstanding += 1
            self._match(rank, progress.waiting.popleft())

    def _match(self, rank: int, transfer: Transfer) -> None:
        sending = isinstance(transfer, _SENDS)
        peer = transfer.to if isinstance(transfer, _SENDS) else transfer.source
        if not 0 <= peer < len(self._ranks):
            raise Fault(f"{self._where(rank)}: no such rank in {transfer}")
        key = (rank, peer, transfer.lane) if sending else (peer, rank, transfer.lane)
        queue = self._posted[key]
        if not queue or isinstance(queue[0], _SENDS) == sending:
            queue.append(transfer)
            return
        other = queue.popleft()
        send, recv = (transfer, other) if sending else (other, transfer)
        self._deliver(key[0], send, key[1], recv)
        self._complete(rank)
        self._complete(peer)

    def _complete(self, rank: int) -> None:
        progress = self._ranks[rank]
        progress.outstanding -= 1
        if progress.waiting or not progress.outstanding:
            self._ready.append(rank)

    def _deliver(self, source: int, send: Transfer, to: int, recv: Transfer) -> None:
        if isinstance(send, SendInts) and isinstance(recv, RecvInts):
            fits = len(send.values) == recv.count
            self._ranks[to].answers[id(recv)] = send.values
        elif isinstance(send, Send) and isinstance(recv, Recv):
            fits = len(send.region) == len(recv.into)
        else:
            fits = False
        if not fits:
            raise Fault(f"{self._where(to)}: {recv} gets {send} of rank {source}: sizes differ")
        try:
            self._watcher.deliver(source, send, to, recv)
        except Fault as fault:
            raise Fault(f"{self._where(to)}: {fault}") from None

    def _where(self, rank: int) -> str:
        return f"rank {rank}, round {self._ranks[rank].index}"

    def _stuck(self) -> list[str]:
        waiting = [
            f"{self._where(to if receiving else source)} waits for "
            f"{'rank ' + str(source) + ' to send' if receiving else f'rank {to} to receive'}"
            for (source, to, _), queue in self._posted.items()
            for receiving in [isinstance(transfer, (Recv, RecvInts)) for transfer in queue]
        ]
        return waiting[:4] + [f"and {len(waiting) - 4} more"] * (len(waiting) > 4)


_SENDS = (Send, SendInts)
