"""How available a device is, 0 to 1; pure, as a domain is.

The rule is the requirements': `0.6 * free share of memory + 0.4 * idle share`. A service that ranks
or shows devices uses this one function.
"""

from typing import Final

MEMORY_WEIGHT: Final = 0.6
UTILIZATION_WEIGHT: Final = 0.4


def availability_score(
    utilization_percent: float | None,
    memory_free_mb: float | None,
    memory_total_mb: float | None,
    *,
    memory_weight: float = MEMORY_WEIGHT,
    utilization_weight: float = UTILIZATION_WEIGHT,
) -> float | None:
    """The weighted sum of free memory and idle time; None if one of the three is unknown.

    A total of 0 is no total. With weights that sum to 1, from 0 to 1.
    """
    if utilization_percent is None or memory_free_mb is None or not memory_total_mb:
        return None
    memory = memory_free_mb / memory_total_mb
    idle = (100.0 - utilization_percent) / 100.0
    return memory_weight * memory + utilization_weight * idle
