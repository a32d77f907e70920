"""What all configurations of an engine have in common here, and how each becomes an experiment."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.errors import ErrorCode
from schemas.executor.attempts import EngineSpec, Runtime
from schemas.executor.engine_rules import EngineRules
from schemas.executor.model_shape import ModelShape
from schemas.gpus.checks import CudaRules, ResourceDefinition
from schemas.orchestrator.views import MemoryEstimate, PlannedExperiment
from schemas.task.benchmark import BenchmarkTool
from schemas.task.endpoint import EndpointConfig, EngineEndpoint
from schemas.task.modality import Modality
from schemas.task.task_file import DeploymentMode, MemorySource, TaskFile
from services.orchestrator.domain.configurations import POWER_LIMIT, SM_CLOCK, URL, Point
from services.orchestrator.domain.installation.installation import Installation, Workload
from services.orchestrator.domain.installation.missing import Missing, missing_nodes
from services.orchestrator.domain.installation.offers import CLUSTER_MODES
from services.orchestrator.domain.installation.tools import ToolChoice
from services.orchestrator.domain.plan.cluster_devices import devices_for, find_devices
from services.orchestrator.domain.plan.cluster_objects import kubernetes_spec
from services.orchestrator.domain.plan.engine_parameters import engine_parameters
from services.orchestrator.domain.plan.memory_rule import (
    SIMULATED,
    UNKNOWN_TOKENS,
    estimate_memory,
    tokens_of_request,
)
from services.orchestrator.domain.plan.sizing import (
    is_estimated,
    part_of,
    request_for,
    world_size,
)
from services.orchestrator.domain.presets.blocks import quantization_named, without_presets
from shared.accelerator_rules.cluster_parts import ClusterPart
from shared.accelerator_rules.cuda_versions import CudaVersion
from shared.accelerator_rules.preflight import Preflight, preflight
from shared.engines.check import find_conflicts, takes
from shared.engines.conflicts import Conflict
from shared.engines.variables import read_variables
from shared.errors import RefusedError
from shared.gpu.sizing import memory_per_gpu_mb
from shared.near_words import did_you_mean


class Planner(Struct, frozen=True, kw_only=True):
    """One task with one engine in one installation; made once a submission and for every proposal
    of a search.
    """

    workload: Workload
    rules: EngineRules
    variables: tuple[str, ...] = ()
    cuda_rules: CudaRules
    node_ids: tuple[str, ...]
    choice: ToolChoice
    missing: tuple[Missing, ...]
    model_precisions: tuple[str, ...] = ()
    image_cuda: CudaVersion | None = None
    devices: tuple[ResourceDefinition, ...] = ()
    model_shape: ModelShape | None = None
    request_tokens: int = UNKNOWN_TOKENS
    modality: Modality = Modality.TEXT
    wait_timeout_seconds: float
    endpoint: EndpointConfig | None = None

    def plan_experiment(
        self, ordinal: int, point: Point
    ) -> tuple[PlannedExperiment, list[Missing], list[str]]:
        """Return the experiment, what the engine cannot take of it, and notes.

        Raises RefusedError for a bad parameter.
        """
        workload = self.workload
        plain_point, notes = without_presets(point, self.rules.task_fields)
        parameters, missing, engine_notes = engine_parameters(
            workload.engine,
            self.rules,
            plain_point,
            quantization_named(workload.model),
            self.modality,
        )
        needs = self._find_needs(parameters)
        notes += [*engine_notes, *needs.notes]
        kubernetes, part, gpus = self._find_cluster_needs(plain_point)
        estimate = self._estimate_memory(plain_point, parameters)
        planned = PlannedExperiment(
            ordinal=ordinal,
            parameters=point.show(),
            engine=EngineSpec(
                runtime=Runtime(workload.mode.value),
                engine=workload.engine,
                model=workload.model,
                parameters=parameters,
                image_tag=workload.image_tag,
                kubernetes=kubernetes,
                endpoint=self._find_endpoint(point),
                env=read_variables(point.env, self.variables),
            ),
            request=request_for(
                workload.gpus,
                plain_point,
                self.node_ids,
                needs,
                estimated_mb=(
                    memory_per_gpu_mb(workload.model) if estimate is None else estimate.memory_mb
                ),
                wait_timeout_seconds=self.wait_timeout_seconds,
                mode=workload.mode,
                gpus=gpus,
                container=(kubernetes or KubernetesSpec()).container.resources,
                part=part,
            ),
            preflight=needs.findings,
            power_limit_w=point.gpus.get(POWER_LIMIT),
            sm_clock_mhz=point.gpus.get(SM_CLOCK),
            memory_estimate=estimate,
            memory_source=estimate.source if estimate is not None else MemorySource.MODEL_NAME,
        )
        return planned, missing, notes

    def is_possible(self, point: Point) -> bool:
        """Return whether the engine takes this configuration."""
        try:
            planned, missing, _ = self.plan_experiment(1, point)
        except RefusedError:
            return False
        conflicts = self.find_conflicts(planned.engine.parameters)
        return not missing and not any(conflict.is_fatal for conflict in conflicts)

    def find_conflicts(self, parameters: Mapping[str, Any]) -> list[Conflict]:
        """Return which flags of the engine do not go together."""
        return find_conflicts(self.workload.engine, self.rules, parameters)

    def _find_cluster_needs(
        self, point: Point
    ) -> tuple[KubernetesSpec | None, ClusterPart | None, int | None]:
        """Return the spec with its custom devices, the part of a GPU that is asked for, and how
        many GPUs are held; None: as whole GPUs are.
        """
        kubernetes, gpus = self.workload.kubernetes, self.workload.gpus
        part = part_of(gpus) if self.workload.mode in CLUSTER_MODES else None
        if kubernetes is None or not self.node_ids:
            return kubernetes, part, None
        devices = devices_for(gpus, world_size(point), self.devices, part)
        if devices is None:
            return kubernetes, None, None
        return replace(kubernetes, devices=devices.container), devices.part, devices.gpus

    def _find_endpoint(self, point: Point) -> EngineEndpoint | None:
        """Return the server of the configuration; its GPUs are found when it is measured."""
        if self.endpoint is None:
            return None
        return EngineEndpoint(url=point.endpoint[URL], api_key=self.endpoint.api_key)

    def _estimate_memory(self, point: Point, flags: Mapping[str, Any]) -> MemoryEstimate | None:
        """Return None where the task says how much, asks for parts of GPUs, or for none."""
        if self.endpoint is not None or not is_estimated(self.workload.gpus):
            return None
        return estimate_memory(
            self.workload.model,
            point,
            flags,
            self.model_shape,
            self.model_precisions,
            self.request_tokens,
        )

    def _find_needs(self, parameters: Mapping[str, Any]) -> Preflight:
        """Return what its GPUs have to be; nothing of a server that has them already."""
        if self.endpoint is not None:
            return Preflight()
        mode, engine = self.workload.mode, self.workload.engine
        tag, kubernetes = self.workload.image_tag, self.workload.kubernetes
        runtime = kubernetes.serving_runtime if kubernetes is not None else None
        return preflight(
            parameters,
            # Engines without a dtype, such as llama.cpp, convert what a GPU lacks.
            model_precisions=self.model_precisions if takes(self.rules, "dtype") else (),
            is_in_image=mode is not DeploymentMode.PROCESS and not engine.startswith(SIMULATED),
            is_in_cluster=mode in CLUSTER_MODES,
            image=runtime or (f"{engine}:{tag}" if tag else engine),
            image_cuda=self.image_cuda,
            rules=self.cuda_rules,
        )


def make_planner(task: TaskFile, installation: Installation, choice: ToolChoice) -> Planner:
    """Return the planner of a task with one engine. `choice` is of the tool for all experiments.

    Raises RefusedError for what no installation could run.
    """
    workload = find_workload(task, installation)
    mode, model = workload.mode, task.model.id_or_path
    installation.refuse_unreadable(model, "$.model.id_or_path", mode)
    tokenizer = task.benchmark.model_tokenizer
    installation.refuse_unreadable(tokenizer, "$.benchmark.model_tokenizer", mode)
    if (probe := task.benchmark.quality) is not None:
        path = "$.benchmark.quality.accuracy_file"
        installation.refuse_unreadable(probe.accuracy_file, path, mode)
    tool = choice.tool or BenchmarkTool.BUILTIN
    devices = find_devices(installation, workload, installation.find_eligible(workload, tool))
    has_own_image = workload.kubernetes is not None and workload.kubernetes.serving_runtime
    is_image_known = mode is not DeploymentMode.PROCESS and not has_own_image
    return Planner(
        workload=workload,
        rules=installation.find_rules(mode, workload.engine),
        variables=installation.find_variables(mode, workload.engine),
        cuda_rules=installation.cuda_rules,
        node_ids=devices.node_ids,
        choice=choice,
        missing=tuple(missing_nodes(installation, workload, tool)),
        model_precisions=installation.find_precisions(model),
        image_cuda=installation.find_cuda(workload) if is_image_known else None,
        devices=devices.definitions,
        model_shape=installation.find_shape(model),
        request_tokens=tokens_of_request(task.benchmark),
        # A server that runs already was given what it needs.
        modality=task.benchmark.modality if task.endpoint is None else Modality.TEXT,
        wait_timeout_seconds=task.optimization.wait_timeout_seconds,
        endpoint=task.endpoint,
    )


def find_workload(task: TaskFile, installation: Installation) -> Workload:
    """Return what the task runs. Raises RefusedError for an engine that is not known here."""
    mode = choose_mode(task, installation)
    kubernetes = kubernetes_spec(task, mode, installation) if mode in CLUSTER_MODES else None
    engines = installation.list_engines(mode)
    engine = installation.find_engine(task.base_runtime, mode)
    if engine is None and kubernetes is not None:
        engine = installation.find_engine_of_runtime(kubernetes.serving_runtime)
    if engine is None and engines and mode is not DeploymentMode.OME:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected one of {', '.join(engines)}, got {task.base_runtime!r}"
            f"{did_you_mean(task.base_runtime, engines)}",
            path="$.base_runtime",
        )
    return Workload(
        model=task.model.id_or_path,
        gpus=task.gpus,
        mode=mode,
        engine=engine or task.base_runtime,
        base_runtime=task.base_runtime,
        image_tag=task.runtime_image_tag,
        kubernetes=kubernetes,
    )


def choose_mode(task: TaskFile, installation: Installation) -> DeploymentMode:
    """Return the deployment mode that the task sets or, setting none, implies."""
    if task.deployment_mode is not None:
        return task.deployment_mode
    if task.endpoint is not None:
        return DeploymentMode.ENDPOINT
    has_cluster_block = (
        task.clusterbasemodel_config is not None
        or task.clusterservingruntime_config is not None
        or (task.storage is not None and task.storage.type == "pvc")
    )
    # Of several engines each is known, or misspelt: a ClusterServingRuntime is not implied.
    is_unknown = not task.engines and installation.find_engine(task.base_runtime) is None
    if has_cluster_block or is_unknown:
        return DeploymentMode.OME
    return DeploymentMode.DOCKER
