"""The results service over a real bus and database, seen by a plain client."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from nats.aio.client import Client

from schemas.base import Message, Query, subject_for
from schemas.errors import Refused
from schemas.executor.attempts import AttemptFinished, AttemptOutcome, EngineSpec, Runtime, Window
from schemas.gpus.device_grant import DeviceGrant
from schemas.results.measurements import ExperimentSummarized, GetSummary, SummaryView
from schemas.task.benchmark import BenchmarkMetrics, BenchmarkResult, BenchmarkTool
from schemas.telemetry.readings import GpuReading, GpuSampled, Source
from services.results.app import create_service
from services.results.settings import ResultsSettings
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.messaging.streams import EVENTS, SAMPLES
from shared.testing import eventually

BOOT = UUID(int=7)
NODE = "node-a"


def make_sample(at: datetime, sequence: int, *, gpus: int = 2, **reading: Any) -> GpuSampled:
    values = {
        "utilization_percent": 80.0,
        "memory_total_mb": 80_000,
        "memory_used_mb": 20_000,
        "temperature_c": 60.0,
        "power_draw_w": 360.0,
        "power_limit_w": 400.0,
        "name": "NVIDIA A100",
        **reading,
    }
    return GpuSampled(
        node_id=NODE,
        boot_id=BOOT,
        sequence=sequence,
        observed_at=at,
        interval_seconds=1.0,
        source=Source.SIMULATED,
        gpus=tuple(GpuReading(uuid=f"GPU-{i}", index=i, **values) for i in range(gpus)),
    )


def every_second(start: datetime, count: int, **overrides: Any) -> list[GpuSampled]:
    return [
        make_sample(start + timedelta(seconds=second), second, **overrides)
        for second in range(count)
    ]


def make_finished(
    windows: Sequence[tuple[datetime, datetime]], **overrides: Any
) -> AttemptFinished:
    fields: dict[str, Any] = {
        "message_id": new_id(),
        "occurred_at": utcnow(),
        "revision": 5,
        "experiment_id": new_id(),
        "attempt_id": new_id(),
        "attempt_number": 1,
        "task_id": new_id(),
        "executor_id": NODE,
        "reservation_id": new_id(),
        "epoch": 1,
        "outcome": AttemptOutcome.SUCCEEDED,
        "namespace": "default",
        "devices": (DeviceGrant(node_id=NODE, uuid="GPU-0", index=0, name="NVIDIA A100"),),
        "engine": EngineSpec(runtime=Runtime.PROCESS, engine="llama.cpp", model="m"),
        "started_at": windows[0][0],
        "finished_at": windows[-1][1],
        "windows": tuple(Window(started_at=a, finished_at=b) for a, b in windows),
        "benchmark": BenchmarkResult(
            tool=BenchmarkTool.BUILTIN,
            tool_version="1",
            simulated=False,
            levels=(),
            metrics=BenchmarkMetrics(mean_ttft=0.25, total_requests=3),
            elapsed_seconds=4.0,
        ),
    }
    return AttemptFinished(**{**fields, **overrides})


@dataclass
class World:
    """The bus and the database that the services under test use, seen by a plain client."""

    nats_url: str
    dsn: str
    client: Client

    def settings(self, **overrides: Any) -> ResultsSettings:
        return ResultsSettings(nats_url=self.nats_url, postgres_dsn=self.dsn, **overrides)

    @asynccontextmanager
    async def results(self, **overrides: Any) -> AsyncIterator[None]:
        async with create_service(self.settings(**overrides)).running():
            yield

    async def publish(self, *messages: Message) -> None:
        stream = self.client.jetstream()
        for message in messages:
            await stream.publish(subject_for(message), encode(message))

    async def ask(self, query: Query, view: Any) -> Any:
        reply = await self.client.request(subject_for(query), encode(query), timeout=15)
        return msgspec.msgpack.decode(reply.data, type=view)

    async def summary(self, event: AttemptFinished) -> SummaryView | Refused:
        found: SummaryView | Refused = await self.ask(
            GetSummary(experiment_id=event.experiment_id), SummaryView | Refused
        )
        return found

    async def summarized(self, event: AttemptFinished) -> SummaryView:
        found: list[SummaryView] = []

        async def is_there() -> bool:
            match await self.summary(event):
                case SummaryView() as view:
                    found.append(view)
            return bool(found)

        await eventually(is_there, what="the summary")
        return found[-1]

    async def complete(self, event: AttemptFinished, *, ticks: int) -> SummaryView:
        """The summary once it covers so many ticks; samples arrive in several batches."""
        view = await self.summarized(event)

        async def is_complete() -> bool:
            nonlocal view
            view = await self.summarized(event)
            return view.gpu_monitoring.sample_count == ticks

        await eventually(is_complete, what=f"a summary of {ticks} ticks")
        return view

    async def count(self, table: str) -> int:
        connection = await asyncpg.connect(self.dsn)
        try:
            count: int = await connection.fetchval(f"SELECT count(*) FROM results.{table}")
            return count
        finally:
            await connection.close()

    async def all_acknowledged(self) -> bool:
        """Whether the stream knows of every sample that it was stored."""
        stream = str(SAMPLES.name)
        info = await self.client.jetstream().consumer_info(stream, "results_store_samples")
        return (info.num_ack_pending, info.num_pending) == (0, 0)

    async def stored(self, rows: int) -> None:
        async def are_there() -> bool:
            return await self.count("stored_sample") >= rows

        await eventually(are_there, what=f"{rows} stored readings")

    async def told(self, view: SummaryView) -> ExperimentSummarized:
        """The event that told of a summary."""
        found: list[ExperimentSummarized] = []

        async def is_told() -> bool:
            found[:] = [
                told
                for told in await self.told_summaries()
                if (told.experiment_id, told.version) == (view.experiment_id, view.version)
            ]
            return bool(found)

        await eventually(is_told, what="the event of the summary")
        return found[0]

    async def told_summaries(self) -> list[ExperimentSummarized]:
        """Every `experiment_summarized` in the stream."""
        stream = self.client.jetstream()
        state = (await stream.stream_info(str(EVENTS.name))).state
        messages = [
            await stream.get_msg(str(EVENTS.name), seq=sequence)
            for sequence in range(state.first_seq, state.last_seq + 1)
        ]
        return [
            msgspec.msgpack.decode(message.data or b"", type=ExperimentSummarized)
            for message in messages
            if message.subject is not None and ".results." in message.subject
        ]
