"""The engines that this executor keeps up, by the attempts that left them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from schemas.executor.attempts import StartExperiment
from services.executor.attempts.kept_engine import KeptEngine, has_rival
from services.executor.domain.keeping import misfit


@dataclass(slots=True, kw_only=True)
class KeptEngines:
    """`start_loop` runs what keeps one of them beside the commands."""

    start_loop: Callable[[str, Callable[[], Awaitable[None]]], object]
    _by_attempt: dict[UUID, KeptEngine] = field(default_factory=dict)

    def add(self, kept: KeptEngine) -> None:
        """Keep it up from now on."""
        attempt_id = kept.command.attempt_id
        self._by_attempt[attempt_id] = kept

        async def keep() -> None:
            try:
                await kept.run()
            finally:
                self._by_attempt.pop(attempt_id, None)

        self.start_loop(f"keep-{attempt_id}", keep)

    async def take_for(self, command: StartExperiment) -> KeptEngine | None:
        """Return the engine that a start goes on with, kept by nobody any more; None without.

        The caller has to run the attempt, or to end the engine.
        """
        kept = self._by_attempt.get(command.kept_from) if command.kept_from is not None else None
        if kept is None:
            return None
        if different := misfit(command, kept.command):
            kept.stop(f"its next run has another {different}")
        elif await has_rival(kept.bus, command.executor_id):
            kept.stop("another request waits for its GPUs")
        return kept if kept.take() else None

    def end_later(self, kept: KeptEngine, reason: str) -> None:
        """End an engine that was taken and is not measured after all."""
        self.start_loop(f"end-kept-{kept.command.attempt_id}", lambda: kept.end(reason))

    def stop_of(self, attempt_id: UUID, reason: str) -> None:
        """End what an attempt left, if it left anything."""
        if (kept := self._by_attempt.get(attempt_id)) is not None:
            kept.stop(reason)

    def stop_under(self, reservation_id: UUID, reason: str) -> None:
        """Have what is kept under a reservation ended."""
        for kept in self._under(reservation_id):
            kept.stop(reason)

    def stop_all(self, reason: str) -> None:
        """Have all ended."""
        for kept in self._by_attempt.values():
            kept.stop(reason)

    async def end_under(self, reservation_id: UUID, reason: str) -> None:
        """Return once nothing is kept under a reservation."""
        for kept in self._under(reservation_id):
            await self._end(kept, reason)

    async def end_all(self, reason: str) -> None:
        """Return once nothing is kept."""
        self.stop_all(reason)
        for kept in tuple(self._by_attempt.values()):
            await self._end(kept, reason)

    def _under(self, reservation_id: UUID) -> list[KeptEngine]:
        kept_engines = self._by_attempt.values()
        return [kept for kept in kept_engines if kept.command.reservation_id == reservation_id]

    async def _end(self, kept: KeptEngine, reason: str) -> None:
        kept.stop(reason)
        if not kept.is_taken:
            await kept.ended.wait()
