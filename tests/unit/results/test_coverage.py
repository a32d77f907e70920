"""How much of a window is known: its gaps, and ticks that never came."""

from uuid import UUID

import pytest

from services.results.domain.coverage import (
    coverage_seconds,
    longest_gap_seconds,
    missing_ticks,
)
from services.results.domain.reading import Reading, Span

WINDOW = Span(10.0, 20.0)


def tick(at: int, boot: int = 7) -> Reading:
    return read_at(float(at), 1.0, boot=boot, sequence=at)


def read_at(at: float, interval: float, *, boot: int = 7, sequence: int = 1) -> Reading:
    return Reading(at=at, interval_seconds=interval, boot_id=UUID(int=boot), sequence=sequence)


@pytest.mark.parametrize(
    ("readings", "seconds"),
    [
        pytest.param([], 0.0, id="none"),
        pytest.param([read_at(9.75, 1)], 0.0, id="none within"),
        pytest.param([read_at(15, 2)], 2.0, id="half an interval on both sides"),
        pytest.param([read_at(13, 1), read_at(14, 1)], 2.0, id="of two"),
        pytest.param([read_at(13, 1), read_at(14.5, 1)], 2.5, id="a little late"),
        pytest.param([read_at(13, 1), read_at(14.625, 1)], 2.0, id="one is missing between"),
        pytest.param([read_at(12, 1), read_at(16, 3)], 6.0, id="the interval has grown"),
        pytest.param([read_at(12, 3), read_at(16, 1)], 6.0, id="the interval has shrunk"),
    ],
)
def test_a_reading_stands_for_the_time_around_it(readings: list[Reading], seconds: float) -> None:
    assert coverage_seconds(readings, [WINDOW]) == seconds


@pytest.mark.parametrize(
    ("ticks", "missing"),
    [
        pytest.param([12, 15], 2, id="within"),
        pytest.param([7, 11], 3, id="over its start"),
        pytest.param([19, 23], 3, id="over its end"),
        pytest.param([5, 25], 19, id="all of it"),
        pytest.param([7, 10], 0, id="before it"),
        pytest.param([20, 23], 0, id="after it"),
        pytest.param([2, 5, 25, 28], 19, id="on both sides"),
        pytest.param([12, 13, 14], 0, id="none"),
        pytest.param([13, 11], 0, id="told backwards"),
    ],
)
def test_ticks_are_missing_where_the_window_is(ticks: list[int], missing: int) -> None:
    assert missing_ticks([tick(at) for at in ticks], [WINDOW]) == missing


def test_ticks_of_another_boot_are_not_missing() -> None:
    assert missing_ticks([tick(12), tick(17, boot=8)], [WINDOW]) == 0


@pytest.mark.parametrize(
    ("spans", "longest"),
    [
        pytest.param([WINDOW], 3.0, id="within a span"),
        pytest.param([WINDOW, Span(20.0, 22.0)], 3.0, id="in the first of two"),
        pytest.param([Span(8.0, 10.0), WINDOW], 3.0, id="in the second of two"),
        pytest.param([Span(50.0, 54.0)], 4.0, id="where nothing is known"),
        pytest.param([Span(6.0, 9.0), Span(10.0, 13.0)], 0.0, id="beside it"),
        pytest.param([], 0.0, id="of nothing"),
    ],
)
def test_the_longest_gap_is_that_of_any_span(spans: list[Span], longest: float) -> None:
    readings = [tick(at) for at in range(5, 25) if not 13 < at < 17]

    assert longest_gap_seconds(readings, spans) == longest
