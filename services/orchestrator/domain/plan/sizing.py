"""How many GPUs one configuration needs, and how much memory on each."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar

from msgspec.structs import replace

from schemas.cluster.kubernetes import ContainerResources
from schemas.errors import ErrorCode
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest, ShareStrategy
from schemas.gpus.vgpu import VGPU_CORES
from schemas.task.task_file import DeploymentMode, GpuPreferences, TaskFile
from services.orchestrator.domain.plan.executor_offers import CLUSTER_MODES
from services.orchestrator.domain.plan.expansion import Point
from services.orchestrator.domain.plan.gpu_wishes import check_wishes
from shared.accelerator_rules.cluster_parts import ClusterPart, cluster_part
from shared.accelerator_rules.preflight import Preflight
from shared.accelerator_rules.quantities import mebibytes_up, milli
from shared.errors import RefusedError
from shared.gpu.sizing import (
    SPELLINGS,
    degree,
    degree_named,
    hyphenated,
    memory_per_gpu_mb,
    world_size_of,
)

Named = Literal["cpu", "memory", "ephemeral-storage"]
Number = TypeVar("Number", int, float)

LARGEST_GROUP: Final = 4096
NO_NEEDS: Final = Preflight()
NO_RESOURCES: Final = ContainerResources()
LARGEST_PARALLEL: Final = 64  # of `parallel_config`, as documented
_OF_CLUSTERS: Final = ("mps_cores", "time_slices")
_PARTS: Final = ("shares", "mig_profile", "vgpu_cores", *_OF_CLUSTERS)
_AS_THEY_ARE: Final = (
    *("device_uuids", "placement", "priority", "preemptible", "cpu_count", "host_memory_mb"),
    *("prefer", "mixed_models"),
)
_NOT_WITH_MIG: Final = {"count": None, "num_nodes": 1}
_NOT_WITH_SHARES: Final = {**_NOT_WITH_MIG, "min_memory_mb": None}


def request_for(
    task: TaskFile,
    point: Point,
    node_ids: tuple[str, ...],
    needs: Preflight = NO_NEEDS,
    *,
    mode: DeploymentMode = DeploymentMode.PROCESS,
    gpus: int | None = None,
    container: ContainerResources = NO_RESOURCES,
    part: ClusterPart | None = None,
    estimated_mb: int | None = None,
) -> GpuRequest:
    """The configuration's request for GPUs; the task's `gpus` block goes before estimates.

    In a cluster's mode `node_ids` are clusters, `gpus` what its definitions of devices come to,
    `container` what the task gives the engine's container beside GPUs, and `part` what it asks for
    in place of whole ones. `estimated_mb` is the memory of each GPU where the task says none, None:
    the documented heuristic.

    Raises RefusedError for a degree of parallelism that is no positive whole number, for GPUs that
    several nodes cannot share evenly, and for what excludes shares.
    """
    wanted = task.gpus
    if wanted is not None:
        check_wishes(wanted, is_in_cluster=mode in CLUSTER_MODES)
        _check_parts(wanted, world_size(point), mode)
    count = gpus or (wanted.count if wanted and wanted.count else world_size(point))
    nodes = wanted.num_nodes if wanted else 1
    memory_mb = wanted.min_memory_mb if wanted else None
    if memory_mb is None:
        memory_mb = (
            memory_per_gpu_mb(task.model.id_or_path) if estimated_mb is None else estimated_mb
        )
    request = GpuRequest(
        gpus=_per_node(count, nodes),
        nodes=nodes,
        min_memory_mb=memory_mb,
        node_ids=node_ids,
        gpu_models=wanted.models if wanted else (),
        balanced_memory=count > 1 and (wanted is None or wanted.balanced_memory),
        wait_timeout_seconds=task.optimization.wait_timeout_seconds,
        min_compute_capability=needs.capability,
        require=needs.selectors,
        cluster=(
            _cluster(wanted or GpuPreferences(), container, part) if mode in CLUSTER_MODES else None
        ),
    )
    if wanted is None:
        return request
    as_they_are = {name: getattr(wanted, name) for name in _AS_THEY_ARE}
    if mode not in CLUSTER_MODES:
        as_they_are["mig_profile"] = wanted.mig_profile
    request = replace(request, require=(*needs.selectors, *wanted.require), **as_they_are)
    if wanted.vgpu_cores is not None and mode not in CLUSTER_MODES:
        return _of_vgpu(request, wanted)
    if wanted.shares is None:
        return request
    return replace(
        request,
        min_memory_mb=None,  # as large a part of it comes with the shares
        shares=wanted.shares,
        share_strategy=wanted.share_strategy,
        min_free_shares=wanted.min_free_shares,
        unfragmented=wanted.share_strategy is ShareStrategy.EVENLY,
        enforced_shares=wanted.enforced_shares,
    )


def is_estimated(wanted: GpuPreferences | None) -> bool:
    """Tell whether the task leaves open how much memory its whole GPUs have."""
    return wanted is None or all(
        getattr(wanted, name) is None for name in ("min_memory_mb", *_PARTS)
    )


def _check_parts(wanted: GpuPreferences, degree_of_all: int, mode: DeploymentMode) -> None:
    asked = next((name for name in _PARTS if getattr(wanted, name) is not None), None)
    if asked is None:
        return
    unset_beside = _NOT_WITH_SHARES if asked == "shares" else _NOT_WITH_MIG
    for name, unset in {**unset_beside, **_others(asked)}.items():
        if getattr(wanted, name) != unset:
            raise _refused(f"expected no {name} with {asked}", f"$.gpus.{name}")
    if degree_of_all > 1 and not _is_whole(wanted):
        raise _refused(
            f"expected whole GPUs (`count`) for {degree_of_all} parallel parts, got {asked}",
            f"$.gpus.{asked}",
        )
    if mode in CLUSTER_MODES and asked == "shares":
        parts = ", ".join(name for name in _PARTS if name != "shares")
        raise _refused(
            f"expected whole GPUs of a cluster, or one of {parts}; got shares", "$.gpus.shares"
        )
    if mode not in CLUSTER_MODES and asked in _OF_CLUSTERS:
        raise _refused(
            f"expected no {asked} outside of a cluster: ask for shares", f"$.gpus.{asked}"
        )


def _is_whole(wanted: GpuPreferences) -> bool:
    """Whether the cores that are asked for are whole GPUs, of which several may be one engine's."""
    cores = wanted.vgpu_cores or wanted.mps_cores
    return cores is not None and cores % VGPU_CORES == 0


def _others(asked: str) -> dict[str, None]:
    """Kinds of parts that exclude the one that is asked for."""
    return {name: None for name in _PARTS if name != asked}


def _of_vgpu(request: GpuRequest, wanted: GpuPreferences) -> GpuRequest:
    """On a node of ours a vGPU is a part of a GPU's multiprocessors and memory."""
    try:
        found = replace(
            request,
            gpus=1,
            min_memory_mb=None,
            vgpu_cores=wanted.vgpu_cores,
            vgpu_memory_mb=wanted.vgpu_memory_mb,
        )
    except ValueError as error:
        raise _refused(str(error), "$.gpus.vgpu_cores") from error
    if found.shares is None:
        return replace(found, min_memory_mb=request.min_memory_mb)
    return found  # as large a part of the memory comes with the cores


def part_of(wanted: GpuPreferences | None) -> ClusterPart | None:
    """Return the part of a cluster's GPU that a task asks for. Raises RefusedError."""
    if wanted is None:
        return None
    return cluster_part(
        vgpu_cores=wanted.vgpu_cores,
        vgpu_memory_mb=wanted.vgpu_memory_mb,
        mps_cores=wanted.mps_cores,
        time_slices=wanted.time_slices,
        mig_profile=wanted.mig_profile,
        resource=wanted.resource,
    )


def _cluster(
    wanted: GpuPreferences, container: ContainerResources, part: ClusterPart | None
) -> ClusterRequest:
    if wanted.num_nodes > 1:
        raise _refused("expected 1 node of a cluster for each experiment", "$.gpus.num_nodes")
    if not wanted.select_node and (wanted.nodes or wanted.models):
        raise _refused(
            "expected no nodes or models where the cluster's own scheduler is to choose",
            "$.gpus.select_node",
        )
    if len(wanted.nodes) > LARGEST_GROUP:
        raise _refused(
            f"expected at most {LARGEST_GROUP} nodes of a cluster, got {len(wanted.nodes)}",
            "$.gpus.nodes",
        )
    return ClusterRequest(
        cluster_id=wanted.cluster,
        selects_node=wanted.select_node,
        utilization_threshold_percent=wanted.utilization_threshold_percent,
        memory_threshold_percent=wanted.memory_threshold_percent,
        node_names=wanted.nodes,
        resource=part.resource if part is not None else wanted.resource,
        units=part.units if part is not None else None,
        memory_units=part.memory_units if part is not None else None,
        ranking=wanted.node_ranking,
        pod_cpu_count=_asked(container, "cpu", lambda text: milli(text) / 1000),
        pod_memory_mb=_asked(container, "memory", mebibytes_up),
        pod_ephemeral_storage_mb=_asked(container, "ephemeral-storage", mebibytes_up),
    )


def _asked(
    container: ContainerResources, name: Named, amount: Callable[[str], Number]
) -> Number | None:
    """Return what the engine's container asks of its node; a limit alone is a request too."""
    text = container.requests.get(name) or container.limits.get(name)
    return amount(text) if text else None


def _refused(message: str, path: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)


def _per_node(gpus: int, nodes: int) -> int:
    if gpus % nodes:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a number of nodes that divides the {gpus} GPUs of every experiment evenly, "
            f"got {nodes}",
            path="$.gpus.num_nodes",
        )
    return gpus // nodes


def world_size(point: Point) -> int:
    """The GPUs of all ranks: `tp * pp * max(dp, cp)`. Raises RefusedError, see `request_for`.

    Unlike the documented estimate: vLLM splits decoding's context (dcp) over the GPUs of tp, and
    SGLang, with `enable-dp-attention`, attention's replicas (dp) as well.
    """
    inside_tp = {"dcp", "dp"} if _has_dp_attention(point) else {"dcp"}
    size = world_size_of(
        (kind, value) for kind, value in degrees_of(point) if kind not in inside_tp
    )
    if point.parallel and size > LARGEST_PARALLEL:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {LARGEST_PARALLEL} GPUs for an experiment, got {size}",
            path="$.parallel_config",
        )
    if size > LARGEST_GROUP:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {LARGEST_GROUP} GPUs for an experiment, parameters ask for {size}",
            path="$.parameters",
        )
    return size


def _has_dp_attention(point: Point) -> bool:
    return any(
        value is True and hyphenated(name) == "enable-dp-attention"
        for name, value in point.parameters.items()
    )


def world_size_given(parameters: Mapping[str, Any]) -> int:
    """`tp * pp * max(dp, dcp, cp)` of an experiment's parameters, which were checked before."""
    named = {name: degree_named(name) for name in parameters}
    return world_size_of(
        (kind, degree(parameters[name], f"$.parameters.{name}"))
        for name, kind in named.items()
        if kind is not None and parameters[name] is not None
    )


def degrees_of(point: Point) -> Iterator[tuple[str, int]]:
    """Yield the degrees of parallelism; a parameter's goes before that of `parallel_config`."""
    given = {degree_named(name): name for name in point.parameters}
    for kind, name in given.items():
        if kind is not None and point.parameters[name] is not None:
            yield kind, degree(point.parameters[name], f"$.parameters.{name}")
    for name, value in point.parallel.items():
        if name in SPELLINGS and name not in given:
            yield name, value
