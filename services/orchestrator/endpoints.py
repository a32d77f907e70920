"""Starts experiments at servers that run already, each server one at a time."""

import asyncio
from dataclasses import dataclass
from typing import Final

from schemas.gpus.device_grant import DeviceGrant
from schemas.orchestrator.experiments import ExperimentState
from schemas.telemetry.readings import GetSnapshot, GpuSampled
from services.orchestrator.domain.lifecycle import endpoints
from services.orchestrator.domain.lifecycle.endpoints import EndpointAttempt, EndpointStep
from services.orchestrator.domain.progress.requests import find_executors
from services.orchestrator.domain.records import Task
from services.orchestrator.event_handlers import EventHandlers
from services.orchestrator.ledger import experiment_rows
from services.orchestrator.task_progress import Progress
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.postgres.database import Database

INTERVAL_SECONDS: Final = 1.0
MOST_AT_ONCE: Final = 200
ASK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class EndpointStarts:
    """Several orchestrators may run it: a lock of the database lets one look at a time."""

    database: Database
    bus: Bus
    progress: Progress
    handlers: EventHandlers

    async def run(self) -> None:
        """Start what waits until cancelled. Raises UnavailableError without Postgres."""
        while True:
            await self.sweep()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def sweep(self) -> None:
        """Start what may start now, and fail what has waited for too long."""
        async with self.database.transaction() as connection:
            if not await experiment_rows.lock_endpoints(connection):
                return
            rows = await experiment_rows.open_endpoints(connection, MOST_AT_ONCE)
            if not any(experiment.state is ExperimentState.WAITING for _, experiment, _ in rows):
                return
            installation = await self.progress.load_installation(connection)
            attempts = [
                EndpointAttempt(
                    task=task,
                    experiment=experiment,
                    attempt=attempt,
                    executor_ids=find_executors(installation, task, experiment, None),
                )
                for task, experiment, attempt in rows
            ]
            # In transactions of their own, while this one keeps other orchestrators out.
            for step in endpoints.choose_steps(attempts, utcnow()):
                await self._take(step)

    async def _take(self, step: EndpointStep) -> None:
        attempt_id, executor_id = step.attempt.attempt.attempt_id, step.executor_id
        if executor_id is None:
            await self.handlers.apply_endpoint_failed(attempt_id, step.failed_because)
            return
        devices = await self._read_devices(step.attempt.task)
        await self.handlers.apply_endpoint_start(attempt_id, executor_id, devices)

    async def _read_devices(self, task: Task) -> tuple[DeviceGrant, ...]:
        """Return the GPUs of the server as its node's agent sees them; none where it is silent."""
        endpoint = task.file.endpoint
        if endpoint is None or endpoint.node is None:
            return ()
        query = GetSnapshot(node_id=endpoint.node, use_cache=True)
        try:
            sampled = await self.bus.query(query, GpuSampled, timeout_seconds=ASK_SECONDS)
        except (RefusedError, UnavailableError) as error:
            log.warning("endpoint_gpus_unknown", node_id=endpoint.node, error=str(error))
            return ()
        return endpoints.find_devices(endpoint, sampled.gpus, simulated=sampled.simulated)
