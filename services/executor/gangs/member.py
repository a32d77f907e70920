"""A rank that another executor coordinates: it starts on command and does not outlive it."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.errors import Refused
from schemas.executor.attempts import GangPlace, StartExperiment
from schemas.executor.ranks import GetRank, RankView, StartRank
from services.executor.domain.gang import OVER, coordinator_lost, poll_seconds
from services.executor.domain.verdict import Verdict
from services.executor.engines.engine_table import rank_flags
from shared.errors import RefusedError, UnavailableError
from shared.lease import Lease
from shared.messaging.bus import Bus


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """The side of a rank from 1 on. See `Ranks`."""

    command: StartExperiment
    place: GangPlace
    bus: Bus
    is_ready: bool = False
    _started: "asyncio.Future[StartRank]" = field(init=False)

    def __post_init__(self) -> None:
        self._started = asyncio.get_running_loop().create_future()

    async def watch(self) -> Verdict:
        """Poll the coordinator until it reports the end, or does not answer for too long."""
        lease = self._lease(time.monotonic())
        while True:
            polled_at = time.monotonic()
            answer = await self._poll(lease.request_timeout_seconds(polled_at))
            if isinstance(answer, RankView) and answer.state not in OVER:
                lease = self._lease(polled_at)
            now = time.monotonic()
            verdict = coordinator_lost(self.place, lease, now, answer)
            if verdict is not None:
                return verdict
            await asyncio.sleep(max(0.0, min(poll_seconds(self.place.size), lease.stop_at - now)))

    async def rendezvous(self, on_progress: Callable[[float, str], None]) -> Mapping[str, Any]:
        """Report this rank as ready and wait for `StartRank`."""
        on_progress(1.0, "ready; waiting for the other nodes")
        self.is_ready = True
        command = await self._started
        flags = rank_flags(self.command.engine.engine)
        return flags(self.place.rank, self.place.size, command.leader_address, command.leader_port)

    async def cause(self, verdict: Verdict, _: float) -> Verdict:
        """The coordinator compares the ranks."""
        return verdict

    async def end_others(self) -> None:
        """The coordinator does."""

    def start(self, command: StartRank) -> None:
        """The first command counts."""
        if not self._started.done():
            self._started.set_result(command)

    def _lease(self, confirmed_at: float) -> Lease:
        return Lease(ttl_seconds=self.command.lease_ttl_seconds, confirmed_at=confirmed_at)

    async def _poll(self, timeout_seconds: float) -> RankView | Refused | None:
        """Poll the coordinator once; return None if no answer came in time."""
        query = GetRank(executor_id=self.place.coordinator_id, attempt_id=self.command.attempt_id)
        try:
            return await self.bus.query(query, RankView, timeout_seconds=timeout_seconds)
        except RefusedError as error:
            return error.as_refused()
        except UnavailableError:
            return None
