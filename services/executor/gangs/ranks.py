"""An attempt's side in a gang: alone, coordinator of the other ranks, or member."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from schemas.executor.attempts import StartExperiment
from schemas.executor.ranks import StartRank
from services.executor.domain.gang import is_coordinated
from services.executor.domain.verdict import Verdict
from services.executor.gangs.coordinator import Coordinator
from services.executor.gangs.member import Member
from services.executor.settings import ExecutorSettings
from shared.messaging.bus import Bus


class Ranks(Protocol):
    """One attempt's side. `watch` runs beside the rest, from the confirmed lease on."""

    @property
    def is_ready(self) -> bool:
        """Return whether this rank waits for the others, or no longer has to."""

    async def watch(self) -> Verdict:
        """Wait until another rank ends the attempt; the verdict."""

    async def rendezvous(self, on_progress: Callable[[float, str], None]) -> Mapping[str, Any]:
        """Wait until all ranks are ready and may start; this engine's rank parameters."""

    async def cause(self, verdict: Verdict, over_at: float) -> Verdict:
        """Return why the attempt failed: `verdict` of this rank at `over_at`, or an earlier
        failure.
        """

    async def end_others(self) -> None:
        """End the other ranks; return once they have ended or stopped themselves."""

    def start(self, command: StartRank) -> None:
        """Start this rank's engine, if it is a member that waits for that."""


@dataclass(frozen=True, slots=True)
class SingleNode:
    """An attempt on one node."""

    is_ready = True

    async def watch(self) -> Verdict:
        """Never returns."""
        verdict: Verdict = await asyncio.get_running_loop().create_future()
        return verdict

    async def rendezvous(self, _: Callable[[float, str], None]) -> Mapping[str, Any]:
        return {}

    async def cause(self, verdict: Verdict, _: float) -> Verdict:
        return verdict

    async def end_others(self) -> None:
        return

    def start(self, _: StartRank) -> None:
        return


def ranks_of(command: StartExperiment, bus: Bus, settings: ExecutorSettings) -> Ranks:
    if command.gang is not None:
        return Member(command=command, place=command.gang, bus=bus)
    if is_coordinated(command):
        return Coordinator(command=command, bus=bus, settings=settings)
    return SingleNode()
