"""Which faults follow from counters, and which devices they put out of service."""

from schemas.telemetry import GpuReading, HealthKind
from services.telemetry.domain.faults import WearWatch, failing


def reading(
    *, corrected: int | None = 0, uncorrected: int | None = 0, failed: bool | None = False
) -> GpuReading:
    return GpuReading(
        "GPU-a", 0, ecc_corrected=corrected, ecc_uncorrected=uncorrected, remap_failed=failed
    )


def changes(watch: WearWatch, seen: GpuReading, at_seconds: float) -> list[HealthKind]:
    return [fault.change for fault in watch.faults([seen], at_seconds)]


def test_uncorrectable_errors_are_told_when_they_grow_and_not_while_they_stand() -> None:
    watch = WearWatch()

    told = [
        changes(watch, reading(uncorrected=count), float(second))
        for second, count in enumerate([7, 7, 9, 9, None, 9, 0, 1])
    ]

    assert told == [
        *([], [], [HealthKind.ECC_UNCORRECTED], []),
        *([], [], [], [HealthKind.ECC_UNCORRECTED]),
    ]


def test_a_storm_of_corrected_errors_is_told_once_while_it_lasts() -> None:
    watch = WearWatch(storm_per_second=10)
    counts = [0, 5, 100, 200, 300, 300]

    told = [
        changes(watch, reading(corrected=count), float(second))
        for second, count in enumerate(counts)
    ]

    assert told == [[], [], [HealthKind.ECC_STORM], [], [], []]
    assert changes(watch, reading(corrected=5000), 100.0) == [HealthKind.ECC_STORM]


def test_a_failed_remapping_is_told_when_it_is_first_seen() -> None:
    watch = WearWatch()

    assert changes(watch, reading(failed=None), 0.0) == []
    assert changes(watch, reading(failed=True), 1.0) == [HealthKind.ROW_REMAP_FAILED]
    assert changes(watch, reading(failed=True), 2.0) == []


def test_a_failed_remapping_keeps_the_device_out_while_it_stands() -> None:
    assert failing([reading(failed=True)]).keys() == {"GPU-a"}
    assert failing([reading(failed=False)]) == {}
    assert failing([reading(failed=None)]) == {}
