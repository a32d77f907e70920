"""Rank 0's executor: has the others prepared, lets all start at once, and ends all together."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from schemas.base import Command
from schemas.errors import Accepted
from schemas.executor import Failure, FailureKind, StartExperiment
from schemas.executor_ranks import GetRank, RankState, RankView, StartRank
from services.executor.addresses import engine_address, free_port_at
from services.executor.cancelling import cancelled
from services.executor.domain.gang import (
    Heard,
    cause,
    first_failure,
    look_seconds,
    member_cancel,
    member_go,
    member_starts,
    rank_of,
)
from services.executor.domain.verdict import AttemptFailed, Verdict
from services.executor.engines.table import rank_flags
from services.executor.settings import ExecutorSettings
from shared.background import heed_cancellation
from shared.bus import Bus
from shared.errors import RefusedError, UnavailableError
from shared.logging import log

RETRY_SECONDS: Final = 0.2
LONGEST_ASK_SECONDS: Final = 5.0
COMPARE_SECONDS: Final = 1.0
NEWS_SECONDS: Final = 0.25


@dataclass(slots=True, kw_only=True, eq=False)
class Coordinator:
    """The side of rank 0. See `Ranks`.

    What it asks and tells may come twice, and after a restart once more: ids of commands follow
    from the attempt and the rank.
    """

    command: StartExperiment
    bus: Bus
    settings: ExecutorSettings
    is_ready: bool = False
    _starts: tuple[StartExperiment, ...] = field(init=False)
    _heard: dict[int, Heard] = field(init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._starts = member_starts(self.command)
        self._heard = self._unheard()

    async def watch(self) -> Verdict:
        """Start every other rank and ask for it, until the first of them fails."""
        self._heard = self._unheard()
        following = [asyncio.create_task(self._follow(start)) for start in self._starts]
        try:
            while True:
                for task in following:
                    if task.done():
                        task.result()  # raises what nobody expected
                verdict = first_failure(tuple(self._heard.values()), time.monotonic(), self._ttl)
                if verdict is not None:
                    return verdict
                await self._until_news()
        finally:
            await cancelled(*following)

    async def meet(self, note: Callable[[float, str], None]) -> Mapping[str, Any]:
        """Wait until all are ready, and let them start. `watch` ends it if one fails."""
        self.is_ready = True
        size = len(self._starts) + 1
        told = -1
        while (ready := sum(heard.is_ready for heard in self._heard.values())) < size - 1:
            if ready != told:
                told = ready
                note((ready + 1) / size, f"{ready + 1} of {size} nodes are ready")
            await self._until_news()
        address, port = await self._meeting_point()
        log.info("ranks_start", attempt_id=str(self.command.attempt_id), size=size)
        are_started = await asyncio.gather(
            *(self._tell(start, member_go(start, address, port)) for start in self._starts)
        )
        if not all(are_started):
            await asyncio.get_running_loop().create_future()  # until `watch` has the refusal
        return rank_flags(self.command.engine.engine)(0, size, address, port)

    async def cause(self, verdict: Verdict, over_at: float) -> Verdict:
        """Ask all once more: where one engine fails, or its node does, the others soon end.

        As long as one does not answer, and its lease goes on, nobody knows.
        """
        ask_seconds = min(COMPARE_SECONDS, self._ask_seconds)
        while True:
            await asyncio.gather(*(self._look(start, ask_seconds) for start in self._starts))
            now = time.monotonic()
            ranks = tuple(self._heard.values())
            first = cause(verdict, now - over_at, ranks, now, self._ttl)
            if first is not verdict or all(heard.heard_at > over_at for heard in ranks):
                return first
            await asyncio.sleep(RETRY_SECONDS)

    async def disband(self) -> None:
        """Cancel all others and wait for their ends, for one lease at most.

        From now on their questions are not answered in favour: the last of them stops itself
        before that.
        """
        try:
            async with asyncio.timeout(self._ttl):
                await asyncio.gather(*(self._end(start) for start in self._starts))
        except TimeoutError:
            left = [heard.node_id for heard in self._heard.values() if not _is_gone(heard)]
            log.warning("ranks_unconfirmed", attempt_id=str(self.command.attempt_id), node_ids=left)

    def begin(self, _: StartRank) -> None:
        """Nobody lets rank 0 start."""

    @property
    def _ttl(self) -> float:
        return self.command.lease_ttl_seconds

    @property
    def _ask_seconds(self) -> float:
        return min(LONGEST_ASK_SECONDS, self._ttl / 3)

    def _unheard(self) -> dict[int, Heard]:
        now = time.monotonic()
        return {
            rank_of(start): Heard(rank=rank_of(start), node_id=start.executor_id, heard_at=now)
            for start in self._starts
        }

    async def _meeting_point(self) -> tuple[str, int]:
        """Where the engines find rank 0's. Raises AttemptFailed."""
        address = await engine_address(self.settings)
        if address is None:
            raise AttemptFailed(
                Failure(
                    kind=FailureKind.RANK_FAILED,
                    message="nobody knows where other nodes reach this one: "
                    "set GPUSTEWARD_EXECUTOR_ADDRESS here",
                )
            )
        return address, await asyncio.to_thread(free_port_at, address)

    async def _follow(self, start: StartExperiment) -> None:
        if not await self._tell(start, start):
            return
        while True:
            await self._look(start, self._ask_seconds)
            await asyncio.sleep(look_seconds(len(self._starts) + 1))

    async def _tell(self, start: StartExperiment, command: Command) -> bool:
        """Tell a rank until it has accepted, or refused for good, which is noted."""
        gives_up_at = time.monotonic() + self.settings.start_timeout_seconds
        while True:
            try:
                reply = await self.bus.request(command, timeout_seconds=self._ask_seconds)
            except UnavailableError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            heed_cancellation()
            self._note(start)
            if isinstance(reply, Accepted):
                return True
            if not reply.retryable or time.monotonic() >= gives_up_at:
                self._note(start, refusal=reply)
                return False
            await asyncio.sleep(RETRY_SECONDS)

    async def _look(self, start: StartExperiment, timeout_seconds: float) -> None:
        query = GetRank(executor_id=start.executor_id, attempt_id=start.attempt_id)
        try:
            view = await self.bus.query(query, RankView, timeout_seconds=timeout_seconds)
        except UnavailableError:
            heed_cancellation()
            return
        except RefusedError as error:
            if not (refusal := error.refused()).retryable:
                self._note(start, view=None, refusal=refusal)
            return
        self._note(start, view=view)
        heed_cancellation()

    async def _end(self, start: StartExperiment) -> None:
        await self._tell(start, member_cancel(start))
        while True:
            await self._look(start, self._ask_seconds)
            if _is_gone(self._heard[rank_of(start)]):
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _note(self, start: StartExperiment, **news: Any) -> None:  # fields of Heard
        heard = self._heard[rank_of(start)]
        self._heard[rank_of(start)] = replace(
            heard, heard_at=time.monotonic(), has_answered=True, **news
        )
        self._news.set()

    async def _until_news(self) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(NEWS_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return


def _is_gone(heard: Heard) -> bool:
    """Whether nothing of the rank runs: it says so, or it never knew of the attempt."""
    if heard.view is not None:
        return heard.view.state is RankState.ENDED
    return heard.refusal is not None
