"""Parts of GPUs as a container of Kubernetes asks for them: vGPU, MPS, time slices, MIG."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.gpus.vgpu import VGPU_CORE_RESOURCE
from shared.accelerator_rules.modes import (
    GPU_RESOURCE,
    MIG_PREFIX,
    SHARED_GPU_RESOURCE,
    memory_resource_of,
    memory_units,
    units_per_gpu,
)
from shared.errors import RefusedError

MPS_CORE: Final = "nvidia.com/mps-core"
_KINDS: Final = ("vgpu_cores", "mps_cores", "time_slices", "mig_profile")


class ClusterPart(Struct, frozen=True, kw_only=True):
    """`limits` of a container by resource. `units` of `resource`, and `memory_units` of what goes
    with it, are a part of one GPU; None: `gpus` of what the resource counts.
    """

    resource: str
    limits: dict[str, int]
    gpus: int = 1
    units: int | None = None
    memory_units: int | None = None


def cluster_part(
    *,
    vgpu_cores: int | None = None,
    vgpu_memory_mb: int | None = None,
    mps_cores: int | None = None,
    time_slices: int | None = None,
    mig_profile: str | None = None,
    resource: str | None = None,
    path: str = "$.gpus",
) -> ClusterPart | None:
    """Return what is asked for; None where no part is. `resource` names what counts slices where it
    is not NVIDIA's own name.

    Raises RefusedError for more than one kind, and for what no plugin serves.
    """
    value_by_kind = dict(
        zip(_KINDS, (vgpu_cores, mps_cores, time_slices, mig_profile), strict=True)
    )
    kinds = [name for name, value in value_by_kind.items() if value is not None]
    if len(kinds) > 1:
        why = ": MPS serves no MIG instances" if set(kinds) == {"mps_cores", "mig_profile"} else ""
        raise _refusal(f"expected one of {', '.join(kinds)}{why}", f"{path}.{kinds[1]}")
    if vgpu_memory_mb is not None and vgpu_cores is None:
        raise _refusal("expected vgpu_cores with vgpu_memory_mb", f"{path}.vgpu_memory_mb")
    if resource is not None and kinds and time_slices is None:
        raise _refusal(f"expected no resource with {kinds[0]}, which names it", f"{path}.resource")
    if mig_profile is not None:
        name = f"{MIG_PREFIX}{mig_profile}"
        return ClusterPart(resource=name, limits={name: 1})
    if time_slices is not None:
        return _of_slices(time_slices, resource or SHARED_GPU_RESOURCE, path)
    if vgpu_cores is not None:
        return _of_cores(VGPU_CORE_RESOURCE, vgpu_cores, vgpu_memory_mb, path, "vgpu")
    if mps_cores is not None:
        return _of_cores(MPS_CORE, mps_cores, None, path, "mps")
    return None


def units_of(resource: str, limits: Mapping[str, int]) -> tuple[int | None, int | None]:
    """Return what of a container's limits is a part of one GPU, and of its memory."""
    per_gpu, units = units_per_gpu(resource), limits.get(resource, 0)
    if per_gpu == 1 or units % per_gpu == 0:
        return None, None
    return units, limits.get(memory_resource_of(resource) or "")


def check_units(
    resource: str | None, units: int | None, memory: int | None, path: str = "$.request.cluster"
) -> None:
    """Raises RefusedError for a part that no plugin serves."""
    if units is None:
        if memory is not None:
            raise _refusal("expected units with memory_units", f"{path}.memory_units")
        return
    if resource is None:
        raise _refusal("expected the resource that units are of", f"{path}.resource")
    is_sliced = resource in {GPU_RESOURCE, SHARED_GPU_RESOURCE}
    per_gpu = units_per_gpu(resource)
    if not is_sliced and per_gpu == 1:
        raise _refusal(f"expected no units of {resource}, of which one is whole", f"{path}.units")
    if not is_sliced and units >= per_gpu:
        raise _refusal(
            f"expected fewer than {per_gpu} units of {resource}, which are one GPU, got {units}:"
            " ask for whole ones by gpus",
            f"{path}.units",
        )
    if memory is not None and memory_resource_of(resource) is None:
        raise _refusal(f"expected no memory_units with {resource}", f"{path}.memory_units")


def _of_slices(slices: int, resource: str, path: str) -> ClusterPart:
    if resource not in {GPU_RESOURCE, SHARED_GPU_RESOURCE}:
        raise _refusal(
            f"expected {SHARED_GPU_RESOURCE}, or {GPU_RESOURCE} where it is shared under its own"
            f" name; got {resource}",
            f"{path}.resource",
        )
    return ClusterPart(resource=resource, limits={resource: slices}, units=slices)


def _of_cores(
    resource: str, cores: int, memory_mb: int | None, path: str, kind: str
) -> ClusterPart:
    per_gpu = units_per_gpu(resource)
    if cores % per_gpu == 0:
        if memory_mb is not None:
            raise _refusal(
                "expected no memory with whole GPUs, which have all of it",
                f"{path}.{kind}_memory_mb",
            )
        return ClusterPart(resource=resource, limits={resource: cores}, gpus=cores // per_gpu)
    if cores > per_gpu:
        raise _refusal(
            f"expected 1 to {per_gpu}, or a multiple of {per_gpu}, got {cores}",
            f"{path}.{kind}_cores",
        )
    limits = {resource: cores}
    units = memory_units(resource, memory_mb) if memory_mb else None
    if units is not None:
        limits[memory_resource_of(resource) or ""] = units
    return ClusterPart(resource=resource, limits=limits, units=cores, memory_units=units)


def _refusal(message: str, path: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
