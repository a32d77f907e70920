"""How far an engine in a cluster is, by what the cluster says of its objects."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from schemas.executor.attempts import FailureKind
from services.executor.runtimes.kubernetes.kinds import ObjectWithStatus
from shared.failures import recognise
from shared.kubernetes.objects.pods import ContainerStatus, PodDetails, Terminated, Waiting
from shared.kubernetes.ome import ENGINE_CONTAINER

_PULL_FAILURES: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
    }
)
_NEVER_PULLED: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_ORDINARY_WAITS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
# Of what admission says, what waiting does not change: a security level, a policy in the API.
# What a webhook or a quota refuses may be taken later.
_FINAL_REFUSALS: Final = ("violates PodSecurity", "ValidatingAdmissionPolicy")
_MODEL_FAILURES: Final = frozenset({"BaseModelNotReady", "BaseModelNotFound", "ModelLoadFailed"})


class Sight(Struct, frozen=True, kw_only=True):
    """`message` says what it waits for; `kind` is what it has failed of if that never comes.

    `is_final`: it will not. `ended` is how its container has ended by itself.
    """

    message: str
    kind: FailureKind = FailureKind.READINESS_TIMEOUT
    is_final: bool = False
    is_ready: bool = False
    pod: PodDetails | None = None
    ended: Terminated | None = None
    has_restarted: bool = False


def sight_of(
    workload: ObjectWithStatus | None,
    pods: Collection[PodDetails],
    *,
    admission: str = "",
    first_uid: str | None = None,
) -> Sight:
    """`first_uid` is the pod that it had before; another one is none of this attempt's.

    `admission` is what the cluster's admission says that holds the workload.
    """
    if workload is None or workload.metadata.deletion_timestamp is not None:
        return Sight(
            message="it was removed from the cluster, and not by this executor",
            kind=FailureKind.RUNTIME_UNAVAILABLE,
            is_final=True,
        )
    pod = _newest(pods)
    if first_uid is not None and (pod is None or pod.metadata.uid != first_uid):
        return Sight(
            message="its pod is gone, and not by this executor",
            kind=FailureKind.NODE_LOST,
            is_final=True,
        )
    if pod is None:
        return _without_pod(workload, admission)
    return _of_pod(pod, workload, admission)


def image_of(pod: PodDetails) -> str:
    """The digest that its engine's container runs; empty until there is one."""
    statuses = pod.status.container_statuses
    image_id = next(
        (
            container_status.image_id
            for container_status in statuses
            if container_status.name == ENGINE_CONTAINER
        ),
        "",
    )
    return image_id.removeprefix("docker-pullable://").removeprefix("docker://")


def _newest(pods: Collection[PodDetails]) -> PodDetails | None:
    staying = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    return max(
        staying or pods,
        key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.name),
        default=None,
    )


def _without_pod(workload: ObjectWithStatus, admission: str) -> Sight:
    status = workload.status
    model = status.model_status
    failed = model.last_failure_info if model is not None else None
    if failed is not None and failed.reason:
        kind = FailureKind.RUNTIME_UNAVAILABLE
        if failed.reason in _MODEL_FAILURES:
            kind = FailureKind.MODEL_MISSING
        return Sight(message=f"OME: {failed.reason}: {failed.message}".strip(": "), kind=kind)
    condition_text = _conditions(workload)
    message = (
        "; ".join(text for text in (admission, condition_text) if text)
        or "no pod has been made of it"
    )
    if any(refusal in condition_text for refusal in _FINAL_REFUSALS):
        return Sight(message=message, kind=FailureKind.RUNTIME_UNAVAILABLE, is_final=True)
    return Sight(message=message, kind=FailureKind.UNSCHEDULABLE)


def _conditions(workload: ObjectWithStatus) -> str:
    """Return the conditions that say why nothing happens; only ReplicaFailure is bad when it is
    true.
    """
    return "; ".join(
        f"{condition.type}: {condition.reason}: {condition.message}".replace(": :", ":").strip(": ")
        for condition in workload.status.conditions
        if (condition.status == "True") == (condition.type == "ReplicaFailure")
        and condition.message
    )


def _of_pod(pod: PodDetails, workload: ObjectWithStatus, admission: str) -> Sight:
    name = f"pod {pod.metadata.name}"
    status = pod.status
    if pod.metadata.deletion_timestamp is not None:
        why = next(
            (f": {c.message}" for c in status.conditions if c.type == "DisruptionTarget"), ""
        )
        message = f"{name} is being removed, and not by this executor{why}"
        return Sight(message=message, kind=FailureKind.NODE_LOST, is_final=True, pod=pod)
    engine = next((s for s in status.container_statuses if s.name == ENGINE_CONTAINER), None)
    if engine is not None and (ended := _end_of(engine)) is not None:
        return Sight(
            message=f"{name} has ended",
            kind=FailureKind.ENGINE_EXITED,
            is_final=True,
            pod=pod,
            ended=ended,
            has_restarted=engine.state.terminated is None,
        )
    if status.phase == "Failed":
        return _failure_sight(pod, name)
    if not pod.spec.node_name:
        return _unbound(pod, name, admission)
    for container_status in (*status.init_container_statuses, *status.container_statuses):
        if (
            container_status.state.waiting is not None
            and container_status.state.waiting.reason not in _ORDINARY_WAITS
        ):
            return _waiting(pod, name, container_status.state.waiting)
    if engine is not None and engine.state.running is not None:
        if engine.ready:
            return Sight(message=f"{name} is ready", is_ready=True, pod=pod)
        return Sight(message=f"{name} runs on {pod.spec.node_name} and loads", pod=pod)
    condition_text = _conditions(workload) if status.phase == "Running" else ""
    return Sight(
        message=f"{name} is being started on {pod.spec.node_name}"
        + (f": {condition_text}" if condition_text else ""),
        pod=pod,
    )


def _end_of(engine: ContainerStatus) -> Terminated | None:
    """Return the end of an engine, also of one that was restarted: nobody waited for the new
    process.
    """
    return engine.state.terminated or engine.last_state.terminated


def _failure_sight(pod: PodDetails, name: str) -> Sight:
    reason = pod.status.reason
    kind = FailureKind.RUNTIME_UNAVAILABLE
    if reason == "UnexpectedAdmissionError":  # a device plugin that has no such device any more
        kind = FailureKind.GPU_UNAVAILABLE
    elif reason in {"NodeLost", "NodeShutdown", "Terminated", "Shutdown"}:
        kind = FailureKind.NODE_LOST
    elif reason == "Evicted" and "memory" in pod.status.message:
        kind = FailureKind.OUT_OF_MEMORY
    message = f"{name} failed: {reason}: {pod.status.message}".strip(": ")
    return Sight(message=message, kind=kind, is_final=True, pod=pod)


def _unbound(pod: PodDetails, name: str, admission: str) -> Sight:
    if gates := [gate.name for gate in pod.spec.scheduling_gates]:
        why = f": {admission}" if admission else ""
        message = f"{name} is held back by {', '.join(gates)}{why}"
        return Sight(message=message, kind=FailureKind.UNSCHEDULABLE, pod=pod)
    why = next(
        (c.message for c in pod.status.conditions if c.type == "PodScheduled" and c.message), ""
    )
    message = f"{name} cannot be scheduled: {why}" if why else f"{name} waits to be scheduled"
    return Sight(message=message, kind=FailureKind.UNSCHEDULABLE, pod=pod)


def _waiting(pod: PodDetails, name: str, waiting: Waiting) -> Sight:
    text = f"{waiting.reason}: {waiting.message}".strip(": ")
    message = f"{name} on {pod.spec.node_name}: {text}"
    if waiting.reason not in _PULL_FAILURES:
        return Sight(message=message, kind=FailureKind.RUNTIME_UNAVAILABLE, pod=pod)
    known_failure = recognise(text)
    is_missing = waiting.reason in _NEVER_PULLED or (
        known_failure is not None and known_failure.kind is FailureKind.IMAGE_MISSING
    )
    return Sight(
        message=message,
        kind=FailureKind.IMAGE_MISSING if is_missing else FailureKind.IMAGE_PULL_FAILED,
        is_final=is_missing,
        pod=pod,
    )
