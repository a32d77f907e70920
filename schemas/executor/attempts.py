"""Running experiments on granted devices: commands to a node's executor, facts about attempts."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Command,
    Count,
    Epoch,
    Event,
    Live,
    Namespace,
    NodeId,
    PositiveInt,
    PositiveSeconds,
    ScopedCommand,
    Seconds,
    SecretName,
    UtcDatetime,
)
from schemas.cluster.kubernetes import EnginePod, KubernetesSpec
from schemas.executor.engine_rules import EngineRules
from schemas.executor.model_shape import ModelShape
from schemas.gpus.checks import ResourceDefinition
from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.gpus.gpu_request import LeaseTtlSeconds
from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec
from schemas.task.endpoint import EngineEndpoint


class Runtime(StrEnum):
    """Where the inference server runs."""

    PROCESS = "process"
    DOCKER = "docker"
    OME = "ome"
    KUBERNETES = "kubernetes"
    ENDPOINT = "endpoint"  # wherever somebody started it


class AttemptPhase(StrEnum):
    """An attempt's way; only `measuring` counts for the experiment's window."""

    STARTING = "starting"
    PULLING = "pulling"
    LOADING = "loading"
    WARMING_UP = "warming_up"
    MEASURING = "measuring"
    DRAINING = "draining"
    TEARING_DOWN = "tearing_down"


class AttemptOutcome(StrEnum):
    """How an attempt ended. `interrupted`, by a crash or a lost lease, says nothing about it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class FailureKind(StrEnum):
    """Why an attempt did not succeed; the closed set of causes.

    `out_of_memory` is the host's or the container's, `gpu_out_of_memory` a device's;
    `parameters_not_applied`: a cluster runs the engine otherwise than it was asked to.
    """

    ENGINE_MISSING = "engine_missing"
    BAD_PARAMETER = "bad_parameter"
    MODEL_MISSING = "model_missing"
    SECRET_MISSING = "secret_missing"  # noqa: S105  # a cause
    RUNTIME_UNAVAILABLE = "runtime_unavailable"
    IMAGE_MISSING = "image_missing"
    IMAGE_PULL_FAILED = "image_pull_failed"
    GPU_UNAVAILABLE = "gpu_unavailable"
    ENGINE_EXITED = "engine_exited"
    OUT_OF_MEMORY = "out_of_memory"
    GPU_OUT_OF_MEMORY = "gpu_out_of_memory"
    CUDA_ERROR = "cuda_error"
    PORT_TAKEN = "port_taken"
    POWER_LIMIT_REFUSED = "power_limit_refused"
    SM_CLOCK_REFUSED = "sm_clock_refused"
    DISK_FULL = "disk_full"
    READINESS_TIMEOUT = "readiness_timeout"
    UNSCHEDULABLE = "unschedulable"
    PARAMETERS_NOT_APPLIED = "parameters_not_applied"
    RANK_FAILED = "rank_failed"
    NODE_LOST = "node_lost"
    BENCHMARK_FAILED = "benchmark_failed"
    TIMEOUT = "timeout"
    LEASE_LOST = "lease_lost"
    EXECUTOR_RESTARTED = "executor_restarted"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class EngineSpec(Struct, frozen=True, kw_only=True):
    """What to serve. `parameters` are the engine's flags with one value each; `model` an id or a
    path. `image_tag` is of the engine's image, None the one that the executor prefers; `kubernetes`
    of a cluster; `endpoint` of a server that runs already. `env` are variables that the task sets.
    """

    runtime: Runtime
    engine: str
    model: str
    parameters: dict[str, Any] = {}
    image_tag: str | None = None
    kubernetes: KubernetesSpec | None = None
    endpoint: EngineEndpoint | None = None
    env: dict[str, str] = {}

    def devices_read(self, granted: tuple[DeviceGrant, ...]) -> tuple[DeviceGrant, ...]:
        """Return those whose readings are the engine's: the granted, or those of its endpoint."""
        return granted if self.endpoint is None else self.endpoint.devices


class PhaseTiming(Struct, frozen=True, kw_only=True):
    """One phase of an attempt."""

    phase: AttemptPhase
    started_at: UtcDatetime
    duration_seconds: Seconds


class Window(Struct, frozen=True, kw_only=True):
    """A measured run, by the executing node's clock."""

    started_at: UtcDatetime
    finished_at: UtcDatetime


class Failure(Struct, frozen=True, kw_only=True):
    """A kind for programs, a sentence for people, and the engine's last log lines.

    `hint` is what to do about it; `phase` is where the attempt was. `is_final`: the task itself is
    the cause, so that no other try would end otherwise.
    """

    kind: FailureKind
    message: str
    exit_code: int | None = None
    log_tail: tuple[str, ...] = ()
    hint: str = ""
    phase: AttemptPhase | None = None
    is_final: bool = False


class EngineUse(Struct, frozen=True, kw_only=True):
    """Whether an attempt was measured on the engine that was kept up for it, its state reset.

    `reset` says how; `fresh_because` why another engine was started instead.
    """

    is_kept: bool
    reset: str = ""
    fresh_because: str = ""


class GangPlace(Struct, frozen=True, kw_only=True):
    """Which part of an engine over several nodes an executor starts; the coordinator is rank 0."""

    rank: PositiveInt
    size: Annotated[int, Meta(ge=2)]
    coordinator_id: NodeId


class StartExperiment(ScopedCommand, frozen=True, kw_only=True, tag="executor.start_experiment"):
    """Run one attempt on granted devices.

    Accepted means journaled: the lease is the executor's from then on. `cpu_count` and
    `host_memory_mb` bound what the engine may take of each node; None leaves that to the node.

    With `devices` of several nodes it goes to the executor of the first one, without a `gang`; this
    coordinator sends it on, with one, to each other node, in the order in which they appear.

    With `cluster` there are no `devices`; the executor is the cluster's. `power_limit_w`
    and `sm_clock_mhz`, a locked clock, are set on each device before the engine starts; the
    device's agent takes them back with the reservation.

    An engine with an `endpoint` runs already: it has neither `devices` nor a lease, the
    `reservation_id` is no reservation's, and nothing is started or stopped.

    `secrets` are names alone: the executor asks for their values (`OpenSecrets`) when it starts the
    engine, and keeps them nowhere.

    With `keep_seconds` the engine stays up after a success, under the same reservation, for so long
    at most, so that the next run of the configuration can be measured on it: that start names this
    attempt in `kept_from`, with the same reservation, epoch, devices and engine. It is refused with
    `lease_lost` where no such engine is kept up any more. `CancelExperiment` of an attempt that has
    ended ends the engine that it left.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    experiment_id: UUID
    attempt_id: UUID
    attempt_number: PositiveInt
    task_id: UUID
    namespace: Namespace
    reservation_id: UUID
    epoch: Epoch
    lease_ttl_seconds: LeaseTtlSeconds
    devices: tuple[DeviceGrant, ...]
    engine: EngineSpec
    benchmark: BenchmarkSpec
    timeout_seconds: PositiveSeconds
    cpu_count: Annotated[float, Meta(gt=0)] | None = None
    host_memory_mb: PositiveInt | None = None
    gang: GangPlace | None = None
    cluster: ClusterPlacement | None = None
    power_limit_w: Annotated[float, Meta(gt=0)] | None = None
    sm_clock_mhz: PositiveInt | None = None
    secrets: tuple[SecretName, ...] = ()
    keep_seconds: PositiveSeconds | None = None
    kept_from: UUID | None = None


class CancelExperiment(ScopedCommand, frozen=True, kw_only=True, tag="executor.cancel_experiment"):
    """Stop an attempt, or the engine that an ended one left up.

    Accepted means it will not be started any more and a running one is being stopped. An attempt
    the executor has never seen is remembered as cancelled, so that a late start is refused.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    experiment_id: UUID
    attempt_id: UUID
    reason: str = ""


class FenceReservation(Command, frozen=True, kw_only=True, tag="executor.fence_reservation"):
    """Stop whatever runs under a reservation.

    Accepted means nothing labelled with it runs, and nothing will start. Refused with
    `still_running` while the stop is under way.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    reservation_id: UUID
    epoch: Epoch


class AttemptEvent(Event, frozen=True, kw_only=True):
    """What all attempt facts carry. `revision` grows within one attempt."""

    speaker_field: ClassVar[str | None] = "executor_id"
    key_field: ClassVar[str | None] = "experiment_id"
    experiment_id: UUID
    attempt_id: UUID
    attempt_number: PositiveInt
    task_id: UUID
    executor_id: NodeId
    reservation_id: UUID
    epoch: Epoch


class AttemptStarted(AttemptEvent, frozen=True, kw_only=True, tag="executor.attempt_started"):
    """Journaled, lease confirmed, the engine is about to start."""

    devices: tuple[DeviceGrant, ...]


class AttemptPhaseChanged(
    AttemptEvent, frozen=True, kw_only=True, tag="executor.attempt_phase_changed"
):
    """The attempt entered a phase; the pods as in `AttemptFinished`."""

    phase: AttemptPhase
    pod: EnginePod | None = None
    other_pods: tuple[EnginePod, ...] = ()

    @property
    def pods(self) -> tuple[EnginePod, ...]:
        """The pods that are bound, by rank."""
        return _pods_of(self.pod, self.other_pods)


class AttemptFinished(AttemptEvent, frozen=True, kw_only=True, tag="executor.attempt_finished"):
    """The one outcome of an attempt, after confirmed teardown, or with its engine kept up.

    `benchmark` is there if and only if it succeeded. `windows` are the measured runs, in order;
    `engine_simulated` marks an engine that only imitates a model, `executor_stopped` an attempt
    that an orderly stop of its executor cut off. In a cluster `pod` has the GPUs, and each of
    `other_pods` those of a further rank; None: unbound.
    `image_digest` is of the container image that ran, as its runtime names it.
    With `kept_until` its engine is up under its reservation, until then at the latest.
    `engine_use` is of an attempt that was to be measured on an engine kept up.
    """

    outcome: AttemptOutcome
    namespace: Namespace
    devices: tuple[DeviceGrant, ...]
    engine: EngineSpec
    started_at: UtcDatetime
    finished_at: UtcDatetime
    failure: Failure | None = None
    benchmark: BenchmarkResult | None = None
    windows: tuple[Window, ...] = ()
    phases: tuple[PhaseTiming, ...] = ()
    engine_simulated: bool = False
    executor_stopped: bool = False
    pod: EnginePod | None = None
    other_pods: tuple[EnginePod, ...] = ()
    image_digest: str | None = None
    kept_until: UtcDatetime | None = None
    engine_use: EngineUse | None = None

    @property
    def pods(self) -> tuple[EnginePod, ...]:
        """The pods that were bound, by rank."""
        return _pods_of(self.pod, self.other_pods)

    @property
    def node_ids(self) -> list[NodeId]:
        """The nodes whose GPUs it had, as far as known."""
        return sorted({place.node_id for place in self.pods or self.devices})


def _pods_of(first: EnginePod | None, members: tuple[EnginePod, ...]) -> tuple[EnginePod, ...]:
    return (*((first,) if first is not None else ()), *members)


class RuntimeOffer(Struct, frozen=True, kw_only=True):
    """A runtime of an executor, the engines it can start, and for the others what is missing.

    `engine_rules` has every engine that the executor knows. Models named by a path have to lie
    below `model_roots`; None: a cluster, which has none of this host's. `serving_runtimes` are its
    ClusterServingRuntimes with the engine of their image. `image_cuda` is what images there report,
    as `vllm:v0.8.5` and, for tasks without a tag, `vllm`; `model_precisions` and `model_shapes`
    what the config.json of models say, `devices` a cluster's custom ones. `task_variables` are the
    variables that a task may set of an engine's environment, by patterns such as `NCCL_*`.
    """

    runtime: Runtime
    engines: tuple[str, ...]
    missing: dict[str, str] = {}
    version: str | None = None
    engine_rules: dict[str, EngineRules] = {}
    model_roots: tuple[str, ...] | None = None
    serving_runtimes: dict[str, str] = {}
    image_cuda: dict[str, str] = {}
    model_precisions: dict[str, tuple[str, ...]] = {}
    devices: tuple[ResourceDefinition, ...] = ()
    model_shapes: dict[str, ModelShape] = {}
    task_variables: tuple[str, ...] = ()


class ExecutorReported(Event, frozen=True, kw_only=True, tag="executor.executor_reported"):
    """What an executor offers: at its start and every 30 s.

    `largest_epoch` is of all it was given; `address` is where other nodes reach its engines.
    `endpoint_engines` are those of which it measures servers that run already: beside `runtimes`,
    since the release before knows no such runtime.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    boot_id: UUID
    runtimes: tuple[RuntimeOffer, ...]
    benchmark_tools: tuple[str, ...]
    largest_epoch: Count
    address: str | None = None
    endpoint_engines: tuple[str, ...] = ()


class AttemptProgressed(Live, frozen=True, kw_only=True, tag="executor.attempt_progressed"):
    """How far a pull or a benchmark is, from 0 to 1: of the image's bytes, or of all levels."""

    speaker_field: ClassVar[str | None] = "executor_id"
    key_field: ClassVar[str | None] = "experiment_id"
    executor_id: NodeId
    experiment_id: UUID
    attempt_id: UUID
    task_id: UUID
    phase: AttemptPhase
    fraction: float
    message: str = ""
    completed_requests: Count = 0
    failed_requests: Count = 0
