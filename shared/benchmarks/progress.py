"""How far a benchmark is, over all its levels."""


def overall_fraction(
    *,
    level_no: int,
    levels_total: int,
    done_requests: int,
    total_requests: int,
    elapsed_seconds: float,
    level_limit_seconds: float,
    is_measuring: bool,
) -> float:
    """Return the finished share, 0 to 1. A level ends by its requests or by its time, whichever
    comes first.
    """
    within_level = 0.0
    if is_measuring:
        by_requests = done_requests / total_requests if total_requests else 1.0
        within_level = min(1.0, max(by_requests, elapsed_seconds / level_limit_seconds))
    return min(1.0, (level_no - 1 + within_level) / levels_total)
