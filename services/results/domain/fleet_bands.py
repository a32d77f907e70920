"""What most GPUs of a fleet do, from the history of each."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from schemas.results.series import DeviceSeries, FleetPoint
from services.results.domain.device_parts import MIG
from shared.percentiles import percentile


def fleet_bands(devices: Iterable[DeviceSeries]) -> tuple[FleetPoint, ...]:
    """Return the percentiles over all GPUs, bucket by bucket.

    MIG instances are left out where whole GPUs are there, whose readings count what these use.
    """
    all_devices = list(devices)
    undivided = [device for device in all_devices if not device.device_uuid.startswith(MIG)]
    means_at: dict[datetime, list[float]] = {}
    for device in undivided or all_devices:
        for point in device.points:
            means_at.setdefault(point.at, []).append(point.mean)
    return tuple(_point(at, sorted(means)) for at, means in sorted(means_at.items()))


def _point(at: datetime, means: Sequence[float]) -> FleetPoint:
    return FleetPoint(
        at=at,
        lowest=means[0],
        p10=percentile(means, 10),
        p50=percentile(means, 50),
        p90=percentile(means, 90),
        highest=means[-1],
        gpus=len(means),
    )
