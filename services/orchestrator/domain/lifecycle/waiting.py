"""An experiment on its way to GPUs: requesting, being granted, giving up."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import Refused
from schemas.executor.attempts import StartExperiment
from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentStarting, ExperimentState, ExperimentWaiting
from schemas.scheduler.reason_groups import digest
from schemas.scheduler.reasons import Reason
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RequestReservation,
    ReservationState,
    experiment_holder,
)
from services.orchestrator.domain.lifecycle.retrying import anywhere_again, free_interruption
from services.orchestrator.domain.lifecycle.same_model import is_other_model, model_of
from services.orchestrator.domain.plan.benchmark_plan import benchmark_spec
from services.orchestrator.domain.records import (
    Attempt,
    Decision,
    Ended,
    Experiment,
    Task,
    command_id,
    end,
    fields_of,
)
from services.orchestrator.domain.search.kept_engines import keep_seconds
from shared.gpu.model_memory import terms_text


class Grant(Struct, frozen=True, kw_only=True):
    """Devices handed to a reservation, on one node or several, or GPUs of a cluster."""

    revision: int
    epoch: int
    node_id: str
    devices: tuple[DeviceGrant, ...]
    lease_ttl_seconds: float
    cluster: ClusterPlacement | None = None

    @property
    def executor_id(self) -> str:
        """The executor that runs it: of several nodes, the first device's coordinates."""
        return self.devices[0].node_id if self.devices else self.node_id


class ReservationEnd(Struct, frozen=True, kw_only=True):
    """A reservation that ended, in whatever way. `was_granted`: it had devices before."""

    revision: int
    state: ReservationState
    was_granted: bool
    reason: str = ""
    reasons: tuple[Reason, ...] = ()


def request_gpus(
    experiment: Experiment,
    request: GpuRequest,
    now: datetime,
    *,
    attempt_id: UUID,
    reservation_id: UUID,
    requester: str = "",
) -> Decision:
    attempt = Attempt(
        attempt_id=attempt_id,
        experiment_id=experiment.experiment_id,
        task_id=experiment.task_id,
        attempt_number=experiment.attempts_made + 1,
        reservation_id=reservation_id,
        has_reservation=experiment.engine.endpoint is None,
        requested_at=now,
    )
    waiting = replace(
        experiment, state=ExperimentState.WAITING, revision=experiment.revision + 1, request=request
    )
    event = ExperimentWaiting(
        **fields_of(waiting, now),
        reservation_id=reservation_id,
        attempt_number=attempt.attempt_number,
    )
    return Decision(
        experiment=waiting,
        attempt=attempt,
        events=(event,),
        commands=(
            RequestReservation(
                command_id=command_id(reservation_id, RequestReservation),
                reservation_id=reservation_id,
                namespace=experiment.namespace,
                holder=experiment_holder(
                    experiment.experiment_id, experiment.task_name, experiment.ordinal
                ),
                request=request,
                requester=requester,
            ),
        ),
    )


def on_grant(
    task: Task, experiment: Experiment, attempt: Attempt, grant: Grant, now: datetime
) -> Decision | None:
    """A granted attempt is started; a grant of a closed attempt is given back."""
    if grant.revision <= attempt.reservation_revision:
        return None
    observed = replace(attempt, reservation_revision=grant.revision)
    if attempt.closed_at is not None:
        release = give_back(attempt.reservation_id, grant.epoch, "granted after it was withdrawn")
        return Decision(experiment=experiment, attempt=observed, commands=(release,))
    if attempt.executor_id is not None:
        return Decision(experiment=experiment, attempt=observed)
    model = model_of(task, grant.devices, grant.cluster)
    if model is not None and is_other_model(task.gpu_model, model):
        # It was requested before the first grant said which model.
        release = give_back(attempt.reservation_id, grant.epoch, "not the model of its task's GPUs")
        closed = replace(observed, closed_at=now)
        return Decision(experiment=_pending(experiment), attempt=closed, commands=(release,))
    granted = replace(
        observed,
        executor_id=grant.executor_id,
        epoch=grant.epoch,
        lease_ttl_seconds=grant.lease_ttl_seconds,
        devices=grant.devices,
        cluster=grant.cluster,
        benchmark_tool=task.benchmark_tool,
    )
    is_first = model is not None and task.gpu_model is None
    return replace(
        start_granted(task, experiment, granted, now),
        task=replace(task, gpu_model=model) if is_first else None,
    )


def start_granted(task: Task, experiment: Experiment, attempt: Attempt, now: datetime) -> Decision:
    """Start an attempt whose GPUs are known."""
    starting = replace(experiment, state=ExperimentState.STARTING, revision=experiment.revision + 1)
    event = ExperimentStarting(
        **fields_of(starting, now),
        reservation_id=attempt.reservation_id,
        executor_id=attempt.executor_id or "",
        devices=attempt.devices,
        cluster=attempt.cluster,
    )
    return Decision(
        experiment=starting,
        attempt=attempt,
        events=(event,),
        commands=start_of(task, experiment, attempt),
    )


def on_reservation_end(
    experiment: Experiment,
    attempt: Attempt,
    ending: ReservationEnd,
    now: datetime,
    *,
    task_held_gpus: bool,
) -> Decision | None:
    """A reservation ended. After a start was sent only an answer of the executor ends the attempt.

    `task_held_gpus`: another experiment of the task held GPUs at some time while this one waited.
    """
    if ending.revision <= attempt.reservation_revision:
        return None
    is_preempted = ending.state is ReservationState.PREEMPTED
    ended = replace(
        attempt,
        reservation_revision=ending.revision,
        reservation_ended=True,
        is_preempted=is_preempted,
    )
    if attempt.closed_at is not None or attempt.executor_id is not None:
        if is_preempted:
            experiment = free_interruption(experiment, attempt)
        return Decision(experiment=experiment, attempt=ended)
    closed = replace(ended, closed_at=now)
    # Granted and gone before its grant was received: no start was sent, so it may be repeated.
    if ending.was_granted or (ending.state is ReservationState.TIMED_OUT and task_held_gpus):
        return Decision(experiment=_pending(experiment), attempt=closed)
    if ending.state in {ReservationState.REJECTED, ReservationState.TIMED_OUT}:
        # Better where it failed before than nowhere.
        unbound = anywhere_again(experiment)
        if unbound is not None:
            return Decision(experiment=_pending(unbound), attempt=closed)
    about_memory = ""
    if ending.state is ReservationState.REJECTED:
        about_memory = terms_text(experiment.memory_estimate)
    return _fail(experiment, closed, f"{_sentence(ending)}{about_memory}", now)


def on_request_refused(
    experiment: Experiment, attempt: Attempt, refused: Refused, now: datetime
) -> Decision | None:
    """The scheduler does not take the request."""
    return fail(experiment, attempt, f"GPUs were refused: {refused.message}", now)


def fail(experiment: Experiment, attempt: Attempt, reason: str, now: datetime) -> Decision | None:
    """Fail an attempt that still waits."""
    if attempt.closed_at is not None or attempt.executor_id is not None:
        return None
    closed = replace(attempt, reservation_ended=True, closed_at=now)
    return _fail(experiment, closed, reason, now)


def withdraw(experiment: Experiment, attempt: Attempt, reason: str, now: datetime) -> Decision:
    """A waiting experiment becomes pending again; a late grant of its reservation is given back."""
    cancel = CancelReservation(
        command_id=command_id(attempt.reservation_id, CancelReservation),
        reservation_id=attempt.reservation_id,
        reason=reason,
    )
    return Decision(
        experiment=_pending(experiment), attempt=replace(attempt, closed_at=now), commands=(cancel,)
    )


def cancel_unstarted(experiment: Experiment, reason: str, now: datetime) -> Decision:
    """A pending experiment ends cancelled: nothing of it runs."""
    return end(experiment, Ended(state=ExperimentState.CANCELLED, reason=reason), now)


def give_back(reservation_id: UUID, epoch: int, reason: str) -> ReleaseReservation:
    """The release of devices on which nothing was ever started."""
    return ReleaseReservation(
        command_id=command_id(reservation_id, ReleaseReservation),
        reservation_id=reservation_id,
        epoch=epoch,
        stopped=True,
        reason=reason,
    )


def start_of(task: Task, experiment: Experiment, attempt: Attempt) -> tuple[StartExperiment, ...]:
    """The start of a granted attempt, the same however often it is sent; none before its grant."""
    if attempt.executor_id is None or attempt.epoch is None or attempt.lease_ttl_seconds is None:
        return ()
    if attempt.benchmark_tool is None:
        return ()
    start = StartExperiment(
        command_id=command_id(attempt.attempt_id, StartExperiment),
        executor_id=attempt.executor_id,
        experiment_id=experiment.experiment_id,
        attempt_id=attempt.attempt_id,
        attempt_number=attempt.attempt_number,
        task_id=task.task_id,
        namespace=task.namespace,
        reservation_id=attempt.reservation_id,
        epoch=attempt.epoch,
        lease_ttl_seconds=attempt.lease_ttl_seconds,
        devices=attempt.devices,
        cluster=attempt.cluster,
        engine=experiment.engine,
        benchmark=benchmark_spec(task.file, attempt.benchmark_tool, experiment.run),
        timeout_seconds=task.file.optimization.timeout_per_iteration,
        cpu_count=experiment.request.cpu_count or None,
        host_memory_mb=experiment.request.host_memory_mb or None,
        power_limit_w=experiment.power_limit_w,
        sm_clock_mhz=experiment.sm_clock_mhz,
        secrets=task.file.secrets,
        keep_seconds=_keep_seconds(task, experiment),
        kept_from=attempt.kept_from,
    )
    return (start,)


def _keep_seconds(task: Task, experiment: Experiment) -> float | None:
    if not task.file.optimization.keep_engine or not task.file.optimization.is_trust_asked:
        return None
    return keep_seconds(experiment.engine, experiment.request, experiment.run)


def _pending(experiment: Experiment) -> Experiment:
    return replace(experiment, state=ExperimentState.PENDING)


def _fail(experiment: Experiment, attempt: Attempt, reason: str, now: datetime) -> Decision:
    return end(experiment, Ended(state=ExperimentState.FAILED, reason=reason), now, attempt)


def _sentence(ending: ReservationEnd) -> str:
    why = digest(ending.reasons) or ending.reason
    how = {
        ReservationState.REJECTED: "the GPUs asked for can never be granted",
        ReservationState.TIMED_OUT: "no GPUs were free within the wait timeout",
    }.get(ending.state, f"the reservation was {ending.state.value}")
    return f"{how}: {why}" if why else how
