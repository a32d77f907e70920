"""Asks an attempt's engine how it is, once a second, and passes that on."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from schemas.executor.attempts import StartExperiment
from schemas.executor.engine_samples import EngineReading, EngineSampled
from services.executor.attempts.progress import ProgressReporter
from shared.benchmarks.chat_server import ChatServer, LoadLimits
from shared.clock import utcnow
from shared.engines.metrics import MetricNames
from shared.engines.metrics_page import metrics_path, read_page
from shared.messaging.bus import Bus

INTERVAL_SECONDS: Final = 1.0
# A busy engine is given time; ticks that pass meanwhile are left out.
ANSWER_TIMEOUT_SECONDS: Final = 5.0
# Some names are there after the first request only.
MAX_UNKNOWN_PAGES: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMeter:
    """Samples are unacknowledged: nothing that goes wrong with them may end an attempt."""

    command: StartExperiment
    bus: Bus
    progress: ProgressReporter

    async def run(self, base_url: str, certificate: Path | None = None) -> None:
        """Read the engine's metrics until cancelled, or until it proves to have none that are
        known.
        """
        limits = LoadLimits(connect_seconds=ANSWER_TIMEOUT_SECONDS)
        loop = asyncio.get_running_loop()
        path = metrics_path(self.command.engine.engine)
        sequence, unknown, due = 0, 0, loop.time()
        async with ChatServer(
            base_url=base_url, model_name="", certificate=certificate, limits=limits
        ) as server:
            while unknown < MAX_UNKNOWN_PAGES:
                observed_at = utcnow()
                metrics = read_page(await server.metrics_page(path) or "")
                unknown = unknown + 1 if metrics is None else 0
                if metrics is not None or not sequence:
                    await self.bus.publish_live(self._sample(sequence, observed_at, metrics))
                    sequence += 1
                due = max(due + INTERVAL_SECONDS, loop.time())
                await asyncio.sleep(due - loop.time())

    def _sample(
        self,
        sequence: int,
        observed_at: datetime,
        metrics: tuple[MetricNames, EngineReading] | None,
    ) -> EngineSampled:
        engine, reading = metrics or (None, EngineReading())
        command = self.command
        return EngineSampled(
            node_id=command.executor_id,
            experiment_id=command.experiment_id,
            attempt_id=command.attempt_id,
            task_id=command.task_id,
            reservation_id=command.reservation_id,
            epoch=command.epoch,
            sequence=sequence,
            observed_at=observed_at,
            interval_seconds=INTERVAL_SECONDS,
            phase=self.progress.phase,
            engine=engine.engine if engine is not None else None,
            reading=reading,
        )
