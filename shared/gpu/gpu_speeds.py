"""What GPUs can do at most: memory bandwidth and dense 16-bit matrix arithmetic.

From the makers' data sheets: without sparsity, of one GPU (of an MI250X both of its dies).
"""

from typing import Final

from msgspec import Struct

from shared.gpu.model_names import matches_model


class GpuSpeed(Struct, frozen=True):
    """`model` is a part of the name that the driver reports."""

    model: str
    memory_gb: int
    gb_per_second: int
    tflops: float


# nvidia.com/en-us/data-center and amd.com/en/products/accelerators, a data sheet of each model.
SPEEDS: Final = (
    GpuSpeed("B200", 180, 7700, 2250),
    GpuSpeed("H200", 141, 4800, 989),
    GpuSpeed("H100 NVL", 94, 3900, 835),
    GpuSpeed("H100 PCIe", 80, 2000, 756),
    GpuSpeed("H100", 80, 3350, 989),
    GpuSpeed("A100-SXM4-80GB", 80, 2039, 312),
    GpuSpeed("A100 80GB PCIe", 80, 1935, 312),
    GpuSpeed("A100", 40, 1555, 312),
    GpuSpeed("L40S", 48, 864, 362),
    GpuSpeed("L40", 48, 864, 181),
    GpuSpeed("L4", 24, 300, 121),
    GpuSpeed("A30", 24, 933, 165),
    GpuSpeed("A10", 24, 600, 125),
    GpuSpeed("V100", 32, 900, 125),
    GpuSpeed("T4", 16, 320, 65),
    GpuSpeed("MI300X", 192, 5300, 1307),
    GpuSpeed("MI250X", 128, 3277, 383),
)


def speed_of(name: str) -> GpuSpeed | None:
    """Return the speed of the longest model name that is part of this name; None if there is
    none.
    """
    speeds = [speed for speed in SPEEDS if matches_model(name, [speed.model])]
    return max(speeds, key=lambda speed: len(speed.model), default=None)
