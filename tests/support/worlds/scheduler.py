"""What a test of the scheduler needs around it: nodes that report, a client, events as they pass.

The nodes are fakes, because the hardware is missing; what they publish goes over the real bus.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, Union
from uuid import UUID

import asyncpg
import msgspec
from nats.aio.msg import Msg

from schemas.base import PREFIX, Event, pattern_for, tag_of
from schemas.catalog import EVENTS
from schemas.errors import Accepted, Refused, Reply
from schemas.executor.attempts import AttemptPhase, ExecutorReported, FenceReservation
from schemas.executor.engine_samples import EngineReading, EngineSampled
from schemas.executor.running import ListRunning, RunningAttempts, RunningWorkload
from schemas.gpus.gpu_request import GpuRequest
from schemas.gpus.mig import MigLayout
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationGranted,
    ReservationState,
)
from schemas.scheduler.views import AllocationMap, GetAllocationMap, GetReservation, ReservationView
from schemas.telemetry.readings import (
    DeviceFacts,
    FaultSeen,
    GetSnapshot,
    GpuLink,
    GpuProcess,
    GpuReading,
    GpuSampled,
    HealthChanged,
    HealthKind,
    HealthState,
    HostFacts,
    InventoryReported,
    Source,
)
from services.scheduler.app import create_service
from services.scheduler.settings import SchedulerSettings
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.bus import Bus
from shared.messaging.codec import encode
from shared.service import Service
from shared.testing import DEADLINE_SECONDS, eventually
from shared.waiting import cancel_and_wait
from tests.support.bus import connected_bus
from tests.support.idle_clock import Clock

E = TypeVar("E", bound=Event)
TOTAL_MB = 80_000
_SCHEDULER_EVENTS = tuple(event for event in EVENTS if tag_of(event).startswith("scheduler."))


@dataclass(slots=True)
class FakeGpu:
    """A GPU as its node would report it."""

    uuid: str
    index: int
    name: str = "NVIDIA H100 80GB HBM3"
    memory_total_mb: int = TOTAL_MB
    memory_used_mb: int | None = 0
    utilization_percent: float | None = 0.0
    health: HealthState = HealthState.OK
    processes: tuple[GpuProcess, ...] | None = None
    mig_enabled: bool | None = None
    parent_uuid: str | None = None
    mig_profile: str | None = None
    mig_layout: MigLayout | None = None
    simulated: bool = True

    def reading(self) -> GpuReading:
        used = self.memory_used_mb
        return GpuReading(
            uuid=self.uuid,
            index=self.index,
            utilization_percent=self.utilization_percent,
            memory_total_mb=self.memory_total_mb,
            memory_used_mb=used,
            memory_free_mb=self.memory_total_mb - used if used is not None else None,
            name=self.name,
            processes=self.processes,
        )


@dataclass(slots=True)
class FakeNode:
    """A fake node agent and executor: reports inventory and samples, answers snapshots and fences.

    A reservation listed in `loads` keeps its GPU busy until a snapshot names it as released.
    """

    bus: Bus
    node_id: str
    gpus: list[FakeGpu]
    interval_seconds: float = 1.0
    cpu_count: int | None = None
    clock_off_by: timedelta = timedelta()
    labels: dict[str, str] = field(default_factory=dict)
    links: tuple[GpuLink, ...] = ()
    boot_id: UUID = field(default_factory=new_id)
    sequence: int = 0
    inventory_revision: int = 0
    loads: dict[UUID, FakeGpu] = field(default_factory=dict)
    faults: dict[str, tuple[FaultSeen, ...]] = field(default_factory=dict)
    snapshots: list[GetSnapshot] = field(default_factory=list)
    fences: list[FenceReservation] = field(default_factory=list)
    workloads: dict[UUID, tuple[int, ...]] = field(default_factory=dict)
    answer_fence: Callable[[FenceReservation], Reply] = lambda command: Accepted(
        command_id=command.command_id
    )

    async def report_inventory(self) -> InventoryReported:
        self.inventory_revision += 1
        event = InventoryReported(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=self.inventory_revision,
            node_id=self.node_id,
            boot_id=self.boot_id,
            source=Source.SIMULATED,
            interval_seconds=self.interval_seconds,
            host=HostFacts(hostname=self.node_id, cpu_count=self.cpu_count),
            labels=self.labels,
            links=self.links,
            devices=tuple(
                DeviceFacts(
                    uuid=gpu.uuid,
                    index=gpu.index,
                    name=gpu.name,
                    memory_total_mb=gpu.memory_total_mb,
                    simulated=gpu.simulated,
                    health=gpu.health,
                    mig_enabled=gpu.mig_enabled,
                    parent_uuid=gpu.parent_uuid,
                    mig_profile=gpu.mig_profile,
                    mig_layout=gpu.mig_layout,
                    recent_faults=self.faults.get(gpu.uuid, ()),
                )
                for gpu in self.gpus
            ),
        )
        await self.bus.publish_event(event)
        return event

    async def report_stop(self) -> None:
        """As an agent's last word."""
        await self.bus.publish_event(
            HealthChanged(
                message_id=new_id(),
                occurred_at=utcnow(),
                revision=self.inventory_revision + 1,
                node_id=self.node_id,
                boot_id=self.boot_id,
                change=HealthKind.AGENT_STOPPED,
            )
        )

    def sample(self) -> GpuSampled:
        """The next tick; a loaded GPU is full."""
        self.sequence += 1
        busy = {gpu.uuid for gpu in self.loads.values()}
        return GpuSampled(
            node_id=self.node_id,
            boot_id=self.boot_id,
            sequence=self.sequence,
            observed_at=utcnow() + self.clock_off_by,
            interval_seconds=self.interval_seconds,
            source=Source.SIMULATED,
            gpus=tuple(
                msgspec.structs.replace(gpu.reading(), utilization_percent=100.0, memory_free_mb=0)
                if gpu.uuid in busy
                else gpu.reading()
                for gpu in self.gpus
            ),
        )

    async def answer_running(self) -> None:
        """Answer with `workloads` as labelled processes, and report that there is an executor."""

        async def answer(raw: Msg) -> None:
            labelled = tuple(
                RunningWorkload(reservation_id=k, pids=v) for k, v in self.workloads.items()
            )
            view = RunningAttempts(
                executor_id=self.node_id, boot_id=self.boot_id, attempts=(), workloads=labelled
            )
            await raw.respond(encode(view))

        await self.bus.nats.subscribe(pattern_for(ListRunning, self.node_id), cb=answer)
        await self.bus.publish_event(
            ExecutorReported(
                message_id=new_id(),
                occurred_at=utcnow(),
                revision=1,
                executor_id=self.node_id,
                boot_id=self.boot_id,
                runtimes=(),
                benchmark_tools=(),
                largest_epoch=0,
            )
        )

    async def publish_sample(self) -> None:
        await self.bus.publish_live(self.sample())

    async def publish_engine(self, granted: ReservationGranted, reading: EngineReading) -> None:
        """As the executor publishes what the engine of an attempt reports."""
        self.sequence += 1
        await self.bus.publish_live(
            EngineSampled(
                node_id=self.node_id,
                experiment_id=granted.reservation_id,
                attempt_id=granted.reservation_id,
                task_id=granted.reservation_id,
                reservation_id=granted.reservation_id,
                epoch=granted.epoch,
                sequence=self.sequence,
                observed_at=utcnow(),
                interval_seconds=10.0,
                phase=AttemptPhase.MEASURING,
                engine="vllm",
                reading=reading,
            )
        )

    async def keep_sampling(self) -> None:
        while True:
            await self.publish_sample()
            await asyncio.sleep(self.interval_seconds)

    async def answer_snapshots(self) -> None:
        async def answer(raw: Msg) -> None:
            query = msgspec.msgpack.decode(raw.data, type=GetSnapshot)
            self.snapshots.append(query)
            if query.released_reservation_id is not None:
                self.loads.pop(query.released_reservation_id, None)
            await raw.respond(encode(self.sample()))

        await self.bus.nats.subscribe(pattern_for(GetSnapshot, self.node_id), cb=answer)

    async def answer_fences(self) -> None:
        async def answer(raw: Msg) -> None:
            command = msgspec.msgpack.decode(raw.data, type=FenceReservation)
            self.fences.append(command)
            await raw.respond(encode(self.answer_fence(command)))

        await self.bus.nats.subscribe(pattern_for(FenceReservation, self.node_id), cb=answer)


@dataclass(slots=True)
class World:
    """A client's view: commands with their answers, and every scheduler event that has passed."""

    bus: Bus
    tasks: asyncio.TaskGroup
    clock: Clock = time.monotonic
    running: list[asyncio.Task[None]] = field(default_factory=list)
    events: list[tuple[float, Event]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)  # one of them, since last cleared
    new_nodes: dict[str, int] = field(default_factory=dict)  # with their GPUs

    async def subscribe(self) -> None:
        decode = msgspec.msgpack.Decoder(Union[_SCHEDULER_EVENTS]).decode  # noqa: UP007  # computed

        async def on_event(raw: Msg) -> None:
            # A scheduler that ends before it has recorded what it published publishes it once more.
            event = decode(raw.data)
            if all(event.message_id != earlier.message_id for _, earlier in self.events):
                self.events.append((self.clock(), event))
                self.arrived.set()

        await self.bus.nats.subscribe(f"{PREFIX}.evt.scheduler.>", cb=on_event)
        await self.bus.nats.flush()

    async def add_node(
        self,
        node_id: str,
        gpus: int | list[FakeGpu] = 2,
        *,
        samples: bool = True,
        snapshots: bool = True,
        executor: bool = True,
        **more: Any,
    ) -> FakeNode:
        """A node that has reported and keeps sampling."""
        if isinstance(gpus, int):
            gpus = [FakeGpu(uuid=f"GPU-{node_id}-{i}", index=i) for i in range(gpus)]
        node = FakeNode(bus=self.bus, node_id=node_id, gpus=gpus, **more)
        if snapshots:
            await node.answer_snapshots()
        if executor:
            await node.answer_fences()
        await self.bus.nats.flush()
        await node.report_inventory()
        self.new_nodes[node_id] = len(gpus)
        if samples:
            self.running.append(self.tasks.create_task(node.keep_sampling()))
        return node

    async def known(self, node_id: str, gpus: int) -> None:
        """Wait until the scheduler knows a node's devices and has its readings."""

        async def is_known() -> bool:
            seen = await self.bus.query(GetAllocationMap(), AllocationMap)
            return any(n.node_id == node_id and len(n.devices) == gpus for n in seen.nodes)

        await eventually(is_known, what=f"{node_id} to be known")

    async def request(self, request: GpuRequest | None = None, **more: Any) -> UUID:
        """Ask for GPUs; the reservation's id. Fails if the request was refused."""
        # What only a node that is not known yet could grant can never be granted.
        while self.new_nodes:
            await self.known(*self.new_nodes.popitem())
        command = RequestReservation(
            command_id=new_id(),
            reservation_id=more.pop("reservation_id", None) or new_id(),
            request=request or GpuRequest(),
            **more,
        )
        accepted(await self.bus.request(command))
        return command.reservation_id

    async def renew(
        self, granted: ReservationGranted, *, activate: bool = False, epoch: int | None = None
    ) -> Reply:
        return await self.bus.request(
            RenewReservation(
                command_id=new_id(),
                reservation_id=granted.reservation_id,
                epoch=epoch or granted.epoch,
                activate=activate,
            )
        )

    async def release(self, granted: ReservationGranted, *, stopped: bool = True) -> Reply:
        return await self.bus.request(
            ReleaseReservation(
                command_id=new_id(),
                reservation_id=granted.reservation_id,
                epoch=granted.epoch,
                stopped=stopped,
            )
        )

    async def cancel(self, reservation_id: UUID) -> Reply:
        return await self.bus.request(
            CancelReservation(command_id=new_id(), reservation_id=reservation_id)
        )

    async def view(self, reservation_id: UUID) -> ReservationView:
        return await self.bus.query(GetReservation(reservation_id=reservation_id), ReservationView)

    def seen(self, event: type[E], reservation_id: UUID | None = None) -> list[E]:
        """Events of a type that have passed, of one reservation or of any."""
        return [
            e
            for _, e in self.events
            if isinstance(e, event)
            and (reservation_id is None or getattr(e, "reservation_id", None) == reservation_id)
        ]

    def received_at(self, event: Event) -> float:
        """When it came, by `clock`."""
        return next(at for at, e in self.events if e is event)

    async def event(
        self,
        event: type[E],
        reservation_id: UUID | None = None,
        *,
        within_seconds: float = DEADLINE_SECONDS,
    ) -> E:
        """The first event of a type, when it comes."""
        try:
            async with asyncio.timeout(within_seconds):
                while not (found := self.seen(event, reservation_id)):
                    self.arrived.clear()
                    await self.arrived.wait()
        except TimeoutError:
            what = f"{event.__name__} of {reservation_id}"
            raise AssertionError(f"expected {what} within {within_seconds} s") from None
        return found[0]

    async def granted(self, reservation_id: UUID) -> ReservationGranted:
        return await self.event(ReservationGranted, reservation_id)

    async def waiting(self, reservation_id: UUID, *codes: ReasonCode) -> ReservationView:
        """The reservation, once it waits for all of these reasons."""
        found: list[ReservationView] = []

        async def waits() -> bool:
            view = await self.view(reservation_id)
            found[:] = [view]
            has = {reason.code for reason in view.reasons}
            return view.state is ReservationState.QUEUED and has >= set(codes)

        await eventually(waits, what=f"{reservation_id} to wait for {codes}")
        return found[0]


def accepted(reply: Reply) -> Accepted:
    """The reply, which has to be an acceptance."""
    assert isinstance(reply, Accepted), reply
    return reply


def refused(reply: Reply) -> Refused:
    """The reply, which has to be a refusal."""
    assert isinstance(reply, Refused), reply
    return reply


def settings_of(nats_url: str, postgres_dsn: str, **more: Any) -> SchedulerSettings:
    """Settings of a scheduler on the test's servers."""
    return SchedulerSettings(nats_url=nats_url, postgres_dsn=postgres_dsn, **more)


@asynccontextmanager
async def world(nats_url: str, clock: Clock = time.monotonic) -> AsyncIterator[World]:
    """A client and its fake nodes, without any scheduler."""
    async with connected_bus(nats_url, "test") as bus, asyncio.TaskGroup() as tasks:
        around = World(bus, tasks, clock)
        await around.subscribe()
        try:
            yield around
        finally:
            await cancel_and_wait(*around.running)


@asynccontextmanager
async def scheduler(nats_url: str, postgres_dsn: str, **more: Any) -> AsyncIterator[Service]:
    """A scheduler in this loop, on real servers."""
    make = {k: more.pop(k) for k in ("make_leadership",) if k in more}
    settings = settings_of(nats_url, postgres_dsn, **more)
    async with create_service(settings, **make).running() as service:
        yield service


@asynccontextmanager
async def ledger(postgres_dsn: str) -> AsyncIterator[Any]:
    """A connection to the scheduler's tables, past the scheduler."""
    connection = await asyncpg.connect(postgres_dsn, server_settings={"search_path": "scheduler"})
    try:
        yield connection
    finally:
        await connection.close()
