"""How many GPUs one configuration needs, and how much memory on each."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar

from msgspec.structs import replace

from schemas.cluster.kubernetes import ContainerResources
from schemas.errors import ErrorCode
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest, ShareStrategy
from schemas.gpus.vgpu import VGPU_CORES
from schemas.task.task_file import DeploymentMode, GpuPreferences
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.installation.offers import CLUSTER_MODES
from services.orchestrator.domain.plan.gpu_wishes import check_wishes
from shared.accelerator_rules.cluster_parts import ClusterPart, cluster_part
from shared.accelerator_rules.preflight import Preflight
from shared.accelerator_rules.quantities import mebibytes_up, milli
from shared.errors import RefusedError
from shared.gpu.sizing import (
    SPELLINGS,
    degree,
    degree_named,
    hyphenate,
    world_size_of,
)

Named = Literal["cpu", "memory", "ephemeral-storage"]
Number = TypeVar("Number", int, float)

MAX_GROUP: Final = 4096
NO_NEEDS: Final = Preflight()
NO_RESOURCES: Final = ContainerResources()
MAX_PARALLEL_GPUS: Final = 64  # of `parallel_config`, as documented
_OF_CLUSTERS: Final = ("mps_cores", "time_slices")
_PARTS: Final = ("shares", "mig_profile", "vgpu_cores", *_OF_CLUSTERS)
_AS_THEY_ARE: Final = (
    *("device_uuids", "placement", "priority", "preemptible", "cpu_count", "host_memory_mb"),
    *("prefer", "mixed_models"),
)
_NOT_WITH_MIG: Final = {"count": None, "num_nodes": 1}
_NOT_WITH_SHARES: Final = {**_NOT_WITH_MIG, "min_memory_mb": None}


def request_for(
    preferences: GpuPreferences | None,
    point: Point,
    node_ids: tuple[str, ...],
    needs: Preflight = NO_NEEDS,
    *,
    estimated_mb: int,
    wait_timeout_seconds: float,
    mode: DeploymentMode = DeploymentMode.PROCESS,
    gpus: int | None = None,
    container: ContainerResources = NO_RESOURCES,
    part: ClusterPart | None = None,
) -> GpuRequest:
    """Return the configuration's request for GPUs; the task's `gpus` block goes before estimates.

    In a cluster's mode `node_ids` are clusters, `gpus` what its definitions of devices come to,
    `container` what the task gives the engine's container beside GPUs, and `part` what it asks for
    in place of whole ones. `estimated_mb` is the memory of each GPU where the task says none.

    Raises RefusedError for a degree of parallelism that is no positive whole number, for GPUs that
    several nodes cannot share evenly, and for what excludes shares.
    """
    if preferences is not None:
        check_wishes(preferences, is_in_cluster=mode in CLUSTER_MODES)
        _check_parts(preferences, world_size(point), mode)
    count = gpus or (preferences.count if preferences and preferences.count else world_size(point))
    nodes = preferences.num_nodes if preferences else 1
    memory_mb = preferences.min_memory_mb if preferences else None
    request = GpuRequest(
        gpus=_per_node(count, nodes),
        nodes=nodes,
        min_memory_mb=estimated_mb if memory_mb is None else memory_mb,
        node_ids=node_ids,
        gpu_models=preferences.models if preferences else (),
        balanced_memory=count > 1 and (preferences is None or preferences.balanced_memory),
        wait_timeout_seconds=wait_timeout_seconds,
        min_compute_capability=needs.capability,
        require=needs.selectors,
        cluster=(
            _cluster(preferences or GpuPreferences(), container, part)
            if mode in CLUSTER_MODES
            else None
        ),
    )
    if preferences is None:
        return request
    as_they_are = {name: getattr(preferences, name) for name in _AS_THEY_ARE}
    if mode not in CLUSTER_MODES:
        as_they_are["mig_profile"] = preferences.mig_profile
    request = replace(request, require=(*needs.selectors, *preferences.require), **as_they_are)
    if preferences.vgpu_cores is not None and mode not in CLUSTER_MODES:
        return _of_vgpu(request, preferences)
    if preferences.shares is None:
        return request
    return replace(
        request,
        min_memory_mb=None,  # as large a part of it comes with the shares
        shares=preferences.shares,
        share_strategy=preferences.share_strategy,
        min_free_shares=preferences.min_free_shares,
        unfragmented=preferences.share_strategy is ShareStrategy.EVENLY,
        enforced_shares=preferences.enforced_shares,
    )


def is_estimated(gpus: GpuPreferences | None) -> bool:
    """Tell whether the task leaves open how much memory its whole GPUs have."""
    return gpus is None or all(getattr(gpus, name) is None for name in ("min_memory_mb", *_PARTS))


def _check_parts(gpus: GpuPreferences, degree_of_all: int, mode: DeploymentMode) -> None:
    part = next((name for name in _PARTS if getattr(gpus, name) is not None), None)
    if part is None:
        return
    unset_beside = _NOT_WITH_SHARES if part == "shares" else _NOT_WITH_MIG
    for name, unset in {**unset_beside, **_others(part)}.items():
        if getattr(gpus, name) != unset:
            raise _size_refusal(f"expected no {name} with {part}", f"$.gpus.{name}")
    if degree_of_all > 1 and not _is_whole(gpus):
        raise _size_refusal(
            f"expected whole GPUs (`count`) for {degree_of_all} parallel parts, got {part}",
            f"$.gpus.{part}",
        )
    if mode in CLUSTER_MODES and part == "shares":
        parts = ", ".join(name for name in _PARTS if name != "shares")
        raise _size_refusal(
            f"expected whole GPUs of a cluster, or one of {parts}; got shares", "$.gpus.shares"
        )
    if mode not in CLUSTER_MODES and part in _OF_CLUSTERS:
        raise _size_refusal(
            f"expected no {part} outside of a cluster: ask for shares", f"$.gpus.{part}"
        )


def _is_whole(gpus: GpuPreferences) -> bool:
    """Return whether the cores asked for are whole GPUs, of which several may be one engine's."""
    cores = gpus.vgpu_cores or gpus.mps_cores
    return cores is not None and cores % VGPU_CORES == 0


def _others(part: str) -> dict[str, None]:
    """Kinds of parts that exclude the one that is asked for."""
    return {name: None for name in _PARTS if name != part}


def _of_vgpu(request: GpuRequest, gpus: GpuPreferences) -> GpuRequest:
    """Return the size of a vGPU: on a node of ours it is a part of a GPU's multiprocessors and
    memory.
    """
    try:
        vgpu_request = replace(
            request,
            gpus=1,
            min_memory_mb=None,
            vgpu_cores=gpus.vgpu_cores,
            vgpu_memory_mb=gpus.vgpu_memory_mb,
        )
    except ValueError as error:
        raise _size_refusal(str(error), "$.gpus.vgpu_cores") from error
    if vgpu_request.shares is None:
        return replace(vgpu_request, min_memory_mb=request.min_memory_mb)
    return vgpu_request  # as large a part of the memory comes with the cores


def part_of(gpus: GpuPreferences | None) -> ClusterPart | None:
    """Return the part of a cluster's GPU that a task asks for. Raises RefusedError."""
    if gpus is None:
        return None
    return cluster_part(
        vgpu_cores=gpus.vgpu_cores,
        vgpu_memory_mb=gpus.vgpu_memory_mb,
        mps_cores=gpus.mps_cores,
        time_slices=gpus.time_slices,
        mig_profile=gpus.mig_profile,
        resource=gpus.resource,
    )


def _cluster(
    gpus: GpuPreferences,
    container: ContainerResources,
    part: ClusterPart | None,
) -> ClusterRequest:
    if gpus.num_nodes > 1 and not gpus.select_node:
        raise _size_refusal(
            "expected 1 node where the cluster's own scheduler is to choose, which does not bind"
            " all or none",
            "$.gpus.num_nodes",
        )
    if not gpus.select_node and (gpus.nodes or gpus.models):
        raise _size_refusal(
            "expected no nodes or models where the cluster's own scheduler is to choose",
            "$.gpus.select_node",
        )
    if len(gpus.nodes) > MAX_GROUP:
        raise _size_refusal(
            f"expected at most {MAX_GROUP} nodes of a cluster, got {len(gpus.nodes)}",
            "$.gpus.nodes",
        )
    return ClusterRequest(
        cluster_id=gpus.cluster,
        selects_node=gpus.select_node,
        utilization_threshold_percent=gpus.utilization_threshold_percent,
        memory_threshold_percent=gpus.memory_threshold_percent,
        node_names=gpus.nodes,
        resource=part.resource if part is not None else gpus.resource,
        units=part.units if part is not None else None,
        memory_units=part.memory_units if part is not None else None,
        ranking=gpus.node_ranking,
        pod_cpu_count=_find_amount(container, "cpu", lambda text: milli(text) / 1000),
        pod_memory_mb=_find_amount(container, "memory", mebibytes_up),
        pod_ephemeral_storage_mb=_find_amount(container, "ephemeral-storage", mebibytes_up),
    )


def _find_amount(
    container: ContainerResources, name: Named, amount: Callable[[str], Number]
) -> Number | None:
    """Return what the engine's container asks of its node; a limit alone is a request too."""
    text = container.requests.get(name) or container.limits.get(name)
    return amount(text) if text else None


def _size_refusal(message: str, path: str) -> RefusedError:
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
    if point.parallel and size > MAX_PARALLEL_GPUS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {MAX_PARALLEL_GPUS} GPUs for an experiment, got {size}",
            path="$.parallel_config",
        )
    if size > MAX_GROUP:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {MAX_GROUP} GPUs for an experiment, parameters ask for {size}",
            path="$.parameters",
        )
    return size


def _has_dp_attention(point: Point) -> bool:
    return any(
        value is True and hyphenate(name) == "enable-dp-attention"
        for name, value in point.parameters.items()
    )


def world_size_given(parameters: Mapping[str, Any]) -> int:
    """`tp * pp * max(dp, dcp, cp)` of an experiment's parameters, which were checked before."""
    kinds = {name: degree_named(name) for name in parameters}
    return world_size_of(
        (kind, degree(parameters[name], f"$.parameters.{name}"))
        for name, kind in kinds.items()
        if kind is not None and parameters[name] is not None
    )


def degrees_of(point: Point) -> Iterator[tuple[str, int]]:
    """Yield the degrees of parallelism; a parameter's goes before that of `parallel_config`."""
    names_by_kind = {degree_named(name): name for name in point.parameters}
    for kind, name in names_by_kind.items():
        if kind is not None and point.parameters[name] is not None:
            yield kind, degree(point.parameters[name], f"$.parameters.{name}")
    for name, value in point.parallel.items():
        if name in SPELLINGS and name not in names_by_kind:
            yield name, value
