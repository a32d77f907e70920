"""Which resolution answers a question, and what is read for it."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.results.domain.rollup import EPOCH, HOUR, MINUTE, Level, Plan, plan, start_of

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALWAYS: Final = dict.fromkeys(Level, datetime.min.replace(tzinfo=UTC))
DAY: Final = timedelta(days=1)
TIMES: Final = st.integers(0, 4 * 86_400_000).map(lambda ms: NOON + timedelta(milliseconds=ms))


def planned(start: datetime, end: datetime, **overrides: object) -> Plan:
    asked: dict[str, object] = {
        "points": 300,
        "devices": 1,
        "most_rows": 50_000,
        "kept_from": ALWAYS,
        "due": (),
        **overrides,
    }
    return plan(start, end, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("span", "devices", "level"),
    [
        (timedelta(minutes=30), 1, Level.RAW),
        (HOUR, 1, Level.RAW),
        (HOUR, 64, Level.MINUTE),
        (6 * HOUR, 1, Level.MINUTE),
        (DAY, 1, Level.MINUTE),
        (2 * DAY, 1, Level.MINUTE),
        (2 * DAY, 64, Level.HOUR),
        (2 * DAY, 10_000, Level.HOUR),
        (timedelta(hours=2.5), 1, Level.MINUTE),
        (7 * DAY, 1, Level.HOUR),
        (7 * DAY, 10_000, Level.HOUR),
    ],
)
def test_the_resolution_chooses_itself(span: timedelta, devices: int, level: Level) -> None:
    assert planned(NOON, NOON + span, devices=devices).level is level


@pytest.mark.parametrize(("most_rows", "level"), [(3_600, Level.RAW), (3_599, Level.MINUTE)])
def test_as_many_rows_are_read_as_may_be(most_rows: int, level: Level) -> None:
    assert planned(NOON, NOON + HOUR, most_rows=most_rows).level is level


def test_a_level_is_kept_from_its_first_moment_on() -> None:
    first = NOON + timedelta(seconds=30)

    found = planned(first, first + HOUR, kept_from=ALWAYS | {Level.RAW: first})

    assert (found.level, found.origin) == (Level.RAW, first)


def test_a_bucket_has_at_least_a_millisecond() -> None:
    assert planned(NOON, NOON + timedelta(milliseconds=10)).bucket == timedelta(milliseconds=1)


def test_pruned_level_is_read_from_a_kept_one() -> None:
    kept = ALWAYS | {Level.RAW: NOON, Level.MINUTE: NOON - 30 * DAY}

    recent = planned(NOON - DAY, NOON - DAY + HOUR, kept_from=kept)
    old = planned(NOON - 60 * DAY, NOON - 60 * DAY + HOUR, kept_from=kept)
    old_to_the_minute = planned(
        NOON - 60 * DAY, NOON - 60 * DAY + timedelta(minutes=150), kept_from=kept
    )

    assert {piece.level for piece in recent.pieces} == {Level.MINUTE}
    assert {piece.level for piece in old.pieces} == {Level.HOUR}
    assert {piece.level for piece in old_to_the_minute.pieces} == {Level.HOUR}


def test_due_minute_at_hour_end_is_of_the_next() -> None:
    due = {NOON + timedelta(minutes=59), NOON + HOUR}

    found = planned(NOON, NOON + 2 * DAY, due=due, devices=64)

    assert [piece for piece in found.pieces if piece.level is Level.RAW] == [
        (Level.RAW, NOON + timedelta(minutes=59), NOON + HOUR),
        (Level.RAW, NOON + HOUR, NOON + HOUR + MINUTE),
    ]


@given(
    start=TIMES,
    span=st.integers(1, 3 * 86_400_000),
    points=st.integers(1, 500),
    devices=st.sampled_from([1, 64]),
    due=st.sets(TIMES.map(lambda at: start_of(at, MINUTE)), max_size=5),
)
def test_pieces_make_up_the_range_and_are_whole(
    start: datetime, span: int, points: int, devices: int, due: set[datetime]
) -> None:
    end = start + timedelta(milliseconds=span)

    found = planned(start, end, points=points, devices=devices, due=due)

    assert (found.pieces[0].start, found.pieces[-1].end) == (start, end)
    assert all(before.end == after.start for before, after in pairwise(found.pieces))
    for level, begin, until in found.pieces:
        assert begin < until
        if level is not Level.RAW:
            assert (begin - EPOCH) % level.value == (until - EPOCH) % level.value == timedelta()
            assert not any(begin < minute + MINUTE and minute < until for minute in due)
    assert found.origin <= start
    assert found.origin + found.bucket * points >= end
    if found.level is not Level.RAW:
        assert found.bucket % found.level.value == timedelta()
        assert (found.origin - EPOCH) % found.level.value == timedelta()
