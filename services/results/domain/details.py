"""More of a GPU over a window: percentiles, throttling, errors, who else was there."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

from schemas.results.measurements import CoTenant, GpuDetails, Percentiles
from services.results.domain.coverage import coverage_seconds, longest_gap_seconds
from services.results.domain.energy import Energy
from services.results.domain.reading import Condition, Reading, Span, Tenant

# Reasons for lower clocks that are no sign of trouble.
HARMLESS: Final = frozenset(
    {"gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"}
)


class Fault(NamedTuple):
    """An XID that the driver reported of a device, in seconds since the epoch."""

    node_id: str
    device_uuid: str
    at: float
    xid: int


def details_of(
    device: tuple[str, str],
    readings: Sequence[Reading],
    within: Sequence[Reading],
    spans: Sequence[Span],
    *,
    coverage_percent: float,
    energy: Energy | None,
    reservation_id: UUID | None,
    conditions: Mapping[int, Condition],
    faults: Iterable[Fault],
) -> GpuDetails:
    """Return one device's details. `readings` are sorted, `within` are those of them inside the
    spans.
    """

    def seconds(of_conditions: frozenset[int]) -> float:
        return coverage_seconds(readings, spans, lambda r: r.condition_no in of_conditions)

    met = {r.condition_no for r in within if r.condition_no is not None}
    met_conditions = {number: conditions[number] for number in met if number in conditions}
    reasons = _harmful_reasons(met_conditions)
    return GpuDetails(
        coverage_percent=coverage_percent,
        longest_gap_seconds=longest_gap_seconds(readings, spans),
        utilization=percentiles(reading.utilization_percent for reading in within),
        memory_used_mb=percentiles(reading.memory_used_mb for reading in within),
        temperature_c=percentiles(reading.temperature_c for reading in within),
        power_draw_w=percentiles(reading.power_draw_w for reading in within),
        energy_wh=energy.watt_hours if energy is not None else None,
        energy_source=energy.source if energy is not None else None,
        throttled_seconds=seconds(frozenset().union(*reasons.values()))
        if any(condition.throttle_reasons is not None for condition in met_conditions.values())
        else None,
        throttle_reasons={reason: seconds(numbers) for reason, numbers in reasons.items()},
        ecc_corrected=_growth([reading.ecc_corrected for reading in _around(readings, spans)]),
        ecc_uncorrected=_growth([reading.ecc_uncorrected for reading in _around(readings, spans)]),
        xids=tuple(
            fault.xid
            for fault in sorted(faults, key=lambda fault: fault.at)
            if (fault.node_id, fault.device_uuid) == device
            and any(span.start <= fault.at <= span.end for span in spans)
        ),
        co_tenants=tuple(
            CoTenant(
                seconds=seconds(numbers), reservation_id=tenant.reservation_id, name=tenant.name
            )
            for tenant, numbers in _others(met_conditions, reservation_id).items()
        ),
    )


def percentiles(values: Iterable[float | None]) -> Percentiles:
    """Return the percentiles of the known values."""
    known_values = sorted(value for value in values if value is not None)
    if not known_values:
        return Percentiles()
    return Percentiles(p50=_quantile(known_values, 0.5), p95=_quantile(known_values, 0.95))


def _quantile(values: Sequence[float], share: float) -> float:
    """Interpolate a quantile between the two values around it."""
    position = share * (len(values) - 1)
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return values[below] + (position - below) * (values[above] - values[below])


def _harmful_reasons(conditions: Mapping[int, Condition]) -> dict[str, frozenset[int]]:
    return {
        reason: frozenset(
            number for number, c in conditions.items() if reason in (c.throttle_reasons or ())
        )
        for reason in sorted({r for c in conditions.values() for r in c.throttle_reasons or ()})
        if reason not in HARMLESS
    }


def _others(
    conditions: Mapping[int, Condition], reservation_id: UUID | None
) -> dict[Tenant, frozenset[int]]:
    """Return the conditions in which others used the device, by tenant."""
    tenants = {tenant for c in conditions.values() for tenant in c.tenants or ()}
    return {
        tenant: frozenset(n for n, c in conditions.items() if tenant in (c.tenants or ()))
        for tenant in sorted(tenants, key=lambda t: (str(t.reservation_id or ""), t.name or ""))
        if tenant.reservation_id is None or tenant.reservation_id != reservation_id
    }


def _around(readings: Sequence[Reading], spans: Sequence[Span]) -> list[Reading]:
    """Return the readings from the last one before the spans, or the first in them, to the last in
    them.
    """
    if not spans:
        return []
    start, end = spans[0].start, spans[-1].end
    reading_before = [reading for reading in readings if reading.at < start][-1:]
    return reading_before + [reading for reading in readings if start <= reading.at <= end]


def _growth(counts: Iterable[int | None]) -> int | None:
    """Return how much a counter grew; one that starts anew grew by nothing at that moment."""
    known_counts = [count for count in counts if count is not None]
    if len(known_counts) < 2:
        return None
    return sum(max(0, current - previous) for previous, current in pairwise(known_counts))
