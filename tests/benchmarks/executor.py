"""Containers beside the bare engine, what a kill leaves behind, and genai-bench's own time.

`make bench NAME=executor`. It reports and never fails a test; what cannot be measured here is null.
The last line is one JSON object:
`start_overhead_ms` (an attempt from its start command to an engine that answers, less the same
image made, started and awaited through the bare SDK; medians of runs that alternate),
`orphan_gone_s` (SIGKILL of the executor to its container removed by the next one, whose start
counts; worst of 20 kills at random moments) and `genai_bench_overhead_s` (wall time around
genai-bench less the runs that it measured).
"""

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import docker
from docker.models.containers import Container
from rich.console import Console
from rich.progress import track
from rich.table import Table

from schemas.executor.attempts import AttemptPhaseChanged, StartExperiment
from services.executor.app import create_service
from services.executor.settings import ExecutorSettings
from shared.testing import NatsServer, eventually, short_directory
from tests.benchmarks import genai_bench
from tests.support.docker.images import engine_image, stub_engines_file
from tests.support.docker.private_engine import PrivateEngine, missing, private_engine
from tests.support.worlds.executor import (
    Scheduler,
    executor_process,
    make_cancel,
    make_endless_start,
    make_settings,
    scheduling,
    until_answering,
)
from tests.support.worlds.runtime_launches import start_of

STARTS: Final = 12
KILLS: Final = 20
POLL_SECONDS: Final = 0.01
IMAGE: Final = "vllm/vllm-openai:bench"
ENDLESS: Final = {"ttft-seconds": 0.01, "tpot-seconds": 0.05}


def container_start() -> StartExperiment:
    """An attempt in a container that measures until it is stopped."""
    endless = make_endless_start()
    return start_of(
        "vllm", dict(ENDLESS), image_tag="bench", benchmark=endless.benchmark, timeout_seconds=600.0
    )


async def until_served(port: int) -> None:
    """Wait until the engine at this port answers."""
    async with aiohttp.ClientSession(trust_env=False) as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/health") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(POLL_SECONDS)


async def bare_start_s(client: docker.DockerClient) -> float:
    """The engine's own time for the same image: made, started, answering."""

    def run() -> Container:
        return client.containers.run(  # type: ignore[call-overload,no-any-return]  # None: any port
            IMAGE,
            ["m", "--port", "8000", "--host", "0.0.0.0"],  # noqa: S104  # inside the container
            detach=True,
            ports={"8000/tcp": ("127.0.0.1", None)},
        )

    began = time.perf_counter()
    container = await asyncio.to_thread(run)
    try:
        await asyncio.to_thread(container.reload)
        [published] = container.ports["8000/tcp"] or []
        port = int(published["HostPort"])
        await until_served(port)
        return time.perf_counter() - began
    finally:
        await asyncio.to_thread(container.remove, force=True)


async def attempt_start_s(scheduler: Scheduler) -> float:
    """An attempt from its command to the first phase after loading."""
    start = container_start()
    seen = asyncio.Event()

    async def note(event: AttemptPhaseChanged) -> None:
        if event.attempt_id == start.attempt_id and event.phase in {"warming_up", "measuring"}:
            seen.set()

    await scheduler.bus.listen(AttemptPhaseChanged, note)
    await scheduler.bus.flush()
    began = time.perf_counter()
    await scheduler.ask(start)
    async with asyncio.timeout(60):
        await seen.wait()
    took = time.perf_counter() - began
    await scheduler.ask(make_cancel(start))
    await scheduler.finished(start)
    return took


async def start_times(
    scheduler: Scheduler, engine: PrivateEngine, settings: ExecutorSettings
) -> tuple[list[float], list[float]]:
    """Bare and ours, alternating."""
    bare: list[float] = []
    ours: list[float] = []
    async with create_service(settings).running():
        for _ in track(range(STARTS), "starts", console=Console(stderr=True)):
            bare.append(await bare_start_s(engine.client))
            ours.append(await attempt_start_s(scheduler))
    return bare, ours


async def kill_times(
    scheduler: Scheduler, engine: PrivateEngine, settings: ExecutorSettings
) -> list[float]:
    """From each SIGKILL until the dead executor's container is gone."""
    dice = random.Random(1)
    found: list[float] = []
    for _ in track(range(KILLS), "kills", console=Console(stderr=True)):
        start = container_start()
        with executor_process(settings) as victim:
            await until_answering(scheduler)
            await scheduler.ask(start)
            await eventually(lambda: bool(ids(engine)), within_seconds=30)
            await asyncio.sleep(dice.uniform(0.0, 1.5))
            victim.kill()
            killed_at = time.perf_counter()
        with executor_process(settings):
            await eventually(lambda: not ids(engine), within_seconds=60)
            found.append(time.perf_counter() - killed_at)
            await scheduler.finished(start)
    return found


def ids(engine: PrivateEngine) -> list[str]:
    return [each["Id"] for each in engine.client.api.containers(all=True)]


@asynccontextmanager
async def surroundings(engine: PrivateEngine) -> AsyncIterator[tuple[Scheduler, ExecutorSettings]]:
    """A bus, a scheduler that agrees, and the settings of an executor on this engine."""
    with short_directory() as directory:
        server = NatsServer(directory / "nats")
        await server.start()
        try:
            settings = make_settings(
                server.authenticated_url,
                Path(directory) / "data",
                docker_host=engine.base_url,
                engines_file=stub_engines_file(directory),
            )
            async with scheduling(settings) as scheduler:
                yield scheduler, settings
        finally:
            await server.stop()


async def containers() -> tuple[float | None, float | None]:
    """`start_overhead_ms` and `orphan_gone_s`, with their tables."""
    if (reason := missing()) is not None:
        sys.stderr.write(f"no containers are measured: {reason}\n")
        return None, None
    with private_engine() as engine:
        engine_image(engine.client, IMAGE, entrypoint=["vllm", "serve"])
        async with surroundings(engine) as (scheduler, settings):
            bare, ours = await start_times(scheduler, engine, settings)
            gone = await kill_times(scheduler, engine, settings)
    table = Table(title="Containers, seconds")
    for column in ("", "median", "worst", "runs"):
        table.add_column(column, justify="left" if not column else "right")
    for name, values in (
        ("made, started, answering: bare SDK", bare),
        ("start command to answering: attempt", ours),
        ("killed executor's container gone", gone),
    ):
        table.add_row(
            name, f"{statistics.median(values):.3f}", f"{max(values):.3f}", str(len(values))
        )
    Console().print(table)
    return (statistics.median(ours) - statistics.median(bare)) * 1000, max(gone)


async def main() -> None:
    overhead_ms, gone_s = await containers()
    tool_s = await asyncio.to_thread(genai_bench.overhead_s)
    print(
        json.dumps(
            {
                "start_overhead_ms": None if overhead_ms is None else round(overhead_ms, 1),
                "orphan_gone_s": None if gone_s is None else round(gone_s, 2),
                "genai_bench_overhead_s": None if tool_s is None else round(tool_s, 2),
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
