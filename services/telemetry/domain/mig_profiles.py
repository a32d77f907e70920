"""Names of MIG profiles, and where in a GPU they have room."""

import re
from typing import Final

from schemas.gpus.mig import MigOption

_IN_NAME = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb(?:\+\w+)*)")
_EIGHTHS: Final = 8
# Of GPUs with seven compute and eight memory slices: compute slices, memory slices, first ones.
# "Supported MIG Profiles" and "Partitioning" of NVIDIA's MIG user guide, for A100 and H100.
_PLACEMENTS: Final = (
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, (0, 2, 4, 6)),
    (2, 2, (0, 2, 4)),
    (3, 4, (0, 4)),
    (4, 4, (0,)),
    (7, 8, (0,)),
)


def mig_profile(
    name: str | None,
    *,
    gpu_slices: int | None,
    compute_slices: int | None,
    memory_mb: int | None,
    parent_memory_mb: int | None,
) -> str | None:
    """`1g.10gb`, or `1c.2g.20gb` for a part of the instance's compute slices; None if unknown.

    The driver writes the profile into the instance's name. Where it does not, it follows from the
    slices and from the memory, which comes in eighths of the GPU's.
    """
    if (match := _IN_NAME.search(name or "")) is not None:
        return match.group(1)
    if not gpu_slices or not memory_mb or not parent_memory_mb:
        return None
    eighths = max(1, round(memory_mb / parent_memory_mb * _EIGHTHS))
    memory_gb = _memory_gb(eighths, parent_memory_mb)
    part = ""
    if compute_slices and compute_slices != gpu_slices:
        part = f"{compute_slices}c."
    return f"{part}{gpu_slices}g.{memory_gb}gb"


def usual_options(gpu_memory_mb: int) -> tuple[MigOption, ...]:
    """Return how an A100 or H100 of this memory may be divided."""
    return tuple(
        MigOption(
            profile=f"{compute}g.{_memory_gb(size, gpu_memory_mb)}gb",
            size=size,
            starts=starts,
            limit=len(starts),
            memory_mb=gpu_memory_mb * size // _EIGHTHS,
        )
        for compute, size, starts in _PLACEMENTS
    )


def _memory_gb(eighths: int, gpu_memory_mb: int) -> int:
    return round(eighths * -(-gpu_memory_mb // 1024) / _EIGHTHS)
