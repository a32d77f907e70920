"""How much memory of a GPU a request needs free: for grants, and for what may change one."""

from typing import Final

DEFAULT_FREE_SHARE: Final = 0.5


def min_free_mb(min_memory_mb: int | None, total_mb: int | None) -> float | None:
    """Return the requested memory, else half of the total, in MB; None if both are unknown."""
    if min_memory_mb is not None:
        return min_memory_mb
    return total_mb * DEFAULT_FREE_SHARE if total_mb is not None else None
