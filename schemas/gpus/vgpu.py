"""What a request in vGPU cores and memory reads as."""

from typing import Any, Final

VGPU_CORES: Final = 100  # of a whole GPU
# As GPU-Manager counts them in Kubernetes.
VGPU_CORE_RESOURCE: Final = "tencent.com/vcuda-core"
VGPU_MEMORY_RESOURCE: Final = "tencent.com/vcuda-memory"
VGPU_MEMORY_UNIT_MB: Final = 256


def vgpu_fields(request: Any) -> dict[str, Any]:
    """Fields of a `GpuRequest` in place of its vGPU's; none without one. Raises ValueError."""
    cores, memory_mb = request.vgpu_cores, request.vgpu_memory_mb
    if cores is None:
        if memory_mb is not None:
            raise ValueError("expected `vgpu_cores` with `vgpu_memory_mb`")
        return {}
    if request.gpus != 1 or request.nodes != 1 or request.shares or request.mig_profile:
        raise ValueError("expected no gpus, nodes, shares or mig_profile with `vgpu_cores`")
    if memory_mb is not None and request.min_memory_mb is not None:
        raise ValueError("expected one of `vgpu_memory_mb` and `min_memory_mb`")
    fields: dict[str, Any] = {"vgpu_cores": None, "vgpu_memory_mb": None}
    if cores % VGPU_CORES == 0:
        if memory_mb is not None:
            raise ValueError("expected no `vgpu_memory_mb` with whole GPUs, which have all of it")
        return fields | {"gpus": cores // VGPU_CORES}
    if cores > VGPU_CORES:
        raise ValueError(f"expected 1 to 100 `vgpu_cores` or a multiple of 100, got {cores}")
    if memory_mb is not None:
        fields["min_memory_mb"] = -(-memory_mb * VGPU_CORES // cores)
    return fields | {"shares": cores / VGPU_CORES, "unfragmented": True}
