"""What the orchestrator talks to, following a script: the hardware behind it is missing, the bus
and every message are the real ones.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from schemas.base import Event
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhase,
    AttemptPhaseChanged,
    AttemptStarted,
    CancelExperiment,
    EngineUse,
    ExecutorReported,
    Failure,
    FailureKind,
    Runtime,
    RuntimeOffer,
    StartExperiment,
)
from schemas.executor.running import ListRunning, RunningAttempt, RunningAttempts
from schemas.gpus.device_grant import DeviceGrant
from schemas.orchestrator.experiments import SubmitTask, TaskState
from schemas.orchestrator.views import (
    ExperimentList,
    ExperimentView,
    GetTask,
    ListExperiments,
    TaskView,
)
from schemas.results.measurements import (
    ExperimentSummarized,
    GetSummary,
    GpuMonitoring,
    SummaryView,
)
from schemas.results.prices import GetGpuPrices, GpuPrices
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationCancelled,
    ReservationGranted,
    ReservationRejected,
    ReservationState,
    ReservationTimedOut,
)
from schemas.scheduler.views import (
    ExplainReservation,
    Explanation,
    GetReservation,
    ReservationView,
)
from schemas.task.benchmark import (
    BenchmarkMetrics,
    BenchmarkResult,
    BenchmarkTool,
    FailedLevel,
    LoadBoundary,
)
from schemas.task.quality import QualityAnswers
from schemas.task.task_file import TaskFile
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.ids import new_id
from shared.messaging.bus import Bus, command_route, query_route
from shared.service import Service
from shared.testing import eventually
from tests.support.worlds.orchestrator_records import ENGINE_RULES

NODE = "n1"
TTL_SECONDS = 3.0


def task_file(name: str = "quick", **overrides: Any) -> TaskFile:
    """Two experiments on the simulated engine."""
    content: dict[str, Any] = {
        "task_name": name,
        "deployment_mode": "process",
        "model": {"id_or_path": "simulated-model"},
        **({} if "engines" in overrides else {"base_runtime": "simulated"}),
        "parameters": {} if "engines" in overrides else {"slots": [1, 2]},
        "benchmark": {"tool": "builtin"},
    }
    return msgspec.convert({**content, **overrides}, TaskFile)


def grant_device(number: int = 0) -> DeviceGrant:
    return DeviceGrant(
        node_id=NODE,
        uuid=f"GPU-{number}",
        index=number,
        name="H100 (simulated)",
        memory_total_mb=80_000,
        simulated=True,
        score=0.9,
        memory_free_mb=72_000,
        utilization_percent=0.0,
    )


@dataclass
class World:
    """Scheduler, one executor and results. `auto_grant`, `auto_run`: what happens unasked."""

    bus: Bus
    auto_grant: bool = True
    auto_run: bool = True
    outcomes: list[AttemptOutcome] = field(default_factory=list)  # of the next attempts; succeeded
    kinds: list[FailureKind] = field(default_factory=list)  # of the next failures; engine_exited
    refuse_start: list[ErrorCode] = field(default_factory=list)  # codes for the next starts
    requests: dict[UUID, RequestReservation] = field(default_factory=dict)
    cancelled: list[UUID] = field(default_factory=list)
    released: list[ReleaseReservation] = field(default_factory=list)
    renewals: list[UUID] = field(default_factory=list)
    starts: list[StartExperiment] = field(default_factory=list)
    stops: list[CancelExperiment] = field(default_factory=list)
    reservations: dict[UUID, ReservationView] = field(default_factory=dict)
    breaking: set[int] = field(default_factory=set)  # slots with which an engine breaks under load
    running: dict[UUID, StartExperiment] = field(default_factory=dict)
    summaries: dict[UUID, SummaryView] = field(default_factory=dict)
    epoch: int = 0
    executor_gone: bool = False
    peak_memory_mb: int | None = None  # of the next attempts
    asked: int = 0  # about reservations
    expected_node_ids: tuple[str, ...] = ()  # where whatever waits is expected to start
    prices: dict[str, float] = field(default_factory=dict)
    keeps: bool = False  # the executor keeps engines up as it is told to
    kept: set[UUID] = field(default_factory=set)  # attempts whose engines are up
    let_go: list[UUID] = field(default_factory=list)
    forgets: bool = False  # kept engines die before anything else is measured on them
    summarizes: bool = True  # results do so at once

    # What the orchestrator asks

    async def request(self, command: RequestReservation) -> Reply:
        if command.reservation_id not in self.requests:
            self.requests[command.reservation_id] = command
            self.reservations[command.reservation_id] = ReservationView(
                reservation_id=command.reservation_id,
                namespace=command.namespace,
                holder=command.holder,
                state=ReservationState.QUEUED,
                request=command.request,
                revision=1,
                requested_at=utcnow(),
            )
            if self.auto_grant:
                await self.grant(command.reservation_id)
        return Accepted(command_id=command.command_id)

    async def cancel_reservation(self, command: CancelReservation) -> Reply:
        if command.reservation_id not in self.cancelled:
            self.cancelled.append(command.reservation_id)
        return Accepted(command_id=command.command_id)

    async def release(self, command: ReleaseReservation) -> Reply:
        if command not in self.released:
            self.released.append(command)
        return Accepted(command_id=command.command_id)

    async def renew(self, command: RenewReservation) -> Reply:
        self.renewals.append(command.reservation_id)
        return Accepted(command_id=command.command_id, lease_ttl_seconds=TTL_SECONDS)

    async def get_reservation(self, query: GetReservation) -> ReservationView:
        self.asked += 1
        if query.reservation_id not in self.reservations:
            raise RefusedError(ErrorCode.NOT_FOUND, "no such reservation")
        return self.reservations[query.reservation_id]

    async def explain(self, query: ExplainReservation) -> Explanation:
        """Where it is expected to start, after those that were requested before it."""
        waiting = [key for key in self.requests if key not in self.cancelled]
        return Explanation(
            reservation_id=query.reservation_id,
            state=ReservationState.QUEUED,
            queue_position=waiting.index(query.reservation_id) + 1,
            queue_length=len(waiting),
            reasons=(),
            summary="",
            expected_node_ids=self.expected_node_ids,
        )

    async def start(self, command: StartExperiment) -> Reply:
        if self.refuse_start:
            code = self.refuse_start.pop(0)
            return Refused(code=code, message="as scripted", command_id=command.command_id)
        if command in self.starts:  # a repetition: its answer was lost with its sender
            return Accepted(command_id=command.command_id)
        if self.forgets:
            self.kept.clear()
        if command.kept_from is not None and command.kept_from not in self.kept:
            message = "its engine is not kept up any more"
            return Refused(
                code=ErrorCode.LEASE_LOST, message=message, command_id=command.command_id
            )
        self.kept.discard(command.kept_from or command.attempt_id)
        self.starts.append(command)
        self.running[command.attempt_id] = command
        if self.auto_run:
            await self.tell_started(command)
            await self.finish(command, self.outcomes.pop(0) if self.outcomes else None)
        return Accepted(command_id=command.command_id)

    async def stop(self, command: CancelExperiment) -> Reply:
        if command.attempt_id in self.kept:
            self.kept.discard(command.attempt_id)
            self.let_go.append(command.attempt_id)
        elif command not in self.stops:
            self.stops.append(command)
        return Accepted(command_id=command.command_id)

    async def list_running(self, query: ListRunning) -> RunningAttempts:
        if self.executor_gone:
            raise RefusedError(ErrorCode.UNAVAILABLE, "as if nobody answered")
        return RunningAttempts(
            executor_id=query.executor_id,
            boot_id=new_id(),
            attempts=tuple(
                RunningAttempt(
                    experiment_id=start.experiment_id,
                    attempt_id=start.attempt_id,
                    attempt_number=start.attempt_number,
                    reservation_id=start.reservation_id,
                    epoch=start.epoch,
                    phase=AttemptPhase.MEASURING,
                )
                for start in self.running.values()
            ),
        )

    async def get_summary(self, query: GetSummary) -> SummaryView:
        if query.experiment_id not in self.summaries:
            raise RefusedError(ErrorCode.NOT_FOUND, "no measurements")
        return self.summaries[query.experiment_id]

    async def get_gpu_prices(self, _: GetGpuPrices) -> GpuPrices:
        return GpuPrices(hourly=self.prices, currency="EUR")

    # What happens

    async def tell(self, event: Event) -> None:
        await self.bus.publish_event(event)

    def granted(self, reservation_id: UUID) -> ReservationGranted:
        self.epoch += 1
        request = self.requests[reservation_id]
        event = ReservationGranted(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=2,
            reservation_id=reservation_id,
            namespace=request.namespace,
            holder=request.holder,
            epoch=self.epoch,
            node_id=NODE,
            devices=(grant_device(),),
            lease_ttl_seconds=TTL_SECONDS,
            waited_seconds=0.0,
        )
        self.reservations[reservation_id] = msgspec.structs.replace(
            self.reservations[reservation_id],
            state=ReservationState.GRANTED,
            revision=2,
            granted_at=utcnow(),
            epoch=event.epoch,
            node_id=NODE,
            devices=event.devices,
        )
        return event

    async def grant(self, reservation_id: UUID) -> None:
        await self.tell(self.granted(reservation_id))

    async def end_reservation(
        self,
        reservation_id: UUID,
        end: type[ReservationTimedOut]
        | type[ReservationCancelled]
        | type[ReservationRejected] = ReservationTimedOut,
    ) -> None:
        request = self.requests[reservation_id]
        await self.tell(
            end(
                message_id=new_id(),
                occurred_at=utcnow(),
                revision=2,
                reservation_id=reservation_id,
                namespace=request.namespace,
                holder=request.holder,
                reason="as scripted",
            )
        )

    def started(self, start: StartExperiment) -> AttemptStarted:
        return AttemptStarted(**_about(start, 1), devices=start.devices)

    async def tell_started(self, start: StartExperiment) -> None:
        await self.tell(self.started(start))

    async def tell_phase(
        self, start: StartExperiment, phase: AttemptPhase, revision: int = 2
    ) -> None:
        await self.tell(AttemptPhaseChanged(**_about(start, revision), phase=phase))

    def finished(
        self, start: StartExperiment, outcome: AttemptOutcome | None = None
    ) -> AttemptFinished:
        outcome = outcome or AttemptOutcome.SUCCEEDED
        succeeded = outcome is AttemptOutcome.SUCCEEDED
        kept_until = None
        if succeeded and self.keeps and start.keep_seconds is not None:
            self.kept.add(start.attempt_id)
            kept_until = utcnow() + timedelta(seconds=start.keep_seconds)
        return AttemptFinished(
            kept_until=kept_until,
            engine_use=EngineUse(is_kept=True, reset="POST /reset") if start.kept_from else None,
            **_about(start, 9),
            outcome=outcome,
            namespace=start.namespace,
            devices=start.devices,
            engine=start.engine,
            started_at=utcnow() - timedelta(seconds=1),
            finished_at=utcnow(),
            failure=None
            if succeeded
            else Failure(
                kind=self.kinds.pop(0) if self.kinds else FailureKind.ENGINE_EXITED,
                message="as scripted",
                log_tail=("last",),
            ),
            benchmark=BenchmarkResult(
                tool=BenchmarkTool.BUILTIN,
                tool_version="1",
                simulated=True,
                levels=(),
                metrics=self.metrics_of(start),
                elapsed_seconds=1.0,
                quality=_answers(start),
            )
            if succeeded
            else None,
        )

    async def finish(self, start: StartExperiment, outcome: AttemptOutcome | None = None) -> None:
        """The attempt's end; results summarize a success at once."""
        self.running.pop(start.attempt_id, None)
        event = self.finished(start, outcome)
        await self.tell(event)
        if event.outcome is AttemptOutcome.SUCCEEDED and self.summarizes:
            await self.tell(self.summarized(start))

    def summarized(self, start: StartExperiment) -> ExperimentSummarized:
        monitoring = GpuMonitoring(
            monitoring_duration_seconds=1.0,
            sample_count=1,
            gpu_stats={},
            coverage_percent=100.0,
            energy_wh=None,
            phase="measuring",
            simulated=True,
        )
        self.summaries[start.experiment_id] = SummaryView(
            experiment_id=start.experiment_id,
            attempt_id=start.attempt_id,
            task_id=start.task_id,
            version=1,
            metrics=self.metrics_of(start),
            gpu_monitoring=monitoring,
            benchmark={},
        )
        return ExperimentSummarized(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=1,
            experiment_id=start.experiment_id,
            attempt_id=start.attempt_id,
            task_id=start.task_id,
            version=1,
            metrics=self.metrics_of(start),
            gpu_monitoring=monitoring,
            peak_memory_mb=self.peak_memory_mb,
        )

    async def report(
        self,
        executor_id: str = NODE,
        tools: tuple[str, ...] = ("builtin",),
        runtimes: tuple[RuntimeOffer, ...] | None = None,
    ) -> None:
        """The executor says what it offers."""
        await self.tell(
            ExecutorReported(
                message_id=new_id(),
                occurred_at=utcnow(),
                revision=1,
                executor_id=executor_id,
                boot_id=new_id(),
                runtimes=runtimes
                or (
                    RuntimeOffer(
                        runtime=Runtime.PROCESS,
                        engines=("simulated", "llamacpp"),
                        engine_rules=ENGINE_RULES,
                    ),
                    RuntimeOffer(
                        runtime=Runtime.DOCKER, engines=(), missing={"docker": "no Docker here"}
                    ),
                ),
                benchmark_tools=tools,
                largest_epoch=0,
            )
        )

    def metrics_of(self, start: StartExperiment) -> BenchmarkMetrics:
        """Two slots are twice as fast as one, and other answers twice as fast again."""
        slots = int(start.engine.parameters.get("slots", 1))
        slots *= 2 if start.engine.parameters.get("answer-drift") else 1
        failed = FailedLevel(
            scenario="D(100,100)", num_concurrency=8, num_requests=17, num_completed_requests=1
        )
        return BenchmarkMetrics(
            mean_e2e_latency=1.0 / slots,
            max_total_throughput=100.0 * slots,
            mean_ttft=0.1 / slots,
            total_requests=1,
            total_completed_requests=1,
            success_rate=1.0,
            failed_levels=(failed,) if slots in self.breaking else (),
            boundary=_boundary(start, slots),
        )

    # What a user does and sees

    async def submit(
        self, task: TaskFile | None = None, namespace: str = "default", requester: str = ""
    ) -> UUID:
        task_id = new_id()
        reply = await self.bus.request(
            SubmitTask(
                command_id=new_id(),
                task_id=task_id,
                namespace=namespace,
                task=task or task_file(),
                requester=requester,
            )
        )
        assert isinstance(reply, Accepted), reply
        return task_id

    async def task(self, task_id: UUID) -> TaskView:
        return await self.bus.query(GetTask(task_id=task_id, with_spending=True), TaskView)

    async def experiments(self, task_id: UUID) -> tuple[ExperimentView, ...]:
        answer = await self.bus.query(ListExperiments(task_id=task_id), ExperimentList)
        return answer.experiments

    async def until(self, task_id: UUID, state: TaskState) -> TaskView:
        """Wait for the task's state; returns its view."""
        view: TaskView | None = None

        async def reached() -> bool:
            nonlocal view
            try:
                view = await self.task(task_id)
            except UnavailableError:
                return False
            return view.state is state

        await eventually(reached, what=f"task {task_id} {state}")
        assert view is not None
        return view


def _answers(start: StartExperiment) -> QualityAnswers | None:
    if start.benchmark.quality is None:
        return None
    is_other = start.engine.parameters.get("answer-drift")
    return QualityAnswers(answers=("no" if is_other else "yes",))


def _boundary(start: StartExperiment, slots: int) -> LoadBoundary | None:
    """Each slot serves ten requests at once."""
    search = start.benchmark.load_search
    if search is None:
        return None
    return LoadBoundary(
        load=search.load, low=10.0 * slots, high=11.0 * slots, estimate=10.5 * slots, levels=9
    )


def _about(start: StartExperiment, revision: int) -> dict[str, Any]:
    return {
        "message_id": new_id(),
        "occurred_at": utcnow(),
        "revision": revision,
        "experiment_id": start.experiment_id,
        "attempt_id": start.attempt_id,
        "attempt_number": start.attempt_number,
        "task_id": start.task_id,
        "executor_id": start.executor_id,
        "reservation_id": start.reservation_id,
        "epoch": start.epoch,
    }


@asynccontextmanager
async def scripted_world(url: str, *, reports: bool = True) -> AsyncIterator[World]:
    """The world on this bus, with `reports` its executor's report stored in the stream."""
    bus = Bus("scripted-world", url)
    world = World(bus)
    service = Service(
        "scripted-world",
        bus=bus,
        routes=[
            command_route(world.request, RequestReservation),
            command_route(world.cancel_reservation, CancelReservation),
            command_route(world.release, ReleaseReservation),
            command_route(world.renew, RenewReservation),
            query_route(world.get_reservation, GetReservation),
            query_route(world.explain, ExplainReservation),
            command_route(world.start, StartExperiment, key=NODE),
            command_route(world.stop, CancelExperiment, key=NODE),
            query_route(world.list_running, ListRunning, key=NODE),
            query_route(world.get_summary, GetSummary),
            query_route(world.get_gpu_prices, GetGpuPrices),
        ],
    )
    async with service.running():
        if reports:
            await world.report()
        yield world
