"""Freshness by this process's clock, growth by boot and sequence, distrust after a release."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.telemetry.readings import GpuProcess, GpuReading, GpuSampled, Source
from services.scheduler.domain.model.fleet import ReadingState
from services.scheduler.observations.latest_readings import LatestReadings
from tests.unit.scheduler.builders import NOW


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def sample(
    sequence: int,
    *,
    used: float | None = 0.0,
    boot: int = 1,
    free_mb: int | None = 80_000,
    pids: tuple[int, ...] = (),
) -> GpuSampled:
    processes = tuple(GpuProcess(pid=pid) for pid in pids)
    reading = GpuReading("GPU-1", 0, used, 80_000, 0, free_mb, processes=processes)
    return GpuSampled(
        node_id="alpha",
        boot_id=UUID(int=boot),
        sequence=sequence,
        observed_at=NOW,
        interval_seconds=1.0,
        source=Source.SIMULATED,
        gpus=(reading,),
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def readings(clock: Clock) -> LatestReadings:
    return LatestReadings(clock)


def state(readings: LatestReadings, releases: int = 0) -> ReadingState:
    return readings.find("alpha", "GPU-1", releases)[0]


def used(readings: LatestReadings) -> Any:
    reading = readings.find("alpha", "GPU-1", 0)[1]
    return reading.utilization_percent if reading is not None else "nothing"


def test_a_reading_is_fresh_for_three_intervals(readings: LatestReadings, clock: Clock) -> None:
    assert state(readings) is ReadingState.ABSENT
    readings.observe(sample(1))
    clock.seconds += 3.0
    assert state(readings) is ReadingState.FRESH
    clock.seconds += 0.001
    assert state(readings) is ReadingState.STALE


@pytest.mark.parametrize("sequence", [1, 2], ids=["overtaken", "repeated"])
def test_repeated_sample_is_no_sign_of_life(
    readings: LatestReadings, clock: Clock, sequence: int
) -> None:
    readings.observe(sample(2))
    clock.seconds += 4.0

    changed = readings.observe(sample(sequence, used=50.0))

    assert not changed
    assert state(readings) is ReadingState.STALE
    assert used(readings) == 0.0


def test_new_boot_replaces_an_earlier_one(readings: LatestReadings) -> None:
    readings.observe(sample(500, boot=7))
    readings.observe(sample(1, boot=3, used=11.0))
    assert used(readings) == 11.0

    readings.observe(sample(501, boot=7, used=99.0))

    assert used(readings) == 11.0


def test_only_a_changed_reading_is_news(readings: LatestReadings) -> None:
    assert readings.observe(sample(1)) == {("alpha", "GPU-1")}
    assert readings.observe(sample(2)) == frozenset()
    assert readings.observe(sample(3, used=None)) == {("alpha", "GPU-1")}


def test_a_reading_that_was_stale_is_news_again(readings: LatestReadings, clock: Clock) -> None:
    readings.observe(sample(1))
    clock.seconds += 10.0

    assert readings.observe(sample(2)) == {("alpha", "GPU-1")}


def test_readings_before_release_snapshot_are_void(readings: LatestReadings) -> None:
    readings.observe(sample(1))
    assert state(readings, releases=1) is ReadingState.AWAITING
    readings.observe(sample(2))
    assert state(readings, releases=1) is ReadingState.AWAITING

    readings.observe(sample(3))
    readings.confirm("alpha", {"GPU-1": 1})

    assert state(readings, releases=1) is ReadingState.FRESH
    assert state(readings, releases=2) is ReadingState.AWAITING


def test_without_snapshot_second_sample_counts(readings: LatestReadings, clock: Clock) -> None:
    readings.observe(sample(1))
    readings.expect_later("alpha", {"GPU-1": 1})
    clock.seconds += 1.9
    readings.observe(sample(2))
    assert state(readings, releases=1) is ReadingState.AWAITING

    clock.seconds += 0.2
    changed = readings.observe(sample(3))

    assert changed == {("alpha", "GPU-1")}
    assert state(readings, releases=1) is ReadingState.FRESH


@pytest.mark.parametrize(
    ("shown", "want"),
    [
        pytest.param({}, ReadingState.FRESH, id="unused"),
        pytest.param({"used": 6.0}, ReadingState.AWAITING, id="used"),
        pytest.param({"used": None}, ReadingState.AWAITING, id="its use is unknown"),
        pytest.param({"free_mb": 70_000}, ReadingState.AWAITING, id="memory is used"),
        pytest.param({"free_mb": None}, ReadingState.AWAITING, id="its memory is unknown"),
        pytest.param({"pids": (7,)}, ReadingState.AWAITING, id="a process is there"),
    ],
)
def test_earlier_unused_reading_counts_as_released(
    readings: LatestReadings, shown: dict[str, Any], want: ReadingState
) -> None:
    readings.observe(sample(1, **shown))

    readings.confirm_unused("alpha", {"GPU-1": 1})

    assert state(readings, releases=1) is want


def test_a_stale_reading_says_nothing_about_use(readings: LatestReadings, clock: Clock) -> None:
    readings.observe(sample(1))
    clock.seconds += 3.1

    readings.confirm_unused("alpha", {"GPU-1": 1})

    assert not readings.is_confirmed("alpha", "GPU-1", 1)


def test_a_stopped_agent_has_no_reading(readings: LatestReadings) -> None:
    readings.observe(sample(1))

    readings.forget("alpha")

    assert state(readings) is ReadingState.ABSENT


def test_readings_change_once_processes_unlisted(readings: LatestReadings) -> None:
    readings.observe(sample(1))
    listed = sample(2)
    (gpu,) = listed.gpus

    unlisted = msgspec.structs.replace(listed, gpus=(msgspec.structs.replace(gpu, processes=None),))

    assert readings.observe(unlisted) == {("alpha", "GPU-1")}
