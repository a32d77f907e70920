"""Names of MIG profiles."""

import re
from typing import Final

_IN_NAME = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb(?:\+\w+)*)")
_EIGHTHS: Final = 8


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
    if (found := _IN_NAME.search(name or "")) is not None:
        return found.group(1)
    if not gpu_slices or not memory_mb or not parent_memory_mb:
        return None
    eighths = max(1, round(memory_mb / parent_memory_mb * _EIGHTHS))
    memory_gb = round(eighths * -(-parent_memory_mb // 1024) / _EIGHTHS)
    part = ""
    if compute_slices and compute_slices != gpu_slices:
        part = f"{compute_slices}c."
    return f"{part}{gpu_slices}g.{memory_gb}gb"
