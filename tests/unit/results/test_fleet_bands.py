"""What most GPUs of a fleet do, from the history of each."""

from datetime import UTC, datetime, timedelta

from schemas.results.series import DeviceSeries, FleetPoint, SeriesPoint
from services.results.domain.fleet_bands import fleet_bands

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


def series(uuid: str, **mean_at: float) -> DeviceSeries:
    moments = {"noon": NOON, "later": LATER}
    points = (
        SeriesPoint(at=moments[name], min=0, max=100, mean=mean) for name, mean in mean_at.items()
    )
    return DeviceSeries(node_id="n", device_uuid=uuid, index=0, points=tuple(points))


def test_bands_are_percentiles_of_known_means() -> None:
    devices = [series(f"GPU-{n}", noon=float(n)) for n in range(11)]

    noon, later = fleet_bands([*devices, series("GPU-11", later=40.0)])

    assert noon == FleetPoint(at=NOON, lowest=0, p10=1, p50=5, p90=9, highest=10, gpus=11)
    assert later == FleetPoint(at=LATER, lowest=40, p10=40, p50=40, p90=40, highest=40, gpus=1)


def test_instances_do_not_count_beside_whole_gpus() -> None:
    [beside] = fleet_bands([series("GPU-0", noon=90), series("MIG-0", noon=10)])
    [alone] = fleet_bands([series("MIG-0", noon=10)])

    assert (beside.lowest, beside.gpus) == (90, 1)
    assert (alone.lowest, alone.gpus) == (10, 1)


def test_fleet_without_readings_has_no_bands() -> None:
    assert fleet_bands([series("GPU-0")]) == ()
