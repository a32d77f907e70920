"""An executor under test, and a scheduler that answers as the test wants."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import nats.errors
from nats.aio.msg import Msg

from schemas.base import PLATFORM, Command, pattern_for, subject_for
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptPhase,
    AttemptPhaseChanged,
    AttemptProgressed,
    AttemptStarted,
    CancelExperiment,
    EngineSpec,
    ExecutorReported,
    FenceReservation,
    Runtime,
    StartExperiment,
)
from schemas.executor.running import ListRunning, RunningAttempts
from schemas.gpus.device_grant import (
    CELLS_PER_DEVICE,
    CellRange,
    DeviceGrant,
    DeviceShare,
    ShareKind,
)
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import ReleaseReservation, RenewReservation, ReservationState
from schemas.scheduler.views import (
    GetReservation,
    ListReservations,
    ReservationList,
    ReservationView,
)
from schemas.task.benchmark import BenchmarkSpec
from services.executor.host.processes import WorkloadLabel, running_workload
from services.executor.settings import ExecutorSettings
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.messaging.bus import Bus, command_route, query_route
from shared.messaging.streams import EVENTS
from shared.service import Service
from shared.testing import DEADLINE_SECONDS, eventually
from tests.support.paths import ROOT

NODE = "node-1"
_granted: dict[UUID, StartExperiment] = {}  # of all scripted schedulers: one bus may have two
FAST: dict[str, Any] = {"ttft-seconds": 0.002, "tpot-seconds": 0.0005}
ENDLESS: dict[str, Any] = {"ttft-seconds": 0.01, "tpot-seconds": 0.05}
Fact = AttemptStarted | AttemptPhaseChanged | AttemptFinished
_fact = msgspec.msgpack.Decoder(AttemptStarted | AttemptPhaseChanged | AttemptFinished)


def phases_of(facts: Iterable[Fact]) -> list[AttemptPhase]:
    """In the order in which they were stored."""
    return [fact.phase for fact in facts if isinstance(fact, AttemptPhaseChanged)]


def subject_of(start: StartExperiment) -> str:
    """Of the events of its experiment."""
    return f"gpusteward.evt.executor.*.*.{start.experiment_id}"


def make_settings(nats_url: str, data_dir: Path, **overrides: Any) -> ExecutorSettings:  # any field
    given: dict[str, Any] = {
        "nats_url": nats_url,
        "data_dir": str(data_dir),
        "node_id": NODE,
        "installation_id": f"test-{uuid4()}",
        "readiness_timeout_seconds": 20.0,
    }
    return ExecutorSettings(**given | overrides)


def make_device(uuid: str = "GPU-0", index: int = 0) -> DeviceGrant:
    return DeviceGrant(node_id=NODE, uuid=uuid, index=index, name="Simulated", simulated=True)


def make_part(cells: tuple[int, int] | None, uuid: str = "GPU-0") -> DeviceGrant:
    """A device of which some cells are granted, or all."""
    if cells is None:
        return make_device(uuid)
    first, end = cells
    share = DeviceShare(
        kind=ShareKind.COOPERATIVE,
        shares=(end - first) / CELLS_PER_DEVICE,
        cells=(CellRange(first=first, end=end),),
    )
    return msgspec.structs.replace(make_device(uuid), share=share)


def make_start(
    parameters: dict[str, Any] | None = None,
    *,
    engine: str = "simulated",
    model: str = "m",
    benchmark: BenchmarkSpec | None = None,
    **overrides: Any,  # any field
) -> StartExperiment:
    few = BenchmarkSpec(
        traffic_scenarios=("D(8,8)",),
        num_concurrency=(1, 2),
        max_requests_per_level=6,
        warmup_requests=1,
    )
    given: dict[str, Any] = {
        "command_id": uuid4(),
        "executor_id": NODE,
        "experiment_id": uuid4(),
        "attempt_id": uuid4(),
        "attempt_number": 1,
        "task_id": uuid4(),
        "namespace": "default",
        "reservation_id": uuid4(),
        "epoch": 7,
        "lease_ttl_seconds": 30.0,
        "devices": (make_device(),),
        "engine": EngineSpec(
            runtime=Runtime.PROCESS,
            engine=engine,
            model=model,
            parameters=FAST if parameters is None else parameters,
        ),
        "benchmark": benchmark or few,
        "timeout_seconds": 60.0,
    }
    return StartExperiment(**given | overrides)


def make_endless_start(
    parameters: dict[str, Any] | None = None, **overrides: Any
) -> StartExperiment:  # any field
    """An attempt that measures until it is stopped."""
    benchmark = BenchmarkSpec(
        traffic_scenarios=("D(8,64)",),
        num_concurrency=(2,),
        max_requests_per_level=100_000,
        max_time_per_level_seconds=600,
        warmup_requests=0,
    )
    return make_start({**ENDLESS, **(parameters or {})}, benchmark=benchmark, **overrides)


def make_cancel(start: StartExperiment, **overrides: Any) -> CancelExperiment:  # any field
    given: dict[str, Any] = {
        "command_id": uuid4(),
        "executor_id": NODE,
        "experiment_id": start.experiment_id,
        "attempt_id": start.attempt_id,
    }
    return CancelExperiment(**given | overrides)


def make_fence(reservation_id: UUID, epoch: int = 7) -> FenceReservation:
    return FenceReservation(
        command_id=uuid4(), executor_id=NODE, reservation_id=reservation_id, epoch=epoch
    )


def grant(start: StartExperiment) -> None:
    """Let the scheduler say that what is to be started was granted."""
    _granted[start.reservation_id] = start


def accept(command: Command) -> Reply:
    """A scheduler that agrees with everything."""
    return Accepted(command_id=command.command_id)


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """Answers renewals and releases as told (None: not at all) and notes what is said.

    `renewing` is the inbox of the connection that the latest renewal came from.
    """

    bus: Bus
    settings: ExecutorSettings
    answer_renewal: Callable[[RenewReservation], Awaitable[Reply] | Reply | None] = accept
    answer_release: Callable[[ReleaseReservation], Reply] = accept
    renewals: list[RenewReservation] = field(default_factory=list)
    releases: list[ReleaseReservation] = field(default_factory=list)
    progress: list[AttemptProgressed] = field(default_factory=list)
    reports: list[ExecutorReported] = field(default_factory=list)
    running_at_release: list[list[int]] = field(default_factory=list)
    renewing: str = ""
    queued: list[GpuRequest] = field(default_factory=list)  # what waits for GPUs

    async def release(self, command: ReleaseReservation) -> Reply:
        self.running_at_release.append(self.pids(command.reservation_id))
        self.releases.append(command)
        return self.answer_release(command)

    async def ask(self, command: Command) -> Reply:
        if isinstance(command, StartExperiment) and command.speaker == PLATFORM:
            grant(command)
        return await self.bus.request(command)

    async def reservation(self, query: GetReservation) -> ReservationView:
        """Of whatever was started."""
        start = _granted.get(query.reservation_id)
        if start is None:
            raise RefusedError(ErrorCode.NOT_FOUND, "nothing was started under it")
        return ReservationView(
            reservation_id=query.reservation_id,
            namespace=start.namespace,
            holder="",
            state=ReservationState.ACTIVE,
            request=GpuRequest(),
            revision=1,
            requested_at=utcnow(),
            epoch=start.epoch,
            devices=start.devices,
        )

    async def waiting(self, _: ListReservations) -> ReservationList:
        """Answer with whatever waits."""
        views = (
            ReservationView(
                reservation_id=uuid4(),
                namespace="default",
                holder="",
                state=ReservationState.QUEUED,
                request=request,
                revision=1,
                requested_at=utcnow(),
            )
            for request in self.queued
        )
        return ReservationList(reservations=tuple(views))

    async def running(self) -> RunningAttempts:
        return await self.bus.query(ListRunning(executor_id=NODE), RunningAttempts)

    def pids(self, reservation_id: UUID) -> list[int]:
        """What runs on this host under the reservation."""
        return running_workload(
            WorkloadLabel(
                reservation_id=reservation_id, installation_id=self.settings.installation_id
            )
        )

    async def facts(self, start: StartExperiment) -> list[Fact]:
        """The stored events of the attempt, in their order; none while the stream is away."""
        try:
            stored = await self._stored(start)
            subscription = await self.bus.jetstream.subscribe(
                subject_of(start), stream=str(EVENTS.name), ordered_consumer=True
            )
            messages = [await subscription.next_msg(timeout=5) for _ in range(stored)]
            await subscription.unsubscribe()
        except (nats.errors.Error, OSError):
            return []
        events = [_fact.decode(message.data) for message in messages]
        return [event for event in events if event.attempt_id == start.attempt_id]

    async def _stored(self, start: StartExperiment) -> int:
        """How many events of its experiment are stored."""
        info = await self.bus.jetstream.stream_info(
            str(EVENTS.name), subjects_filter=subject_of(start)
        )
        return sum((info.state.subjects or {}).values())

    async def _until_stored(
        self,
        start: StartExperiment,
        is_wanted: Callable[[Fact], bool],
        *,
        within_seconds: float = DEADLINE_SECONDS,
        what: str,
    ) -> list[Fact]:
        """Those events of the attempt that are wanted, once there is one. To read events takes a
        consumer, so they are only when there are others.
        """
        found: list[Fact] = []
        read = 0

        async def is_stored() -> bool:
            nonlocal read
            try:
                stored = await self._stored(start)
            except (nats.errors.Error, OSError):
                return False  # the stream is away
            if stored != read:
                facts = await self.facts(start)
                read = stored if facts else 0  # none where the stream went away meanwhile
                found[:] = filter(is_wanted, facts)
            return bool(found)

        await eventually(is_stored, within_seconds=within_seconds, what=what)
        return found

    async def finished(
        self, start: StartExperiment, *, within_seconds: float = DEADLINE_SECONDS
    ) -> AttemptFinished:
        """The one outcome, waited for."""
        [finished] = await self._until_stored(
            start,
            lambda fact: isinstance(fact, AttemptFinished),
            within_seconds=within_seconds,
            what="an attempt_finished",
        )
        assert isinstance(finished, AttemptFinished)
        return finished

    async def until_measuring(self, start: StartExperiment) -> list[int]:
        """Wait until the attempt measures; the processes of its engine."""

        def measures(fact: Fact) -> bool:
            return isinstance(fact, AttemptPhaseChanged) and fact.phase is AttemptPhase.MEASURING

        await self._until_stored(start, measures, what="the phase measuring")
        return self.pids(start.reservation_id)

    async def until_no_engine(
        self, start: StartExperiment, *, within_seconds: float = DEADLINE_SECONDS
    ) -> None:
        """Wait until nothing runs of the attempt. Each look reads every process of the host."""
        await eventually(
            lambda: not self.pids(start.reservation_id),
            within_seconds=within_seconds,
            every_seconds=0.1,
            what="no engine",
        )

    async def until_released(self, start: StartExperiment) -> ReleaseReservation:
        def releases() -> list[ReleaseReservation]:
            return [one for one in self.releases if one.reservation_id == start.reservation_id]

        await eventually(lambda: bool(releases()), what="a release")
        return releases()[0]


@asynccontextmanager
async def scheduling(
    settings: ExecutorSettings,
    **answers: Any,  # passed on
) -> AsyncIterator[Scheduler]:
    """A scripted scheduler on the bus of these settings."""
    bus = Bus.from_settings("scheduler", settings)
    scheduler = Scheduler(bus=bus, settings=settings, **answers)
    routes = [
        command_route(scheduler.release, ReleaseReservation),
        query_route(scheduler.reservation, GetReservation),
        query_route(scheduler.waiting, ListReservations),
    ]
    async with Service("scheduler", bus=bus, routes=routes).running():

        async def renew(message: Msg) -> None:
            command = msgspec.msgpack.decode(message.data, type=RenewReservation)
            scheduler.renewals.append(command)
            scheduler.renewing = message.reply.rpartition(".")[0]
            answer = scheduler.answer_renewal(command)
            if isinstance(answer, (Accepted, Refused)):
                await message.respond(msgspec.msgpack.encode(answer))

        await bus.nats.subscribe(pattern_for(RenewReservation), cb=renew)

        async def note_progress(message: AttemptProgressed) -> None:
            scheduler.progress.append(message)

        async def note_report(message: ExecutorReported) -> None:
            scheduler.reports.append(message)

        await bus.listen(AttemptProgressed, note_progress)
        await bus.listen(ExecutorReported, note_report)
        await bus.flush()
        yield scheduler


def labelled_process(
    reservation_id: UUID, installation_id: str | None, labels: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A process that carries the labels of a workload and does nothing."""
    installation = {} if installation_id is None else {"GPUSTEWARD_INSTALLATION": installation_id}
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={
            **os.environ,
            "GPUSTEWARD_RESERVATION": str(reservation_id),
            **installation,
            **(labels or {}),
        },
        start_new_session=True,
    )


@contextmanager
def executor_process(settings: ExecutorSettings) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m services.executor` in an operating system process of its own."""
    own = (
        *("readiness_timeout_seconds", "stop_grace_seconds"),
        *("docker_host", "engines_file", "model_roots"),
        *("cluster", "cluster_access", "cluster_namespaces", "engine_traffic"),
    )
    log_path = Path(settings.data_dir) / "executor.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.executor"],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "GPUSTEWARD_NATS_URL": settings.nats_url,
                "GPUSTEWARD_DATA_DIR": settings.data_dir,
                "GPUSTEWARD_NODE_ID": settings.node_id,
                "GPUSTEWARD_INSTALLATION_ID": settings.installation_id,
                "GPUSTEWARD_KUBECONFIG": settings.kubeconfig or "",
                **{
                    f"GPUSTEWARD_EXECUTOR_{name.upper()}": str(getattr(settings, name))
                    for name in own
                },
            },
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)


async def until_answering(scheduler: Scheduler, node_id: str = NODE) -> None:
    """Wait until the executor answers."""

    async def answers() -> bool:
        message = ListRunning(executor_id=node_id)
        try:
            await scheduler.bus.nats.request(
                subject_for(message), msgspec.msgpack.encode(message), timeout=10
            )
        except Exception:  # noqa: BLE001  # no answer yet, for whatever reason
            return False
        return True

    await eventually(answers, within_seconds=40, what="an executor that answers")
