"""How devices are handed out."""

from enum import StrEnum


class GpuKind(StrEnum):
    """How a device, or a part of one, is handed out.

    As a filter of devices `shared` means those held in parts in any way, `pgpu` every one that is
    no instance.
    """

    PGPU = "pgpu"  # a whole GPU
    MIG = "mig"  # an instance of one
    SHARED = "shared"  # a part of one; the kinds below say by what means
    VGPU = "vgpu"  # cores and memory of one, by GPU-Manager
    MPS = "mps"  # by NVIDIA's MPS
    TIME_SLICE = "time_slice"  # one of the turns at one that NVIDIA's device plugin counts
