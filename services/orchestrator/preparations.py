"""Publishes to executors what waits for GPUs, so that its image and model are there by then."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from schemas.orchestrator.experiments import StartsWaiting
from schemas.scheduler.views import ExplainReservation, Explanation
from services.orchestrator.domain.lifecycle.waiting_starts import WaitingExperiment, starts_by_node
from services.orchestrator.domain.records import Attempt, Experiment
from services.orchestrator.ledger import experiment_rows
from services.orchestrator.task_progress import Progress
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.messaging.bus import Bus
from shared.postgres.database import Database

MAX_EXPLANATIONS: Final = 16
PAUSE_RATIO: Final = 20  # for each second of queries: an explanation takes the scheduler's time
MAX_PAUSE_SECONDS: Final = 120.0


@dataclass(slots=True)
class Preparations:
    """Nothing of it is stored: what is published counts until the next time, and may be lost."""

    database: Database
    bus: Bus
    progress: Progress
    interval_seconds: float

    async def run(self) -> None:
        """Publish until cancelled. Raises UnavailableError without Postgres or the scheduler:
        executors go on with what they received last.
        """
        while True:
            began_at = time.monotonic()
            await self.publish()
            took_seconds = time.monotonic() - began_at
            pause_seconds = min(PAUSE_RATIO * took_seconds, MAX_PAUSE_SECONDS)
            await asyncio.sleep(max(self.interval_seconds, pause_seconds))

    async def publish(self) -> None:
        """To every executor that is present, those for which nothing waits too."""
        async with self.database.transaction() as connection:
            waiting = await experiment_rows.waiting(connection, MAX_EXPLANATIONS)
            installation = await self.progress.load_installation(connection)
        explained = [await self._explain(*pair) for pair in waiting]
        starts = starts_by_node(explained, (offer.executor_id for offer in installation.offers))
        for executor_id, node_starts in starts.items():
            await self.bus.publish_live(
                StartsWaiting(observed_at=utcnow(), executor_id=executor_id, starts=node_starts)
            )

    async def _explain(self, experiment: Experiment, attempt: Attempt) -> WaitingExperiment:
        waiting = WaitingExperiment(experiment=experiment, attempt=attempt)
        query = ExplainReservation(reservation_id=attempt.reservation_id)
        try:
            explanation = await self.bus.query(query, Explanation)
        except RefusedError:  # the request may still be on its way to the scheduler
            return waiting
        return WaitingExperiment(
            experiment=experiment,
            attempt=attempt,
            queue_position=explanation.queue_position,
            expected_node_ids=explanation.expected_node_ids,
        )
