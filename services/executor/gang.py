"""What an attempt has to do with other nodes: nothing, or it leads their ranks, or follows one."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from schemas.executor import StartExperiment
from schemas.executor_ranks import StartRank
from services.executor.domain.gang import is_coordinated
from services.executor.domain.verdict import Verdict
from services.executor.gang_coordinator import Coordinator
from services.executor.gang_member import Member
from services.executor.settings import ExecutorSettings
from shared.bus import Bus


class Ranks(Protocol):
    """One attempt's side of it. `watch` runs beside the rest, from the confirmed lease on."""

    @property
    def is_ready(self) -> bool:
        """Whether this rank waits for the others, or no longer has to."""

    async def watch(self) -> Verdict:
        """Wait until the attempt cannot go on because of another rank; why."""

    async def meet(self, note: Callable[[float, str], None]) -> Mapping[str, Any]:
        """Wait until all ranks are ready and may start; what this one's engine is told."""

    async def cause(self, verdict: Verdict, over_at: float) -> Verdict:
        """Why the attempt failed: `verdict`, of this rank at `over_at`, or what came before it."""

    async def disband(self) -> None:
        """Have the others ended; return when they are, or have stopped themselves."""

    def begin(self, go: StartRank) -> None:
        """The coordinator lets this rank start, if it is one that waits for that."""


@dataclass(frozen=True, slots=True)
class Alone:
    """An attempt on one node."""

    @property
    def is_ready(self) -> bool:
        return True

    async def watch(self) -> Verdict:
        """Never returns."""
        verdict: Verdict = await asyncio.get_running_loop().create_future()
        return verdict

    async def meet(self, _: Callable[[float, str], None]) -> Mapping[str, Any]:
        return {}

    async def cause(self, verdict: Verdict, _: float) -> Verdict:
        return verdict

    async def disband(self) -> None:
        return

    def begin(self, _: StartRank) -> None:
        return


def ranks_of(command: StartExperiment, bus: Bus, settings: ExecutorSettings) -> Ranks:
    """The side that this executor has in the attempt."""
    if command.gang is not None:
        return Member(command=command, place=command.gang, bus=bus)
    if is_coordinated(command):
        return Coordinator(command=command, bus=bus, settings=settings)
    return Alone()
