"""The whole platform: request to grant over the bus, memory when idle, and the demo's wall time.

`make bench NAME=main`. It reports and never fails a test. The last line is one JSON object:
`grant_p99_ms` (request published to grant received, free GPUs, one after another), `idle_rss_mb`
(proportional set size of all our processes, the two servers not counted), `idle_unshared_mb` (the
part of it that each has alone), `idle_compact_mb` (as `idle_rss_mb`, with `up --compact`) and
`demo_warm_s` (`gpusteward demo` from start to end, everything installed).
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import psutil
from rich.console import Console
from rich.table import Table

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import (
    ReleaseReservation,
    RequestReservation,
    ReservationGranted,
)
from shared.ids import new_id
from shared.messaging.bus import Bus
from shared.testing import short_directory
from tests.support.bus import connected_bus
from tests.support.processes.platform import PlatformProcess, marked_processes

GRANTS: Final = 200
WARM_UP: Final = 20
SETTLE_SECONDS: Final = 5.0
SERVERS: Final = ("nats-server", "postgres")


async def grant_latencies_ms(bus: Bus) -> list[float]:
    """Request a GPU, wait for its grant, release it; one after another."""
    granted: dict[UUID, asyncio.Future[ReservationGranted]] = {}

    async def on_granted(event: ReservationGranted) -> None:
        waiting = granted.get(event.reservation_id)
        if waiting is not None and not waiting.done():  # an event may come twice
            waiting.set_result(event)

    await bus.listen(ReservationGranted, on_granted)
    latencies = []
    for _ in range(WARM_UP + GRANTS):
        reservation = new_id()
        granted[reservation] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        await bus.request(
            RequestReservation(
                command_id=new_id(),
                reservation_id=reservation,
                holder="benchmark",
                request=GpuRequest(gpus=1),
            )
        )
        event = await asyncio.wait_for(granted[reservation], 30)
        latencies.append((time.perf_counter() - began) * 1000)
        await bus.request(
            ReleaseReservation(command_id=new_id(), reservation_id=reservation, epoch=event.epoch)
        )
    return latencies[WARM_UP:]


class Memory(NamedTuple):
    """A process's memory in MiB: shared pages divided among those who share them, and without."""

    proportional: float
    unshared: float


def memory_of(process: psutil.Process) -> Memory:
    """Read how much a process holds."""
    info = process.memory_full_info()
    return Memory(float(info.pss) / 2**20, float(info.uss) / 2**20)


def label(process: psutil.Process) -> str:
    """A process's role, from its command line."""
    line = process.cmdline()
    for word in reversed(line):
        if word.startswith("services."):
            return word
    return Path(line[0]).name if line else process.name()


async def idle_memory(platform: PlatformProcess) -> dict[str, Memory]:
    """Return the memory of each of a platform's processes, the servers left out, once it rests."""
    await asyncio.sleep(SETTLE_SECONDS)
    processes = marked_processes(str(platform.directory.installation_id()))
    assert platform.process is not None
    processes.append(psutil.Process(platform.process.pid))
    return {
        f"{label(process)} ({process.pid})": memory_of(process)
        for process in {p.pid: p for p in processes}.values()
        if not process.name().startswith(SERVERS)
    }


async def measure_compact_memory() -> float:
    """Return the idle memory of a compact platform, in MiB."""
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data", arguments=("--simulate", "--compact"))
        await platform.start()
        try:
            memory = await idle_memory(platform)
        finally:
            await platform.stop()
    return sum(each.proportional for each in memory.values())


async def measure_platform() -> tuple[list[float], dict[str, Memory]]:
    """Grant latencies and the idle memory of each process."""
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data")
        await platform.start()
        try:
            endpoint = platform.directory.read_endpoint()
            assert endpoint is not None
            assert endpoint.nats_url is not None
            async with connected_bus(
                endpoint.nats_url,
                "benchmark",
                str(platform.directory.nats / "users" / "gateway.json"),
            ) as bus:
                latencies = await grant_latencies_ms(bus)
            memory = await idle_memory(platform)
            return latencies, memory
        finally:
            await platform.stop()


def measure_demo() -> float:
    """Wall time of a whole demo in a data directory that exists already, in seconds."""
    with short_directory() as directory:
        environment = {**os.environ, "GPUSTEWARD_DATA_DIR": str(directory / "data")}
        began = 0.0
        for _ in range(2):
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "services.cli", "demo", "--exit"],
                check=True,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
            )
        return time.perf_counter() - began


def main() -> None:
    """Measure, print the tables, print the JSON line."""
    latencies, memory = asyncio.run(measure_platform())
    compact = asyncio.run(measure_compact_memory())
    demo_seconds = measure_demo()
    quantiles = statistics.quantiles(latencies, n=100)
    console = Console()
    grants = Table("request to grant", "ms", title=f"{GRANTS} grants, free GPUs, one in flight")
    for name, value in (("p50", quantiles[49]), ("p90", quantiles[89]), ("p99", quantiles[98])):
        grants.add_row(name, f"{value:.1f}")
    console.print(grants)
    total = Memory(*map(sum, zip(*memory.values(), strict=True)))
    sizes = Table("process", "PSS MiB", "of it unshared", title="idle memory")
    for name, size in [
        *sorted(memory.items(), key=lambda item: -item[1].proportional),
        ("all", total),
    ]:
        sizes.add_row(name, f"{size.proportional:.0f}", f"{size.unshared:.0f}")
    sizes.add_row("all with --compact", f"{compact:.0f}", "")
    console.print(sizes)
    result = {
        "grant_p99_ms": round(quantiles[98], 1),
        "idle_rss_mb": round(total.proportional),
        "idle_unshared_mb": round(total.unshared),
        "idle_compact_mb": round(compact),
        "demo_warm_s": round(demo_seconds, 1),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
