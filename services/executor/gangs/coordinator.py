"""Rank 0's executor: prepares the other ranks, starts all at once, and ends all together."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from schemas.base import Command
from schemas.errors import Accepted
from schemas.executor.attempts import FailureKind, StartExperiment
from schemas.executor.ranks import GetRank, RankState, RankView, StartRank
from services.executor.domain.gang import (
    RankStatus,
    cancel_rank,
    cause,
    first_failure,
    poll_seconds,
    rank_of,
    rank_starts,
    start_rank,
)
from services.executor.domain.verdict import AttemptFailed, Verdict
from services.executor.engines.engine_table import rank_flags
from services.executor.host.addresses import engine_address, free_port_at
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.waiting import cancel_and_wait, heed_cancellation, wait_for, within

RETRY_SECONDS: Final = 0.2
MAX_REQUEST_SECONDS: Final = 5.0
COMPARE_SECONDS: Final = 1.0
CHANGE_SECONDS: Final = 0.25


@dataclass(slots=True, kw_only=True, eq=False)
class Coordinator:
    """The side of rank 0. See `Ranks`.

    Commands may be sent twice, and once more after a restart: their ids follow from the attempt and
    the rank, so a rank applies each once.
    """

    command: StartExperiment
    bus: Bus
    settings: ExecutorSettings
    is_ready: bool = False
    _starts: tuple[StartExperiment, ...] = field(init=False)
    _statuses: dict[int, RankStatus] = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._starts = rank_starts(self.command)
        self._statuses = self._initial_statuses()

    async def watch(self) -> Verdict:
        """Start every other rank and poll it, until the first of them fails."""
        self._statuses = self._initial_statuses()
        polling = [asyncio.create_task(self._start_and_poll(start)) for start in self._starts]
        try:
            while True:
                for task in polling:
                    if task.done():
                        task.result()  # raises its unexpected error
                verdict = first_failure(tuple(self._statuses.values()), time.monotonic(), self._ttl)
                if verdict is not None:
                    return verdict
                await self._wait_for_change()
        finally:
            await cancel_and_wait(*polling)

    async def rendezvous(self, on_progress: Callable[[float, str], None]) -> Mapping[str, Any]:
        """Wait until all are ready, then start them. `watch` ends the wait if one fails."""
        self.is_ready = True
        size = len(self._starts) + 1
        reported = -1
        while (ready := sum(status.is_ready for status in self._statuses.values())) < size - 1:
            if ready != reported:
                reported = ready
                on_progress((ready + 1) / size, f"{ready + 1} of {size} nodes are ready")
            await self._wait_for_change()
        address, port = await self._rendezvous_address()
        log.info("ranks_start", attempt_id=str(self.command.attempt_id), size=size)
        are_started = await asyncio.gather(
            *(self._send(start, start_rank(start, address, port)) for start in self._starts)
        )
        if not all(are_started):
            await asyncio.get_running_loop().create_future()  # until `watch` has the refusal
        return rank_flags(self.command.engine.engine)(0, size, address, port)

    async def cause(self, verdict: Verdict, over_at: float) -> Verdict:
        """Poll all once more: when one engine or node fails, the others soon end.

        The cause is open while a rank does not answer and its lease goes on.
        """
        request_seconds = min(COMPARE_SECONDS, self._request_seconds)
        while True:
            await asyncio.gather(*(self._poll(start, request_seconds) for start in self._starts))
            now = time.monotonic()
            ranks = tuple(self._statuses.values())
            first = cause(verdict, now - over_at, ranks, now, self._ttl)
            if first is not verdict or all(status.answered_at > over_at for status in ranks):
                return first
            await asyncio.sleep(RETRY_SECONDS)

    async def end_others(self) -> None:
        """Cancel all others and wait for their ends, for one lease at most.

        From now on their polls are answered with "over", so each has stopped itself by then.
        """
        try:
            async with within(self._ttl):
                await asyncio.gather(*(self._end(start) for start in self._starts))
        except TimeoutError:
            remaining_nodes = [
                status.node_id for status in self._statuses.values() if not _is_gone(status)
            ]
            log.warning(
                "ranks_unconfirmed",
                attempt_id=str(self.command.attempt_id),
                node_ids=remaining_nodes,
            )

    def start(self, _: StartRank) -> None:
        """Rank 0 needs no start."""

    @property
    def _ttl(self) -> float:
        return self.command.lease_ttl_seconds

    @property
    def _request_seconds(self) -> float:
        return min(MAX_REQUEST_SECONDS, self._ttl / 3)

    def _initial_statuses(self) -> dict[int, RankStatus]:
        now = time.monotonic()
        return {
            rank_of(start): RankStatus(
                rank=rank_of(start), node_id=start.executor_id, answered_at=now
            )
            for start in self._starts
        }

    async def _rendezvous_address(self) -> tuple[str, int]:
        """Return where the other engines reach that of rank 0. Raises AttemptFailed."""
        address = await engine_address(self.settings)
        if address is None:
            raise AttemptFailed.of(
                FailureKind.RANK_FAILED,
                "it is unknown where other nodes reach this one: "
                "set GPUSTEWARD_EXECUTOR_ADDRESS here",
            )
        return address, await asyncio.to_thread(free_port_at, address)

    async def _start_and_poll(self, start: StartExperiment) -> None:
        if not await self._send(start, start):
            return
        while True:
            await self._poll(start, self._request_seconds)
            await asyncio.sleep(poll_seconds(len(self._starts) + 1))

    async def _send(self, start: StartExperiment, command: Command) -> bool:
        """Send until the rank accepts, or refuses for good, which is recorded."""
        gives_up_at = time.monotonic() + self.settings.start_timeout_seconds
        while True:
            try:
                reply = await self.bus.request(command, timeout_seconds=self._request_seconds)
            except UnavailableError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            heed_cancellation()
            self._record(start)
            if isinstance(reply, Accepted):
                return True
            if not reply.retryable or time.monotonic() >= gives_up_at:
                self._record(start, refusal=reply)
                return False
            await asyncio.sleep(RETRY_SECONDS)

    async def _poll(self, start: StartExperiment, timeout_seconds: float) -> None:
        query = GetRank(executor_id=start.executor_id, attempt_id=start.attempt_id)
        try:
            view = await self.bus.query(query, RankView, timeout_seconds=timeout_seconds)
        except UnavailableError:
            heed_cancellation()
            return
        except RefusedError as error:
            if not (refusal := error.as_refused()).retryable:
                self._record(start, view=None, refusal=refusal)
            return
        self._record(start, view=view)
        heed_cancellation()

    async def _end(self, start: StartExperiment) -> None:
        await self._send(start, cancel_rank(start))
        while True:
            await self._poll(start, self._request_seconds)
            if _is_gone(self._statuses[rank_of(start)]):
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _record(self, start: StartExperiment, **news: Any) -> None:  # fields of RankStatus
        status = self._statuses[rank_of(start)]
        self._statuses[rank_of(start)] = replace(
            status, answered_at=time.monotonic(), has_answered=True, **news
        )
        self._changed.set()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await wait_for(self._changed, CHANGE_SECONDS)


def _is_gone(status: RankStatus) -> bool:
    """Return whether nothing of the rank runs: it reports so, or it never knew of the attempt."""
    if status.view is not None:
        return status.view.state is RankState.ENDED
    return status.refusal is not None
