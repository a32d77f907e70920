"""One rank that another executor coordinates: it waits for the word, and does not outlive it."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.errors import Refused
from schemas.executor import GangPlace, StartExperiment
from schemas.executor_ranks import GetRank, RankView, StartRank
from services.executor.domain.gang import OVER, left_alone, look_seconds
from services.executor.domain.lease import Lease
from services.executor.domain.verdict import Verdict
from services.executor.engines.table import rank_flags
from shared.bus import Bus
from shared.errors import RefusedError, UnavailableError


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """The side of a rank from 1 on. See `Ranks`."""

    command: StartExperiment
    place: GangPlace
    bus: Bus
    is_ready: bool = False
    _go: "asyncio.Future[StartRank]" = field(init=False)

    def __post_init__(self) -> None:
        self._go = asyncio.get_running_loop().create_future()

    async def watch(self) -> Verdict:
        """Ask the coordinator until it says that it is over, or is silent for too long."""
        lease = self._lease(time.monotonic())
        while True:
            asked_at = time.monotonic()
            answer = await self._ask(lease.request_timeout_seconds(asked_at))
            if isinstance(answer, RankView) and answer.state not in OVER:
                lease = self._lease(asked_at)
            now = time.monotonic()
            verdict = left_alone(self.place, lease, now, answer)
            if verdict is not None:
                return verdict
            await asyncio.sleep(max(0.0, min(look_seconds(self.place.size), lease.stop_at - now)))

    async def meet(self, note: Callable[[float, str], None]) -> Mapping[str, Any]:
        """Say that this rank is ready, and wait for the word."""
        note(1.0, "ready; waiting for the other nodes")
        self.is_ready = True
        go = await self._go
        flags = rank_flags(self.command.engine.engine)
        return flags(self.place.rank, self.place.size, go.leader_address, go.leader_port)

    async def cause(self, verdict: Verdict, _: float) -> Verdict:
        """The coordinator compares them."""
        return verdict

    async def disband(self) -> None:
        """The coordinator does."""

    def begin(self, go: StartRank) -> None:
        """The first word counts."""
        if not self._go.done():
            self._go.set_result(go)

    def _lease(self, confirmed_at: float) -> Lease:
        return Lease(ttl_seconds=self.command.lease_ttl_seconds, confirmed_at=confirmed_at)

    async def _ask(self, timeout_seconds: float) -> RankView | Refused | None:
        """None without an answer."""
        query = GetRank(executor_id=self.place.coordinator_id, attempt_id=self.command.attempt_id)
        try:
            return await self.bus.query(query, RankView, timeout_seconds=timeout_seconds)
        except RefusedError as error:
            return error.refused()
        except UnavailableError:
            return None
