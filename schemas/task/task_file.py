"""The task file: the autotuner's JSON, every field typed, unknown names refused."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import force_setattr

from schemas.base import (
    PROSE_PATTERN,
    Integer,
    Line,
    Name,
    NodeId,
    Percent,
    PositiveInt,
    PositiveSeconds,
    Seconds,
    SecretName,
    line,
)
from schemas.gpus.checks import ResourceKey
from schemas.gpus.gpu_request import DeviceWishes, GpuCount, NodeRanking
from schemas.task.benchmark import Arrivals, BenchmarkSettings, TrafficScenario
from schemas.task.endpoint import EndpointConfig
from schemas.task.objectives import Objective
from schemas.task.parameters import Configurations, ParameterGrid, Variables
from schemas.task.part import TaskPart
from schemas.task.slo import SloSpec
from schemas.task.strategies import Strategy

Text = Annotated[str, line(min_length=1, max_length=512)]

Description = Annotated[
    str,
    Meta(
        pattern=PROSE_PATTERN,
        description="text without control characters or marks of text direction",
        max_length=10_000,
    ),
]


class DeploymentMode(StrEnum):
    """Where the inference servers of a task run."""

    PROCESS = "process"
    DOCKER = "docker"
    OME = "ome"
    KUBERNETES = "kubernetes"
    ENDPOINT = "endpoint"


class StopReason(StrEnum):
    """Why a task tries no further configuration."""

    SPACE_EXHAUSTED = "space_exhausted"  # every configuration was tried
    MAX_ITERATIONS = "max_iterations"
    MAX_GPU_HOURS = "max_gpu_hours"
    MAX_COST = "max_cost"
    ONLY_CRASHES_LEFT = "only_crashes_left"  # what was not tried would, by what crashed, too


class PresetMerge(StrEnum):
    """How presets that give the same parameter become one."""

    LAST_WINS = "last_wins"
    UNION = "union"  # of the values
    INTERSECTION = "intersection"  # of the parameters, and of their values


Switches = bool | Annotated[tuple[bool, ...], Meta(min_length=1, max_length=2)]
IntegerValues = PositiveInt | Annotated[tuple[PositiveInt, ...], Meta(min_length=1, max_length=64)]
Watts = Annotated[float, Meta(gt=0, le=100_000)]
PowerLimits = Watts | Annotated[tuple[Watts, ...], Meta(min_length=1, max_length=64)]
Megahertz = Annotated[int, Meta(ge=1, le=100_000)]
Clocks = Megahertz | Annotated[tuple[Megahertz, ...], Meta(min_length=1, max_length=64)]
# Without a pattern: msgspec 0.22 corrupts memory over a union of one with an array.
DataType = Annotated[str, Meta(min_length=1, max_length=512)]
DataTypes = DataType | Annotated[tuple[DataType, ...], Meta(min_length=1, max_length=64)]


class ModelSpec(TaskPart, frozen=True, kw_only=True):
    """The model to serve: a hub id, a name below the executor's model roots, or a path."""

    id_or_path: Text
    namespace: Line | None = None


class StorageSpec(TaskPart, frozen=True, kw_only=True):
    """A volume claim that holds the model (Kubernetes)."""

    type: Literal["pvc", "hf", "hostpath"]
    pvc_name: Line | None = None
    pvc_subpath: Line | None = None
    mount_path: Line | None = None


class PresetConfig(TaskPart, frozen=True, kw_only=True):
    """A ClusterBaseModel or ClusterServingRuntime to create, from a preset or spelled out."""

    preset: Line | None = None
    name: Line | None = None
    config_overrides: dict[str, Any] = {}


class ParallelConfig(TaskPart, frozen=True, kw_only=True):
    """Parallelism to search; one value or a list each. world_size = tp * pp * max(dp, dcp, cp)."""

    preset: Line | None = None
    presets: tuple[Line, ...] = ()
    tp: IntegerValues = 1
    pp: IntegerValues = 1
    dp: IntegerValues = 1
    cp: IntegerValues = 1
    dcp: IntegerValues = 1
    ep: IntegerValues = 1
    moe_tp: IntegerValues = 1
    moe_ep: IntegerValues = 1
    moe_cluster: IntegerValues = 1
    moe_dense_tp: IntegerValues = 1
    enable_expert_parallel: Switches = False


class QuantConfig(TaskPart, frozen=True, kw_only=True):
    """Quantization to search: presets by name, or data types of the parts; one value or a list
    each.
    """

    preset: Line | None = None
    presets: tuple[Line, ...] = ()
    gemm_dtype: DataTypes | None = None
    kvcache_dtype: DataTypes | None = None
    attention_dtype: DataTypes | None = None
    moe_dtype: DataTypes | None = None


class OptimizationSpec(TaskPart, frozen=True, kw_only=True):
    """The search. `max_parallel` bounds the reservation requests a task has outstanding at once.

    `timeout_per_iteration` is in seconds and bounds a whole attempt; `wait_timeout_seconds` runs
    only while the task holds no GPU. `max_attempts` bounds how often an experiment is tried whose
    attempts are interrupted, or fail in a way that may pass. `n_initial_random` and `seed` are of
    searches that draw configurations; without a seed one follows from the task's id. A search tries
    `max_iterations` configurations at most, 50 if it is not given (`auto`: those of its stages;
    `successive_halving`: 27, most with few requests), a grid all. Once the attempts have had their
    GPUs for `max_gpu_hours` together, or these cost `max_cost` by the operator's prices, nothing
    further starts.

    With `trust` the baseline and the leaders are measured again, beyond `max_iterations`, until one
    is ahead by more than chance, runs that something disturbed are set aside and repeated, and the
    winner is measured with other requests. None: where `strategy` is `auto`.

    With `keep_engine` a repeat or replay is measured on the engine of the run before it, kept up
    and its state reset, where that shows as much as a fresh start would.

    With `warm_start` a search begins with what past tasks of the namespace measured of this model
    and engine, on one GPU model, by the same benchmark, objective, constraints and SLO.

    With a `prior` first proposals are in the order that the limits of the GPUs suggest for a model
    of which an executor has the config.json: by a roofline, or by what AIConfigurator predicts
    where the orchestrator's host has it and it knows engine, model and GPU.

    With several `objectives` the first is the one by which the best is named, and `objective`; the
    search seeks configurations that none beats in all of them, which the report lists.

    `constraints` are what the best experiment meets at every load, such as
    `ttft:p99<300ms, tpot:p95<=20ms, error_rate<1%, goodput>=95%`.
    """

    strategy: Strategy = Strategy.GRID_SEARCH
    objective: Objective = Objective.MINIMIZE_LATENCY
    max_iterations: PositiveInt | None = None
    timeout_per_iteration: PositiveSeconds = 600.0
    max_parallel: Annotated[int, Meta(ge=1, le=256)] = 1
    wait_timeout_seconds: PositiveSeconds = 300.0
    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 5
    n_initial_random: PositiveInt | None = None
    seed: Integer | None = None
    max_gpu_hours: Annotated[float, Meta(gt=0)] | None = None
    max_cost: Annotated[float, Meta(gt=0)] | None = None
    constraints: Annotated[str, line(max_length=1000)] = ""
    trust: bool | None = None
    objectives: Annotated[tuple[Objective, ...], Meta(max_length=4)] = ()
    keep_engine: bool = True
    warm_start: bool = False
    prior: Literal["roofline", "aiconfigurator"] | None = None

    def __post_init__(self) -> None:
        if not self.objectives:
            return
        if len(set(self.objectives)) < len(self.objectives):
            raise ValueError("expected each of `objectives` once")
        if self.objective not in {self.objectives[0], Objective.MINIMIZE_LATENCY}:
            raise ValueError("expected `objective` to be the first of `objectives`, or not given")
        force_setattr(self, "objective", self.objectives[0])

    @property
    def goals(self) -> tuple[Objective, ...]:
        """The objectives of the search; the first decides which configuration is the best."""
        return self.objectives or (self.objective,)

    @property
    def is_trust_asked(self) -> bool:
        return self.strategy.traits.checks_best if self.trust is None else self.trust


class BenchmarkConfig(BenchmarkSettings, TaskPart, frozen=True, kw_only=True, omit_defaults=True):
    """The benchmark. `max_time_per_iteration` is in minutes, as genai-bench counts.

    `max_error_rate` is the largest share of the requests of one load (a scenario at a concurrency)
    that may fail, 0 to 1. An experiment in which more fail does not rank above one that served the
    load, and one that served no load at all has failed.

    With `arrivals` those are the loads instead of `num_concurrency`: `closed(8)` requests at once,
    or `poisson(20)`, `constant(20)` and `burst(20,5)` requests per second, or `trace`, whose times
    are `arrival_trace_seconds`; the built-in generator makes them. `prefix_share` of every prompt
    is the same in all requests of a level. With several `turns` those are loads of conversations,
    whose every turn is sent with all before it, `think_seconds` after the answer.

    With `load_search` each experiment searches for the greatest load that meets
    `optimization.constraints`, which is its score (`maximize_load`).

    `quality` absent: answers are compared where the task varies what may change them. With a
    `dataset` prompts are of its texts instead of made ones.
    """

    task: Text = "text-to-text"
    model_name: Line | None = None
    model_tokenizer: Line | None = None
    traffic_scenarios: Annotated[tuple[TrafficScenario, ...], Meta(min_length=1, max_length=64)] = (
        "D(100,100)",
    )
    num_concurrency: Annotated[tuple[PositiveInt, ...], Meta(min_length=1, max_length=64)] = (1,)
    max_time_per_iteration: PositiveSeconds = 10.0
    max_requests_per_iteration: PositiveInt = 100
    warmup_requests: Annotated[int, Meta(ge=0, le=1000)] = 1
    arrivals: Annotated[tuple[Arrivals, ...], Meta(max_length=64)] = ()
    arrival_trace_seconds: Annotated[tuple[Seconds, ...], Meta(max_length=10_000)] = ()
    adapters: Annotated[tuple[Line, ...], Meta(max_length=256)] = ()


class MemorySource(StrEnum):
    """Where the memory that an experiment asks for comes from."""

    TASK = "task"
    MODEL_NAME = "model_name"  # the parameters that it tells, by a rule of thumb
    HISTORY = "history"  # the peak of past experiments like it
    MODEL_CONFIG = "model_config"  # the parameters by its config.json, by the same rule
    DEFAULT = "default"  # nothing tells the model's size


class GpuPreferences(DeviceWishes, TaskPart, frozen=True, kw_only=True, omit_defaults=True):
    """What the task file may say about its GPUs; what it does not say is estimated from model and
    parameters.

    `count` is of all GPUs of an experiment, which `num_nodes` nodes share evenly; `nodes` are those
    that may be taken, by name. Several GPUs have about the same free memory, unless
    `balanced_memory` is false. `cpu_count` and `host_memory_mb` are the engine's bounds too.

    All experiments run on one model and memory size, the first that any of them is granted, of
    `models` if there are any; not so with `mixed_models`. Those of a `preemptible` task are
    interrupted for requests of higher priority, and repeated once GPUs are free again.

    `power_limit_w` is the limit of each GPU while an experiment runs, `sm_clock_mhz` the clock that
    its multiprocessors are locked to: one value, or a list to search, such as for
    `maximize_tokens_per_joule`. They are taken back afterwards.

    With `shares` each experiment has a part of a GPU instead: 0.25 is a quarter of one, and of its
    memory. They are on one GPU if one has so much, unless `share_strategy` is `fill`; the rest as
    in `GpuRequest`. With `mig_profile` it has one MIG instance.

    In a Kubernetes cluster `cluster` says which one, and `nodes` are its own. The node with the
    most idle GPUs is taken, idle below both thresholds; with `select_node` false, and where no node
    has enough, the cluster's scheduler chooses. With `node_ranking` `least_fragmenting` the one on
    which the fewest GPUs are left over is taken instead. `resource` is an extended resource or a
    custom device to take in place of NVIDIA's GPUs, and `resource_amounts` how many units of it,
    and of what its group defines beside it; what is not said gets its definition's default value.

    A part of one of a cluster's GPUs instead: `vgpu_cores` of GPU-Manager, 100 of which are one,
    with `vgpu_memory_mb`; `mps_cores` of the MPS plugin; `time_slices` of a GPU that NVIDIA's
    plugin shares, as nvidia.com/gpu.shared or under the name that `resource` says; or
    `mig_profile`.
    Elsewhere only vGPU cores and a `mig_profile` may be asked for.
    """

    count: GpuCount | None = None
    num_nodes: Annotated[int, Meta(ge=1, le=512)] = 1
    models: tuple[Line, ...] = ()
    nodes: tuple[Line, ...] = ()
    balanced_memory: bool = True
    cluster: NodeId | None = None
    select_node: bool = True
    node_ranking: NodeRanking = NodeRanking.MOST_IDLE
    utilization_threshold_percent: Percent = 30.0
    memory_threshold_percent: Percent = 50.0
    vgpu_cores: Annotated[int, Meta(ge=1, le=409_600)] | None = None
    vgpu_memory_mb: PositiveInt | None = None
    mps_cores: Annotated[int, Meta(ge=1, le=409_600)] | None = None
    time_slices: Annotated[int, Meta(ge=1, le=4096)] | None = None
    resource: Annotated[str, line(max_length=253)] | None = None
    resource_amounts: Annotated[dict[ResourceKey, PositiveInt], Meta(max_length=16)] = {}
    power_limit_w: PowerLimits | None = None
    sm_clock_mhz: Clocks | None = None


class TaskEngine(TaskPart, frozen=True, kw_only=True):
    """One of a task's `engines`, with what is its own: no other engine gets any of it.

    Each of its tags is tried. `model` goes before the task's: a quantization that only this engine
    reads, or one of several to compare.
    """

    base_runtime: Text
    runtime_image_tag: Annotated[tuple[Line, ...], Meta(max_length=16)] = ()
    model: ModelSpec | None = None
    env: Variables = {}
    presets: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    parameters: ParameterGrid = {}
    configurations: Configurations | None = None


class TaskFile(TaskPart, frozen=True, kw_only=True):
    """One tuning task as people write it.

    Its own `parameters` go before those of its `presets`, which are merged by `preset_merge`. Each
    of `configurations` has one value of the same parameters, which go together; all other values
    are tried with each of them.

    With `engines` in place of a `base_runtime` the search is over several, or several versions of
    one: what the task gives itself is of all of them, what an engine gives of that one alone. `env`
    are variables of the engine's environment with the values to try, as far as operators allow
    them.

    `secrets` are names of the namespace's secrets: the engine gets each as the variable of that
    name, and genai-bench HF_TOKEN.

    `endpoint` is a server that runs already, measured as it is; `base_runtime` is its engine then,
    or `openai` for any server that speaks OpenAI's API.

    `deployment_mode` absent: `endpoint` with an `endpoint`; `ome` if a cluster model, serving
    runtime or volume claim block is there, or if `base_runtime` names no engine we know (it is a
    ClusterServingRuntime then), else `docker`. `$schema` tells editors where the file's
    schema is, and nothing else.
    """

    task_name: Name
    description: Description = ""
    deployment_mode: DeploymentMode | None = None
    model: ModelSpec
    base_runtime: Text = ""
    runtime_image_tag: Line | None = None
    engines: Annotated[tuple[TaskEngine, ...], Meta(max_length=16)] = ()
    storage: StorageSpec | None = None
    clusterbasemodel_config: PresetConfig | None = None
    clusterservingruntime_config: PresetConfig | None = None
    presets: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    preset_merge: PresetMerge = PresetMerge.LAST_WINS
    parameters: ParameterGrid = {}
    configurations: Configurations | None = None
    env: Variables = {}
    parallel_config: ParallelConfig | None = None
    quant_config: QuantConfig | None = None
    slo: SloSpec | None = None
    gpus: GpuPreferences | None = None
    endpoint: EndpointConfig | None = None
    optimization: OptimizationSpec = OptimizationSpec()
    benchmark: BenchmarkConfig = BenchmarkConfig()
    secrets: Annotated[tuple[SecretName, ...], Meta(max_length=32)] = ()
    schema_address: Annotated[str, line(max_length=512)] | None = field(
        name="$schema", default=None
    )

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Return its engines, each once, as it names them."""
        names = [engine.base_runtime for engine in self.engines] or [self.base_runtime]
        return tuple(dict.fromkeys(names))

    def __post_init__(self) -> None:
        if not self.base_runtime and not self.engines:
            raise ValueError("Object missing required field `base_runtime`")
        for name in ("base_runtime", "runtime_image_tag", "presets"):
            if self.engines and getattr(self, name):
                raise ValueError(f"expected {name!r} in each of `engines`, not beside them")
