"""What executors report of attempts that are not ready yet, such as why a pod waits."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from schemas.executor.attempts import AttemptPhase, AttemptProgressed
from shared.messaging.bus import Bus

MAX_MESSAGES: Final = 1_000
_NOT_READY: Final = frozenset({AttemptPhase.STARTING, AttemptPhase.PULLING, AttemptPhase.LOADING})


@dataclass(frozen=True, slots=True)
class StartMessages:
    """In memory alone, by attempt: reported again as soon as it changes."""

    bus: Bus
    by_attempt: OrderedDict[UUID, str] = field(default_factory=OrderedDict)

    async def subscribe(self) -> None:
        """Begin to receive; the connection is open."""
        await self.bus.listen(AttemptProgressed, self.observe)

    async def observe(self, progress: AttemptProgressed) -> None:
        self.by_attempt.pop(progress.attempt_id, None)
        if progress.phase in _NOT_READY and progress.message:
            self.by_attempt[progress.attempt_id] = progress.message
            if len(self.by_attempt) > MAX_MESSAGES:
                self.by_attempt.popitem(last=False)
