"""One trace from a task's submission to its result, as a collector of OpenTelemetry receives it."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from shared.testing import eventually, short_directory
from tests.support.processes.platform import PlatformProcess, quick_task

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
# What services did for one of its experiments, by who did it.
WAY = {
    ("gpusteward-gateway", "HTTP POST"),
    ("gpusteward-orchestrator", "orchestrator.submit_task"),
    ("gpusteward-scheduler", "scheduler.request_reservation"),
    ("gpusteward-orchestrator", "scheduler.reservation_granted"),
    ("gpusteward-executor", "executor.start_experiment"),
    ("gpusteward-orchestrator", "executor.attempt_started"),
    ("gpusteward-orchestrator", "executor.attempt_phase_changed"),
    ("gpusteward-results", "executor.attempt_finished"),
    ("gpusteward-orchestrator", "results.experiment_summarized"),
}


@dataclass
class Collector:
    """Spans as (service, name), by the id of their trace."""

    traces: dict[bytes, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))

    async def take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for resource in sent.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.traces[span.trace_id].add((named["service.name"], span.name))
        return web.Response()


@asynccontextmanager
async def a_collector() -> AsyncIterator[tuple[Collector, str]]:
    collector, application = Collector(), web.Application()
    application.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_one_trace_spans_submission_to_result() -> None:
    async with a_collector() as (collector, endpoint):
        with short_directory() as directory:
            platform = PlatformProcess(
                directory / "data", environment={"GPUSTEWARD_TRACES_ENDPOINT": endpoint}
            )
            try:
                await platform.start()
                task = {**quick_task("traced"), "parameters": {"ttft-seconds": [0.005]}}
                status, _ = await platform.request("POST", "/api/v1/tasks", task)
                await eventually(
                    lambda: any(spans >= WAY for spans in collector.traces.values()),
                    within_seconds=120,
                    every_seconds=0.2,
                    what="a trace of the whole way",
                )
            finally:
                await asyncio.shield(platform.stop())

    assert status in {200, 201, 202}
