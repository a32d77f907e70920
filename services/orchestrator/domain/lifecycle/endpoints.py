"""An experiment on its way to a server that runs already: no GPU is requested for it.

Each server is measured by one experiment at a time, of whichever task, lest one disturbs another.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import Command
from schemas.gpus.device_grant import DeviceGrant
from schemas.orchestrator.experiments import ExperimentState
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RequestReservation,
)
from schemas.task.endpoint import EndpointConfig
from schemas.telemetry.readings import GpuReading
from services.orchestrator.domain.lifecycle.retrying import nodes_to_request
from services.orchestrator.domain.lifecycle.waiting import Grant, on_grant
from services.orchestrator.domain.records import Attempt, Decision, Experiment, Task

_OF_RESERVATIONS: Final = (RequestReservation, CancelReservation, ReleaseReservation)
_PORTS: Final = {"http": 80, "https": 443}
# The largest that a start may say; nobody renews it.
LEASE_TTL_SECONDS: Final = 3600.0


class EndpointAttempt(Struct, frozen=True, kw_only=True):
    """An open attempt at a server, and the executors that could measure it now."""

    task: Task
    experiment: Experiment
    attempt: Attempt
    executor_ids: tuple[str, ...] = ()


class EndpointStep(Struct, frozen=True, kw_only=True):
    """What to do with a waiting attempt: start it on an executor, or fail it for a reason."""

    attempt: EndpointAttempt
    executor_id: str | None = None
    failed_because: str = ""


def has_reservation(experiment: Experiment) -> bool:
    """Return whether its attempts have reservations at the scheduler."""
    return experiment.engine.endpoint is None


def commands_of(decision: Decision) -> tuple[Command, ...]:
    """Return the commands of a decision without those about a reservation that there is not."""
    if has_reservation(decision.experiment):
        return decision.commands
    return tuple(c for c in decision.commands if not isinstance(c, _OF_RESERVATIONS))


def choose_steps(attempts: Sequence[EndpointAttempt], now: datetime) -> list[EndpointStep]:
    """Return what to do with those that wait, the longest first; `attempts` are all open ones."""
    busy = {_place_of(waiting) for waiting in attempts if waiting.attempt.executor_id is not None}
    steps = []
    for waiting in attempts:
        place = _place_of(waiting)
        if waiting.experiment.state is not ExperimentState.WAITING or place in busy:
            continue
        if waiting.executor_ids:
            busy.add(place)
            steps.append(EndpointStep(attempt=waiting, executor_id=_choose_executor(waiting)))
        elif now >= waiting.attempt.requested_at + _patience_of(waiting.task):
            reason = "no executor that could measure the server was present within the wait timeout"
            steps.append(EndpointStep(attempt=waiting, failed_because=reason))
    return steps


def start(
    task: Task,
    experiment: Experiment,
    attempt: Attempt,
    executor_id: str,
    devices: tuple[DeviceGrant, ...],
    now: datetime,
) -> Decision | None:
    """Start a waiting attempt on an executor; `devices` are the server's, as far as known."""
    endpoint = experiment.engine.endpoint
    if endpoint is None:
        return None
    engine = replace(experiment.engine, endpoint=replace(endpoint, devices=devices))
    grant = Grant(
        revision=1, epoch=1, node_id=executor_id, devices=(), lease_ttl_seconds=LEASE_TTL_SECONDS
    )
    decision = on_grant(task, replace(experiment, engine=engine), attempt, grant, now)
    if decision is None or decision.attempt is None:
        return decision
    # There is no lease to renew, and none that would have to end first.
    return replace(decision, attempt=replace(decision.attempt, reservation_ended=True))


def find_devices(
    endpoint: EndpointConfig,
    gpus: Sequence[GpuReading],
    *,
    simulated: bool,
) -> tuple[DeviceGrant, ...]:
    """Return the GPUs of its node that the endpoint means, as they were read there."""
    if endpoint.node is None:
        return ()
    return tuple(
        DeviceGrant(
            node_id=endpoint.node,
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name or "unknown",
            memory_total_mb=gpu.memory_total_mb,
            simulated=simulated,
        )
        for gpu in gpus
        if _is_meant(endpoint, gpu)
    )


def _is_meant(endpoint: EndpointConfig, gpu: GpuReading) -> bool:
    if endpoint.gpu_indices:
        return gpu.index in endpoint.gpu_indices
    if endpoint.pod is not None:
        return any(pod.pod == endpoint.pod for pod in gpu.pods or ())
    if endpoint.container is not None:
        ids = (process.container_id or "" for process in gpu.processes or ())
        return any(name.startswith(endpoint.container) for name in ids)
    return True


def _choose_executor(waiting: EndpointAttempt) -> str:
    """Return the executor of the server's own node if it can; else the first that did not fail."""
    endpoint = waiting.task.file.endpoint
    nodes = nodes_to_request(waiting.experiment, waiting.executor_ids)
    node = endpoint.node if endpoint is not None else None
    return node if node is not None and node in nodes else nodes[0]


def _place_of(waiting: EndpointAttempt) -> tuple[str, int | None]:
    endpoint = waiting.experiment.engine.endpoint
    parts = urlsplit(endpoint.url if endpoint is not None else "")
    return (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)


def _patience_of(task: Task) -> timedelta:
    return timedelta(seconds=task.file.optimization.wait_timeout_seconds)
