"""Which resolution answers a question about a stretch of time, and what has to be read for it."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
SMALLEST_BUCKET: Final = timedelta(milliseconds=1)
# What fits into one message of the bus with room to spare.
MAX_ANSWER_POINTS: Final = 12_000


class Level(Enum):
    """Finest first. The value is how much time one row stands for, of raw samples usually."""

    RAW = SECOND
    MINUTE = MINUTE
    HOUR = HOUR


class Piece(NamedTuple):
    """What to read of one level: from `start`, up to `end` without it."""

    level: Level
    start: datetime
    end: datetime


class Plan(NamedTuple):
    """How to answer: buckets counted from `origin`, and the pieces that fill them, in order."""

    level: Level
    origin: datetime
    bucket: timedelta
    pieces: tuple[Piece, ...]


def start_of(at: datetime, width: timedelta) -> datetime:
    """The start of the minute or hour that a time is in."""
    return at - (at - EPOCH) % width


def find_minutes(times: Iterable[datetime]) -> set[datetime]:
    """Return the starts of the minutes that times are in: most are in that of the one before."""
    minutes: set[datetime] = set()
    start = end = EPOCH
    for at in times:
        if not start <= at < end:
            start = start_of(at, MINUTE)
            end = start + MINUTE
            minutes.add(start)
    return minutes


def end_of(at: datetime, width: timedelta) -> datetime:
    """The first start of a minute or hour from a time on."""
    return at + (EPOCH - at) % width


def plan(
    start: datetime,
    end: datetime,
    *,
    points: int,
    devices: int,
    most_rows: int,
    kept_from: Mapping[Level, datetime],
    due: Collection[datetime],
) -> Plan:
    """Plan at most `points` buckets, from about `most_rows` rows at most.

    The coarsest level that still fills half of the points; a coarser one where that would be too
    many rows, or where the finer ones are not stored as long. Minutes that are `due` are read raw.
    """
    level = _level(start, end, points, devices, most_rows, kept_from)
    finest = next((at for at in Level if start >= kept_from[at]), Level.HOUR)
    first = start if finest is Level.RAW else start_of(start, finest.value)
    origin = first if level is Level.RAW else start_of(first, level.value)
    bucket = _bucket(origin, end, points, level)
    return Plan(level, origin, bucket, tuple(_pieces(level, finest, first, end, due)))


def _level(
    start: datetime,
    end: datetime,
    points: int,
    devices: int,
    most_rows: int,
    kept_from: Mapping[Level, datetime],
) -> Level:
    kept = [level for level in Level if start >= kept_from[level]] or [Level.HOUR]
    few = [level for level in kept if devices * (end - start) / level.value <= most_rows]
    eligible = few or kept[-1:]
    enough = [level for level in eligible if level.value * points <= 2 * (end - start)]
    return enough[-1] if enough else eligible[0]


def _bucket(origin: datetime, end: datetime, points: int, level: Level) -> timedelta:
    step = timedelta(microseconds=1) if level is Level.RAW else level.value
    bucket = max((end - origin) / points, SMALLEST_BUCKET)
    if level is not Level.RAW:
        bucket = -(-bucket // step) * step
    while origin + bucket * points < end:
        bucket += step
    return bucket


def _pieces(
    level: Level, finest: Level, start: datetime, end: datetime, due: Collection[datetime]
) -> Iterator[Piece]:
    """Return whole hours where they may be, whole minutes around them, raw samples for the rest."""
    if level is Level.RAW:
        yield Piece(Level.RAW, start, end)
        return
    at = start
    hours = sorted({start_of(minute, HOUR) for minute in due})
    for hour in (hour for hour in hours if start < hour + HOUR and hour < end):
        yield from _plan_settled(level, finest, at, hour)
        until = min(hour + HOUR, end)
        yield from _of_hour(finest, max(at, hour), until, due)
        at = until
    yield from _plan_settled(level, finest, at, end)


def _of_hour(
    finest: Level, start: datetime, end: datetime, due: Collection[datetime]
) -> Iterator[Piece]:
    """Yield the pieces of an hour in which minutes are due."""
    at = start
    for minute in sorted(minute for minute in due if start < minute + MINUTE and minute < end):
        yield from _plan_settled(Level.MINUTE, finest, at, minute)
        until = min(minute + MINUTE, end)
        yield Piece(Level.RAW, max(minute, at), until)
        at = until
    yield from _plan_settled(Level.MINUTE, finest, at, end)


def _plan_settled(level: Level, finest: Level, start: datetime, end: datetime) -> Iterator[Piece]:
    """Yield the pieces of time in which no minute is due."""
    if start >= end:
        return
    if level is finest or level is Level.RAW:
        yield Piece(level, start, end)
        return
    finer = Level.MINUTE if level is Level.HOUR else Level.RAW
    inner, outer = end_of(start, level.value), start_of(end, level.value)
    if inner >= outer:
        yield from _plan_settled(finer, finest, start, end)
        return
    yield from _plan_settled(finer, finest, start, inner)
    yield Piece(level, inner, outer)
    yield from _plan_settled(finer, finest, outer, end)
