"""Usage by day: the names with the most hours, and all others together."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from schemas.base import HOUR_US
from schemas.results.reports import UsageDay

MAX_NAMES: Final = 7  # as many as a chart has colours for


def usage_days(holdings: Iterable[tuple[datetime, str, float]]) -> tuple[UsageDay, ...]:
    """Return the days in their order, of microseconds that names held on each."""
    by_day: defaultdict[datetime, Counter[str]] = defaultdict(Counter)
    sums: Counter[str] = Counter()
    for day_at, name, held_us in holdings:
        by_day[day_at][name] += held_us  # type: ignore[assignment]
        sums[name] += held_us  # type: ignore[assignment]
    biggest = {name for name, _ in sums.most_common(MAX_NAMES)}
    return tuple(
        UsageDay(
            day_at=day_at,
            gpu_hours={name: us / HOUR_US for name, us in of_day.items() if name in biggest},
            other_hours=sum(us for name, us in of_day.items() if name not in biggest) / HOUR_US,
        )
        for day_at, of_day in sorted(by_day.items())
    )
