from datetime import UTC, datetime

from schemas.base import HOUR_US
from services.results.domain.usage_days import MAX_NAMES, usage_days

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = datetime(2026, 1, 2, tzinfo=UTC)


def test_days_have_hours_by_name_in_their_order() -> None:
    held = [(SECOND, "b", 2.0 * HOUR_US), (FIRST, "a", 1.0 * HOUR_US), (SECOND, "a", HOUR_US / 2)]

    days = usage_days(held)

    assert [(day.day_at, day.gpu_hours, day.other_hours) for day in days] == [
        (FIRST, {"a": 1.0}, 0.0),
        (SECOND, {"b": 2.0, "a": 0.5}, 0.0),
    ]


def test_names_beyond_the_most_are_summed() -> None:
    held = [(FIRST, f"n{at}", (20.0 - at) * HOUR_US) for at in range(MAX_NAMES + 2)]

    [day] = usage_days(held)

    assert len(day.gpu_hours) == MAX_NAMES
    assert day.other_hours == 13.0 + 12.0
    assert usage_days([]) == ()
