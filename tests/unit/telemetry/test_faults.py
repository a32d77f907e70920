"""Which faults follow from counters, and which devices they put out of service."""

from schemas.telemetry.readings import GpuReading, HealthKind
from services.telemetry.domain.faults import CounterWatch, failing


def reading(
    *, corrected: int | None = 0, uncorrected: int | None = 0, failed: bool | None = False
) -> GpuReading:
    return GpuReading(
        "GPU-a", 0, ecc_corrected=corrected, ecc_uncorrected=uncorrected, remap_failed=failed
    )


def changes(watch: CounterWatch, seen: GpuReading, at_seconds: float) -> list[HealthKind]:
    return [fault.change for fault in watch.faults([seen], at_seconds)]


def test_uncorrectable_errors_are_told_on_growth() -> None:
    watch = CounterWatch()

    told = [
        changes(watch, reading(uncorrected=count), float(second))
        for second, count in enumerate([7, 7, 9, 9, None, 9, 0, 1])
    ]

    assert told == [
        *([], [], [HealthKind.ECC_UNCORRECTED], []),
        *([], [], [], [HealthKind.ECC_UNCORRECTED]),
    ]


def test_storm_of_corrected_errors_is_told_once() -> None:
    watch = CounterWatch(storm_per_second=10)
    counts = [0, 5, 100, 200, 300, 300]

    told = [
        changes(watch, reading(corrected=count), float(second))
        for second, count in enumerate(counts)
    ]

    assert told == [[], [], [HealthKind.ECC_STORM], [], [], []]
    assert changes(watch, reading(corrected=5000), 100.0) == [HealthKind.ECC_STORM]


def test_storm_is_reported_from_its_first_second() -> None:
    watch = CounterWatch(storm_per_second=10)
    watch.faults([reading(corrected=0)], 0.0)

    assert changes(watch, reading(corrected=100), 0.5) == [HealthKind.ECC_STORM]


def test_errors_of_close_readings_count_as_a_second() -> None:
    watch = CounterWatch(storm_per_second=10)
    watch.faults([reading(corrected=0)], 10.0)

    assert changes(watch, reading(corrected=5), 10.1) == []


def test_errors_at_just_the_rate_of_a_storm_are_none() -> None:
    watch = CounterWatch(storm_per_second=10)
    watch.faults([reading(corrected=0)], 0.0)

    assert changes(watch, reading(corrected=20), 2.0) == []
    assert changes(watch, reading(corrected=41), 4.0) == [HealthKind.ECC_STORM]


def test_failed_remapping_is_told_at_first() -> None:
    watch = CounterWatch()

    assert changes(watch, reading(failed=None), 0.0) == []
    assert changes(watch, reading(failed=True), 1.0) == [HealthKind.ROW_REMAP_FAILED]
    assert changes(watch, reading(failed=True), 2.0) == []


def test_pending_remapping_is_told_at_first() -> None:
    watch = CounterWatch()
    pending = GpuReading("GPU-a", 0, remap_pending=True)

    assert changes(watch, pending, 0.0) == [HealthKind.ROW_REMAP_PENDING]
    assert changes(watch, pending, 1.0) == []
    assert changes(watch, reading(), 2.0) == []
    assert changes(watch, pending, 3.0) == [HealthKind.ROW_REMAP_PENDING]


def test_failed_remapping_keeps_device_out() -> None:
    assert failing([reading(failed=True)]).keys() == {"GPU-a"}
    assert failing([reading(failed=False)]) == {}
    assert failing([reading(failed=None)]) == {}
