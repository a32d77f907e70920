"""A node without hardware: reports devices, samples, and runs attempts by the rules of leases.

A fake, because the hardware is missing; what it says and hears goes over the real bus. Nothing is
computed: what "runs" is a line in the node's journal, written when a process would start or end.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
from nats.aio.msg import Msg

from schemas.base import pattern_for
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import (
    AttemptPhase,
    ExecutorReported,
    FenceReservation,
    StartExperiment,
)
from schemas.executor.running import ListRunning, RunningAttempt, RunningAttempts
from schemas.scheduler.reservations import ReleaseReservation, RenewReservation
from schemas.telemetry.readings import (
    DeviceFacts,
    GetSnapshot,
    GpuProcess,
    GpuReading,
    GpuSampled,
    HostFacts,
    InventoryReported,
    Source,
)
from services.executor.domain.admission import StartHistory, refuse_start
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.lease import Lease
from shared.messaging.bus import Bus
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.history.messenger import Messenger
from tests.support.history.node_journal import Admitted, Fenced, Finished, NodeJournal

TOTAL_MB = 80_000
CPU_COUNT = 16
HOST_MEMORY_MB = 64_000
SAMPLE_SECONDS = 0.3
INVENTORY_SECONDS = 3.0
FENCE_WAIT_SECONDS = 1.0
PARTS = "parts"  # the namespace of gangs: whoever started the parts gives them back together


@dataclass(slots=True)
class NodeDouble:
    """Telemetry agent and executor of one node."""

    bus: Bus
    node_id: str
    gpus: int
    journal: NodeJournal
    messenger: Messenger
    tasks: asyncio.TaskGroup
    boot_id: UUID = field(default_factory=new_id)
    _sequence: int = 0
    _revision: int = 0
    _stops: dict[UUID, asyncio.Event] = field(default_factory=dict)

    async def start(self) -> None:
        """End what an earlier life left running, then answer and report."""
        left = self.journal.unfinished()
        for command in left:
            self.journal.cease(command.reservation_id)
        for message, answer in (
            (StartExperiment, self._answer_start),
            (FenceReservation, self._answer_fence),
            (GetSnapshot, self._answer_snapshot),
            (ListRunning, self._answer_running),
        ):
            await self.bus.nats.subscribe(pattern_for(message, self.node_id), cb=answer)
        await self.bus.flush()
        for command in left:
            self.tasks.create_task(self._give_back(command))
        self.tasks.create_task(self._sample())
        self.tasks.create_task(self._report())

    async def _sample(self) -> None:
        while True:
            await self.bus.publish_live(self._reading())
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _report(self) -> None:
        while True:
            self._revision += 1
            try:
                await self.bus.publish_event(self._inventory())
                await self.bus.publish_event(self._offer())
            except UnavailableError:
                await asyncio.sleep(SAMPLE_SECONDS)
                continue
            await asyncio.sleep(INVENTORY_SECONDS)

    def _inventory(self) -> InventoryReported:
        return InventoryReported(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=self._revision,
            node_id=self.node_id,
            boot_id=self.boot_id,
            source=Source.SIMULATED,
            interval_seconds=SAMPLE_SECONDS,
            host=HostFacts(
                hostname=self.node_id, cpu_count=CPU_COUNT, memory_total_mb=HOST_MEMORY_MB
            ),
            devices=tuple(
                DeviceFacts(
                    uuid=self._uuid(index),
                    index=index,
                    name="Simulated H100",
                    memory_total_mb=TOTAL_MB,
                    simulated=True,
                )
                for index in range(self.gpus)
            ),
        )

    def _offer(self) -> ExecutorReported:
        return ExecutorReported(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=self._revision,
            executor_id=self.node_id,
            boot_id=self.boot_id,
            runtimes=(),
            benchmark_tools=(),
            largest_epoch=self.journal.largest_epoch,
        )

    def _reading(self) -> GpuSampled:
        self._sequence += 1
        busy = {uuid: work.reservation_id for (uuid, _), work in self.journal.running.items()}
        return GpuSampled(
            node_id=self.node_id,
            boot_id=self.boot_id,
            sequence=self._sequence,
            observed_at=utcnow(),
            interval_seconds=SAMPLE_SECONDS,
            source=Source.SIMULATED,
            gpus=tuple(self._gpu(index, busy.get(self._uuid(index))) for index in range(self.gpus)),
        )

    def _gpu(self, index: int, reservation_id: UUID | None) -> GpuReading:
        used = 70_000 if reservation_id is not None else 0
        return GpuReading(
            uuid=self._uuid(index),
            index=index,
            utilization_percent=100.0 if used else 0.0,
            memory_total_mb=TOTAL_MB,
            memory_used_mb=used,
            memory_free_mb=TOTAL_MB - used,
            processes=(
                (GpuProcess(pid=1000 + index, memory_used_mb=used, reservation_id=reservation_id),)
                if used
                else ()
            ),
            name="Simulated H100",
        )

    def _uuid(self, index: int) -> str:
        return f"GPU-{self.node_id}-{index}"

    async def _answer_snapshot(self, raw: Msg) -> None:
        await raw.respond(encode(self._reading()))

    async def _answer_running(self, raw: Msg) -> None:
        attempts = tuple(
            RunningAttempt(
                experiment_id=command.experiment_id,
                attempt_id=command.attempt_id,
                attempt_number=command.attempt_number,
                reservation_id=command.reservation_id,
                epoch=command.epoch,
                phase=AttemptPhase.MEASURING,
            )
            for command in self.journal.unfinished()
        )
        view = RunningAttempts(executor_id=self.node_id, boot_id=self.boot_id, attempts=attempts)
        await raw.respond(encode(view))

    async def _answer_start(self, raw: Msg) -> None:
        command = msgspec.msgpack.decode(raw.data, type=StartExperiment)
        reply: Reply = Accepted(command_id=command.command_id)
        if command.attempt_id not in self.journal.admitted:
            refusal = refuse_start(command, self._remembered(command), engine_slots=64)
            if refusal is None:
                self.journal.note(Admitted(command=command))
                self._stops[command.attempt_id] = asyncio.Event()
                self.tasks.create_task(self._run(command))
            else:
                reply = refusal
        await raw.respond(encode(reply))

    def _remembered(self, command: StartExperiment) -> StartHistory:
        uuids = {device.uuid for device in command.devices}
        unfinished = self.journal.unfinished()
        return StartHistory(
            is_fenced=command.reservation_id in self.journal.fenced,
            device_epochs={uuid: self.journal.device_epoch(uuid) for uuid in uuids},
            blocking_attempts=tuple(
                other.attempt_id
                for other in unfinished
                if not uuids.isdisjoint(device.uuid for device in other.devices)
            ),
            unfinished=len(unfinished),
        )

    async def _answer_fence(self, raw: Msg) -> None:
        # In a task: the connection hands over one message of a subscription at a time.
        self.tasks.create_task(self._fence(raw))

    async def _fence(self, raw: Msg) -> None:
        command = msgspec.msgpack.decode(raw.data, type=FenceReservation)
        reservation_id = command.reservation_id
        if reservation_id not in self.journal.fenced:
            self.journal.note(Fenced(reservation_id=reservation_id))
        for attempt in self._attempts(reservation_id):
            if (stop := self._stops.get(attempt.attempt_id)) is not None:
                stop.set()
        with contextlib.suppress(AssertionError):
            await eventually(
                lambda: not self._attempts(reservation_id), within_seconds=FENCE_WAIT_SECONDS
            )
        reply: Reply = Accepted(command_id=command.command_id)
        if self._attempts(reservation_id):
            reply = Refused(
                code=ErrorCode.STILL_RUNNING, message="stopping", command_id=command.command_id
            )
        else:
            self.journal.confirm(self.node_id, reservation_id)
        await raw.respond(encode(reply))

    def _attempts(self, reservation_id: UUID) -> list[StartExperiment]:
        return [c for c in self.journal.unfinished() if c.reservation_id == reservation_id]

    async def _run(self, command: StartExperiment) -> None:
        lease = Lease(ttl_seconds=command.lease_ttl_seconds, confirmed_at=time.monotonic())
        ends_at = time.monotonic() + command.timeout_seconds
        has_begun = False
        stop = self._stops[command.attempt_id]
        while not stop.is_set() and time.monotonic() < min(lease.stop_at, ends_at):
            now = time.monotonic()
            if has_begun and now < lease.renew_at:
                await _wait(stop, min(lease.renew_at, ends_at) - now)
                continue
            reply = await self._renew(command, lease, activate=not has_begun)
            if isinstance(reply, Accepted):
                lease = Lease(ttl_seconds=command.lease_ttl_seconds, confirmed_at=now)
                if not has_begun and not stop.is_set():
                    self.journal.begin(self.node_id, command)
                    has_begun = True
            elif reply is not None and not reply.retryable:
                break
            else:
                await _wait(stop, lease.retry_seconds)
        await asyncio.sleep(self.messenger.dice.uniform(0, 0.3))
        self.journal.cease(command.reservation_id)
        await self._give_back(command)

    async def _renew(
        self, command: StartExperiment, lease: Lease, *, activate: bool
    ) -> Reply | None:
        renewal = RenewReservation(
            command_id=new_id(),
            reservation_id=command.reservation_id,
            epoch=command.epoch,
            activate=activate,
        )
        timeout_seconds = lease.request_timeout_seconds(time.monotonic())
        return await self.messenger.ask(renewal, timeout_seconds=timeout_seconds)

    async def _give_back(self, command: StartExperiment) -> None:
        """Release until it is answered for good, as the executor's durable release is."""
        self.journal.note(Finished(attempt_id=command.attempt_id))
        if command.namespace == PARTS:
            return
        release = ReleaseReservation(
            command_id=new_id(), reservation_id=command.reservation_id, epoch=command.epoch
        )
        while True:
            reply = await self.messenger.ask(release)
            if reply is not None and (isinstance(reply, Accepted) or not reply.retryable):
                return
            await asyncio.sleep(0.5)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return
