"""The scheduler under load: engine, grants over the bus, failover.

`make bench NAME=scheduler`. It reports and never fails a test. Everything shares this machine:
nats-server, Postgres (as the product ships it, waiting for the disk), the scheduler as a process of
its own, and this process, which is the clients and the 100 nodes with 8 GPUs each that sample every
second. The last line is one JSON object:

`decisions_per_s_default`, `decisions_per_s_density`, `decision_p99_ms`,
`decision_cost_ratio_10k_waiting`: the engine alone
(`tests.benchmarks.scheduler_engine`). `grant_p99_ms`: request published to grant received, with 25
requests a second arriving whether or not the last was served. `grants_per_s`: grants and releases
together, 64 clients at once. `grants_over_bare_postgres`: that rate over what bare transactions
with the same rows reach on as many connections (`tests.benchmarks.bare_postgres`).
`release_to_grant_p99_ms`: release published to the grant of whoever waits for those GPUs.
`failover_s`: the leader is killed, until a request made after that is granted; the worst of
several.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, Final
from uuid import UUID

import msgspec
import psutil
from nats.aio.msg import Msg
from rich.console import Console
from rich.table import Table

from schemas.base import Command, pattern_for
from schemas.errors import Accepted
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import (
    ReleaseReservation,
    RequestReservation,
    ReservationGranted,
)
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from schemas.telemetry.readings import GetSnapshot
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.local_platform.embedded import EmbeddedPostgres
from shared.messaging.bus import Bus
from shared.messaging.codec import encode
from shared.testing import NatsServer, eventually, short_directory
from shared.waiting import cancel_and_wait
from tests.benchmarks.bare_postgres import rate_per_second
from tests.support.bus import connected_bus
from tests.support.processes.scheduler import SchedulerProcess, scheduler_process
from tests.support.worlds.scheduler import FakeGpu, FakeNode

NODES: Final = 100
GPUS_PER_NODE: Final = 8
CLIENTS: Final = 64
CONNECTIONS: Final = 6  # as the scheduler has
WARM_UP: Final = 50
GRANTS: Final = 400
ARRIVALS_PER_SECOND: Final = 25
RELEASES: Final = 200
LOAD_SECONDS: Final = 15.0
FAILOVERS: Final = 3
PATIENCE_SECONDS: Final = 60.0


@dataclass(slots=True)
class Clients:
    """Everybody who asks for GPUs, on one connection."""

    bus: Bus
    unanswered: int = 0
    _granted: dict[UUID, asyncio.Future[tuple[float, ReservationGranted]]] = field(
        default_factory=dict
    )

    async def hear(self) -> None:
        decode = msgspec.msgpack.Decoder(ReservationGranted).decode

        async def on_granted(raw: Msg) -> None:
            now = time.perf_counter()
            event = decode(raw.data)
            waiting = self._granted.pop(event.reservation_id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result((now, event))

        await self.bus.nats.subscribe(pattern_for(ReservationGranted), cb=on_granted)

    def expect(self) -> tuple[UUID, "asyncio.Future[tuple[float, ReservationGranted]]"]:
        """A new reservation's id, and its grant to come."""
        reservation_id = new_id()
        self._granted[reservation_id] = asyncio.get_running_loop().create_future()
        return reservation_id, self._granted[reservation_id]

    async def request(
        self, reservation_id: UUID, request: GpuRequest, namespace: str = "default"
    ) -> None:
        command = RequestReservation(
            command_id=new_id(),
            reservation_id=reservation_id,
            namespace=namespace,
            holder="benchmark",
            request=request,
        )
        await self.send(command)

    async def send(self, command: Command) -> None:
        """Send a command, again under the same id while nobody answers, as clients do."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = await self.bus.request(command)
            except UnavailableError:
                self.unanswered += 1
                if time.monotonic() > give_up_at:
                    raise
                continue
            assert isinstance(answer, Accepted), answer
            return

    async def release(self, granted: ReservationGranted) -> None:
        command = ReleaseReservation(
            command_id=new_id(), reservation_id=granted.reservation_id, epoch=granted.epoch
        )
        await self.send(command)

    async def use(self, request: GpuRequest = GpuRequest()) -> float:  # noqa: B008  # frozen
        """Request, wait for the grant, release; seconds from request to grant."""
        reservation_id, grant = self.expect()
        began = time.perf_counter()
        await self.request(reservation_id, request)
        at, granted = await asyncio.wait_for(grant, 60)
        await self.release(granted)
        return at - began


@asynccontextmanager
async def fleet(bus: Bus, count: int = NODES) -> AsyncIterator[list[FakeNode]]:
    """Nodes that have reported, sample every second and answer snapshots."""
    nodes = [
        FakeNode(bus, name, [FakeGpu(f"GPU-{name}-{i}", i) for i in range(GPUS_PER_NODE)])
        for name in (f"node-{number:03}" for number in range(count))
    ]
    by_name = {node.node_id: node for node in nodes}

    async def answer(raw: Msg) -> None:
        await raw.respond(encode(by_name[raw.subject.rpartition(".")[2]].sample()))

    await bus.nats.subscribe(pattern_for(GetSnapshot), cb=answer)
    for node in nodes:
        await node.report_inventory()

    async def sample(node: FakeNode, delay: float) -> None:
        await asyncio.sleep(delay)
        await node.keep_sampling()

    tasks = [asyncio.create_task(sample(n, i / count)) for i, n in enumerate(nodes)]
    try:
        yield nodes
    finally:
        await cancel_and_wait(*tasks)


async def until_known(bus: Bus, nodes: int) -> None:
    """Wait until the scheduler has fresh readings of all the nodes' GPUs."""

    async def is_known() -> bool:
        query, devices = GetAllocationMap(), 0
        while True:
            page = await bus.query(query, AllocationMap, timeout_seconds=10)
            devices += sum(len(node.devices) for node in page.nodes if node.fresh)
            if page.next_after_node_id is None:
                return devices >= nodes * GPUS_PER_NODE
            query = GetAllocationMap(after_node_id=page.next_after_node_id)

    await eventually(is_known, within_seconds=120, every_seconds=0.5, what="the whole fleet")


async def grant_latencies(clients: Clients) -> list[float]:
    """Requests that arrive by the clock, each released when it was granted."""
    tasks = []
    for _ in range(GRANTS):
        tasks.append(asyncio.create_task(clients.use()))
        await asyncio.sleep(1 / ARRIVALS_PER_SECOND)
    return list(await asyncio.gather(*tasks))


async def release_latencies(clients: Clients) -> list[float]:
    """A whole node is passed on from one to the next, who always waits already."""
    node = GpuRequest(gpus=GPUS_PER_NODE, node_ids=("node-000",))
    reservation_id, grant = clients.expect()
    await clients.request(reservation_id, node)
    _, holder = await asyncio.wait_for(grant, 60)
    seconds = []
    for _ in range(RELEASES):
        reservation_id, grant = clients.expect()
        await clients.request(reservation_id, node)
        await asyncio.sleep(0.02)
        began = time.perf_counter()
        await clients.release(holder)
        at, holder = await asyncio.wait_for(grant, 60)
        seconds.append(at - began)
    await clients.release(holder)
    return seconds


async def throughput(
    clients: Clients, processes: dict[str, psutil.Process], seconds_of_load: float = LOAD_SECONDS
) -> dict[str, float]:
    """Grants and releases per second, and what each process used of a core meanwhile."""
    deadline = time.monotonic() + seconds_of_load
    before = {name: _cpu_seconds(process) for name, process in processes.items()}

    async def client() -> int:
        done = 0
        while time.monotonic() < deadline:
            await clients.use()
            done += 2
        return done

    began = time.monotonic()
    counts = await asyncio.gather(*(client() for _ in range(CLIENTS)))
    seconds = time.monotonic() - began
    used = {
        f"{name}, cores": (_cpu_seconds(process) - before[name]) / seconds
        for name, process in processes.items()
    }
    return {"grants and releases per second": sum(counts) / seconds, **used}


async def failover_seconds(clients: Clients, leader: SchedulerProcess) -> float:
    """From the leader's death to the grant of a request made after it."""
    leader.kill()
    began = time.perf_counter()
    while True:
        reservation_id, grant = clients.expect()
        command = RequestReservation(command_id=new_id(), reservation_id=reservation_id)
        try:
            await clients.bus.request(command, timeout_seconds=0.2)
            at, granted = await asyncio.wait_for(grant, 60)
        except Exception:  # noqa: BLE001  # the dead one may still be asked
            await asyncio.sleep(0.01)
            continue
        await clients.release(granted)
        return at - began


def _cpu_seconds(process: psutil.Process) -> float:
    # Of Postgres every connection is a process; those of this one are counted by themselves.
    is_own = process.pid == os.getpid()
    family = [process, *([] if is_own else process.children(recursive=True))]
    return sum(sum(one.cpu_times()[:2]) for one in family)


def p99_ms(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[98] * 1000


@dataclass(frozen=True)
class World:
    """A fleet, its clients, a scheduler that knows all of it, and what starts one more."""

    clients: Clients
    dsn: str
    leader: SchedulerProcess
    processes: dict[str, psutil.Process]
    start: Callable[[], Awaitable[SchedulerProcess]]


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    """Yield a warm world; its files lie in the directory."""
    nats, postgres = NatsServer(directory / "nats"), EmbeddedPostgres(directory / "postgres")
    async with AsyncExitStack() as stack:
        await nats.start()
        stack.push_async_callback(nats.stop)
        dsn = await postgres.start()
        stack.push_async_callback(postgres.stop)
        url = nats.authenticated_url

        async def start() -> SchedulerProcess:
            process = scheduler_process(url, dsn, directory)
            return await stack.enter_async_context(process)

        leader = await start()
        bus = await stack.enter_async_context(connected_bus(url, "benchmark"))
        clients = Clients(bus)
        await clients.hear()
        await stack.enter_async_context(fleet(bus))

        await until_known(bus, NODES)
        await asyncio.gather(*(clients.use() for _ in range(WARM_UP)))
        assert postgres.pid is not None
        processes = {
            "scheduler": psutil.Process(leader.process.pid),
            "postgres": psutil.Process(postgres.pid),
            "nats-server": psutil.Process(nats.pid),
            "clients and nodes": psutil.Process(),
        }
        yield World(clients, dsn, leader, processes, start)


async def measure(directory: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """Everything over the bus: a table, and the figures."""
    async with world(directory) as around:
        clients, leader = around.clients, around.leader
        grants = await grant_latencies(clients)
        releases = await release_latencies(clients)
        load = await throughput(clients, around.processes)
        failovers = []
        for _ in range(FAILOVERS):
            standby = await around.start()
            await asyncio.sleep(1.5)
            failovers.append(await failover_seconds(clients, leader))
            leader = standby
        bare = await rate_per_second(around.dsn, CONNECTIONS, LOAD_SECONDS / 2)
    rate = load["grants and releases per second"]
    table = {
        "request to grant, p50 ms": quantiles(grants, n=100)[49] * 1000,
        "request to grant, p99 ms": p99_ms(grants),
        "release to next grant, p50 ms": quantiles(releases, n=100)[49] * 1000,
        "release to next grant, p99 ms": p99_ms(releases),
        **load,
        f"bare transactions per second, {CONNECTIONS} connections": bare,
        "failover, worst s": max(failovers),
    }
    figures = {
        "grants_per_s": round(rate),
        "grants_over_bare_postgres": round(rate / bare, 2),
        "grant_p99_ms": round(p99_ms(grants), 1),
        "release_to_grant_p99_ms": round(p99_ms(releases), 1),
        "failover_s": round(max(failovers), 2),
    }
    return table, figures


def engine_figures() -> dict[str, Any]:
    """The engine's own benchmark, run before anything else uses the machine."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.scheduler_engine"],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Measure, print the table, print the JSON line."""
    engine = engine_figures() if "--service" not in sys.argv else {}
    with short_directory() as directory:
        table, figures = asyncio.run(measure(directory))
    console = Console()
    shown = Table("figure", "", title=f"{NODES} nodes, {NODES * GPUS_PER_NODE} GPUs")
    for name, value in table.items():
        shown.add_row(name, f"{value:.2f}" if value < 10 else f"{value:.0f}")
    console.print(shown)
    sys.stdout.write(json.dumps({**engine, **figures}) + "\n")


if __name__ == "__main__":
    main()
