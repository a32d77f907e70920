"""Raises the sampling of nodes that measure an experiment: a short window has samples too."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from schemas.errors import Refused
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptPhase,
    AttemptPhaseChanged,
    AttemptStarted,
)
from schemas.telemetry.readings import SetBurst
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.logging import log
from shared.messaging.bus import Bus, Route, event_route
from shared.postgres.database import Database

# From the load on: the phases after it are published up to a quarter of a second late.
PHASES: Final = frozenset({AttemptPhase.LOADING, AttemptPhase.WARMING_UP, AttemptPhase.MEASURING})
ANSWER_TIMEOUT_SECONDS: Final = 2.0

INSERT_ATTEMPT: Final = """
INSERT INTO running_attempt (attempt_id, node_ids, started_at, reservation_id, experiment_id)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""
UPDATE_PHASE: Final = """
UPDATE running_attempt SET phase = $2, phase_revision = $3
WHERE attempt_id = $1 AND phase_revision < $3
"""
SELECT_NODES: Final = "SELECT node_ids FROM running_attempt WHERE attempt_id = $1"
DELETE_ATTEMPT: Final = "DELETE FROM running_attempt WHERE attempt_id = $1"


@dataclass(frozen=True, slots=True)
class Bursts:
    """Each phase begins a burst of `seconds`; 0 for none."""

    bus: Bus
    database: Database
    interval_seconds: float
    seconds: float

    async def follow(self, event: AttemptStarted | AttemptPhaseChanged | AttemptFinished) -> None:
        """An agent that does not answer samples as it did before."""
        match event:
            case AttemptStarted():
                nodes = sorted({device.node_id for device in event.devices})
                async with self.database.statements() as connection:
                    await connection.execute(
                        INSERT_ATTEMPT,
                        event.attempt_id,
                        nodes,
                        event.occurred_at,
                        event.reservation_id,
                        event.experiment_id,
                    )
            case AttemptFinished():
                async with self.database.statements() as connection:
                    await connection.execute(DELETE_ATTEMPT, event.attempt_id)
            case AttemptPhaseChanged():
                async with self.database.statements() as connection:
                    await connection.execute(
                        UPDATE_PHASE, event.attempt_id, event.phase.value, event.revision
                    )
                age = utcnow() - event.occurred_at
                if event.phase in PHASES and age < timedelta(seconds=self.seconds):
                    await self._raise_sampling(event)

    async def _raise_sampling(self, event: AttemptPhaseChanged) -> None:
        nodes = [pod.node_id for pod in event.pods]
        if not nodes:
            async with self.database.statements() as connection:
                nodes = await connection.fetchval(SELECT_NODES, event.attempt_id)
        await asyncio.gather(*(self._burst(event, node) for node in nodes or ()))

    async def _burst(self, event: AttemptPhaseChanged, node_id: str) -> None:
        command = SetBurst(
            command_id=new_id(),
            node_id=node_id,
            interval_seconds=self.interval_seconds,
            duration_seconds=self.seconds,
            experiment_id=event.experiment_id,
        )
        try:
            reply = await self.bus.request(command, timeout_seconds=ANSWER_TIMEOUT_SECONDS)
        except UnavailableError as error:
            log.info("burst_failed", node_id=node_id, error=str(error))
            return
        if isinstance(reply, Refused):
            log.info("burst_refused", node_id=node_id, error=reply.message)


def build_routes(bursts: Bursts) -> list[Route]:
    """A consumer of its own: one agent that does not answer holds up no result."""
    events = (AttemptStarted, AttemptPhaseChanged, AttemptFinished)
    return [event_route(bursts.follow, *events, durable="results_raise_sampling")]
