"""How much memory of a GPU a request needs free: for grants, and for what may change one."""

from typing import Final

DEFAULT_FREE_SHARE: Final = 0.5


def needed_free_mb(min_memory_mb: int | None, total_mb: int | None) -> float | None:
    """What is requested, else half of the total; None if that is unknown."""
    if min_memory_mb is not None:
        return min_memory_mb
    return total_mb * DEFAULT_FREE_SHARE if total_mb is not None else None
