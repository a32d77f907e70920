"""The questions of the public scale page of KAI-Scheduler, asked of our scheduler.

`python -m tests.benchmarks.scale_questions`, part of `make bench NAME=scale`. 500 nodes of 8 GPUs
that sample every second, nats-server, Postgres and one scheduler share this machine. KAI's own
figures stand beside ours; its nodes are kwok's, and it binds pods where we grant leases.

`kai_4000_s` (398): 4,000 requests of one GPU each, from the first that is sent until the last is
granted. `kai_never_s` (249.5): the fleet is full and 1,000 requests wait; a request that no node
can ever serve, until it is told so, with reasons. `kai_reclaim_s` (13.9): the fleet is full of what
another namespace holds beyond its guarantee; 64 requests of a namespace that is guaranteed as many
GPUs, until the last is granted. Holders release as soon as they hear that they have to.
`kai_gang512_s` (48.7): all is free again; 512 GPUs on 64 nodes, all or none, until granted.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from uuid import UUID

from rich.progress import Progress

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.namespaces import SetNamespace
from schemas.scheduler.reservations import (
    CancelReservation,
    ReservationGranted,
    ReservationPreempting,
    ReservationRejected,
)
from shared.ids import new_id
from shared.local_platform.embedded import EmbeddedPostgres
from shared.messaging.bus import Bus
from shared.testing import NatsServer, short_directory
from tests.benchmarks.scheduler import GPUS_PER_NODE, Clients, fleet, until_known
from tests.support.bus import connected_bus
from tests.support.processes.scheduler import scheduler_process

NODES: Final = 500
GPUS: Final = NODES * GPUS_PER_NODE
GANG_NODES: Final = 64
WAITING: Final = 1000
RECLAIMED: Final = 64
AT_ONCE: Final = 64
PATIENCE_SECONDS: Final = 600.0
HOUR: Final = 3600.0  # no lease ends meanwhile
ONE_GPU: Final = GpuRequest(preemptible=True, lease_ttl_seconds=HOUR, wait_timeout_seconds=HOUR)


async def at_most(count: int, calls: Iterable[Awaitable[None]]) -> None:
    """Run all, so many at once."""
    places = asyncio.Semaphore(count)

    async def run(call: Awaitable[None]) -> None:
        async with places:
            await call

    await asyncio.gather(*(run(call) for call in calls))


class Asker:
    """Asks for many GPUs at once, and remembers what was granted."""

    def __init__(self, bus: Bus, clients: Clients) -> None:
        self.bus = bus
        self.clients = clients
        self.grants: dict[UUID, ReservationGranted] = {}
        self.rejected: dict[UUID, asyncio.Event] = {}

    async def hear(self) -> None:
        async def on_preempting(event: ReservationPreempting) -> None:
            granted = self.grants.pop(event.reservation_id, None)
            if granted is not None:
                await self.clients.release(granted)

        async def on_rejected(event: ReservationRejected) -> None:
            assert event.reasons, event
            self.rejected.setdefault(event.reservation_id, asyncio.Event()).set()

        await self.clients.hear()
        await self.bus.listen(ReservationPreempting, on_preempting)
        await self.bus.listen(ReservationRejected, on_rejected)

    async def seconds_until_granted(
        self, count: int, request: GpuRequest, namespace: str = "default"
    ) -> float:
        expected = [self.clients.expect() for _ in range(count)]
        began = time.perf_counter()
        last = 0.0
        with Progress(transient=True) as progress:
            bar = progress.add_task(f"{count} requests", total=count)

            async def follow(grant: "asyncio.Future[tuple[float, ReservationGranted]]") -> None:
                nonlocal last
                at, granted = await asyncio.wait_for(grant, PATIENCE_SECONDS)
                self.grants[granted.reservation_id] = granted
                last = max(last, at - began)
                progress.advance(bar)

            following = asyncio.gather(*(follow(grant) for _, grant in expected))
            await at_most(
                AT_ONCE, (self.clients.request(one, request, namespace) for one, _ in expected)
            )
            await following
        return last

    async def seconds_until_rejected(self, request: GpuRequest) -> float:
        reservation_id = new_id()
        rejected = self.rejected.setdefault(reservation_id, asyncio.Event())
        began = time.perf_counter()
        await self.clients.request(reservation_id, request)
        await asyncio.wait_for(rejected.wait(), PATIENCE_SECONDS)
        return time.perf_counter() - began

    async def wait_in_vain(self, count: int) -> list[UUID]:
        waiting = [new_id() for _ in range(count)]
        await at_most(AT_ONCE, (self.clients.request(one, ONE_GPU) for one in waiting))
        return waiting

    async def cancel(self, reservation_ids: list[UUID]) -> None:
        async def cancel(reservation_id: UUID) -> None:
            command = CancelReservation(command_id=new_id(), reservation_id=reservation_id)
            await self.clients.send(command)

        await at_most(AT_ONCE, (cancel(one) for one in reservation_ids))

    async def release_all(self) -> None:
        grants = list(self.grants.values())
        self.grants.clear()
        await at_most(AT_ONCE, (self.clients.release(grant) for grant in grants))


async def measure(directory: Path) -> dict[str, float]:
    nats, postgres = NatsServer(directory / "nats"), EmbeddedPostgres(directory / "postgres")
    async with AsyncExitStack() as stack:
        await nats.start()
        stack.push_async_callback(nats.stop)
        dsn = await postgres.start()
        stack.push_async_callback(postgres.stop)
        url = nats.authenticated_url
        await stack.enter_async_context(scheduler_process(url, dsn, directory))
        bus = await stack.enter_async_context(connected_bus(url, "benchmark"))
        asker = Asker(bus, Clients(bus))
        await asker.hear()
        await stack.enter_async_context(fleet(bus, NODES))
        await until_known(bus, NODES)

        figures = {"kai_4000_s": await asker.seconds_until_granted(GPUS, ONE_GPU)}
        print(figures, flush=True)
        waiting = await asker.wait_in_vain(WAITING)
        never = GpuRequest(gpus=GPUS_PER_NODE, nodes=NODES // 2, min_memory_mb=500_000)
        figures["kai_never_s"] = await asker.seconds_until_rejected(never)
        await asker.cancel(waiting)
        print(figures, flush=True)
        guaranteed = SetNamespace(
            command_id=new_id(), namespace="guaranteed", guaranteed_gpus=float(RECLAIMED)
        )
        await asker.clients.send(guaranteed)
        figures["kai_reclaim_s"] = await asker.seconds_until_granted(
            RECLAIMED, ONE_GPU, "guaranteed"
        )
        print(figures, flush=True)
        await asker.release_all()
        gang = GpuRequest(
            gpus=GPUS_PER_NODE, nodes=GANG_NODES, lease_ttl_seconds=HOUR, wait_timeout_seconds=HOUR
        )
        figures["kai_gang512_s"] = await asker.seconds_until_granted(1, gang)
    return {name: round(seconds, 3) for name, seconds in figures.items()}


if __name__ == "__main__":
    with short_directory() as home:
        print(json.dumps(asyncio.run(measure(home))))
