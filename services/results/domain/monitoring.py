"""The `gpu_monitoring` of an experiment."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from schemas.base import HOUR_SECONDS
from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_request import WHOLE
from schemas.results.measurements import EnergySource, GpuDetails, GpuMonitoring
from schemas.telemetry.monitoring import GpuStats
from services.results.domain.coverage import coverage_seconds, missing_ticks
from services.results.domain.details import Fault, details_of
from services.results.domain.device_parts import hundredths_of
from services.results.domain.energy import JOULES_PER_WH, Energy, energy_of
from services.results.domain.reading import Condition, Reading, Span, inside
from shared.gpu.prices import price_of
from shared.gpu.stats import GpuTally

MEASURING: Final = "measuring"
WHOLE_RUN: Final = "whole_run"
TRUSTED_COVERAGE_PERCENT: Final = 95.0
DeviceKey = tuple[str, str]


class Run(NamedTuple):
    """An experiment's part of the readings: what it was given and where it was measured.

    `devices_unknown` is why it has no devices, where it had some. `prices` are of an hour of a
    GPU, by parts of its model's name.
    """

    devices: Sequence[DeviceGrant]
    spans: Sequence[Span]
    phase: str = MEASURING
    reservation_id: UUID | None = None
    output_tokens: float | None = None
    devices_unknown: str = ""
    prices: Mapping[str, float] = {}


def summarize(
    run: Run,
    readings: Mapping[DeviceKey, Sequence[Reading]],
    *,
    simulated: bool,
    conditions: Mapping[int, Condition] | None = None,
    faults: Sequence[Fault] = (),
) -> GpuMonitoring:
    """Summarize what the granted devices did within the spans.

    `readings` by (node, device uuid), in any order and with duplicates, may include some around the
    spans; only those inside are counted. With several nodes, `sample_count` is the largest node's.
    """
    devices, spans = run.devices, run.spans
    distinct = {key: _distinct(device_readings) for key, device_readings in readings.items()}
    of_device = {_key(device): distinct.get(_key(device), []) for device in devices}
    within = {key: inside(device_readings, spans) for key, device_readings in of_device.items()}
    duration = sum(span.seconds for span in spans)
    covered = {
        key: coverage_seconds(device_readings, spans) for key, device_readings in of_device.items()
    }
    coverage_percent = _percent(sum(covered.values()), duration * len(devices))
    energies = {key: energy_of(of_device[key], spans) if within[key] else None for key in of_device}
    energy = _sum(energies.values())
    names = _names(devices)
    details = {
        names[key]: details_of(
            key,
            of_device[key],
            within[key],
            spans,
            coverage_percent=_percent(covered[key], duration),
            energy=energies[key],
            reservation_id=run.reservation_id,
            conditions=conditions or {},
            faults=faults,
        )
        for key in of_device
    }
    missing = max(
        (missing_ticks(device_readings, spans) for device_readings in of_device.values()), default=0
    )
    distrust = run.devices_unknown or _distrust(details, duration, coverage_percent, missing)
    return GpuMonitoring(
        monitoring_duration_seconds=duration,
        sample_count=_ticks(within),
        gpu_stats={names[_key(d)]: _stats(d, within[_key(d)]) for d in devices},
        coverage_percent=coverage_percent,
        energy_wh=energy.watt_hours if energy is not None else None,
        phase=run.phase,
        simulated=simulated,
        gpu_details=details,
        energy_source=energy.source if energy is not None else None,
        tokens_per_joule=_tokens_per_joule(run.output_tokens, energy),
        cost_per_million_tokens=_cost_per_million_tokens(run, duration),
        longest_gap_seconds=max((d.longest_gap_seconds for d in details.values()), default=0.0),
        missing_ticks=missing,
        trusted=not distrust,
        untrusted_because=distrust,
    )


def _key(device: DeviceGrant) -> DeviceKey:
    return (device.node_id, device.uuid)


def _names(devices: Sequence[DeviceGrant]) -> dict[DeviceKey, str]:
    several_nodes = len({device.node_id for device in devices}) > 1
    return {_key(d): f"{d.node_id}/{d.index}" if several_nodes else str(d.index) for d in devices}


def _distinct(readings: Iterable[Reading]) -> list[Reading]:
    """Return each tick once, sorted by time."""
    return sorted({r.tick: r for r in readings}.values(), key=lambda r: (r.at, r.sequence))


def _ticks(within: Mapping[DeviceKey, Sequence[Reading]]) -> int:
    ticks: dict[str, set[object]] = {}
    for (node_id, _), readings in within.items():
        ticks.setdefault(node_id, set()).update(reading.tick for reading in readings)
    return max((len(of_node) for of_node in ticks.values()), default=0)


def _percent(part: float, total: float) -> float:
    return min(100.0, 100.0 * part / total) if total > 0 else 0.0


def _sum(energies: Iterable[Energy | None]) -> Energy | None:
    known_energies = [energy for energy in energies if energy is not None]
    if not known_energies:
        return None
    sources = {energy.source for energy in known_energies}
    return Energy(
        sum(energy.watt_hours for energy in known_energies),
        sources.pop() if len(sources) == 1 else EnergySource.MIXED,
    )


def _tokens_per_joule(tokens: float | None, energy: Energy | None) -> float | None:
    if tokens is None or energy is None or energy.watt_hours <= 0:
        return None
    return tokens / (energy.watt_hours * JOULES_PER_WH)


def _cost_per_million_tokens(run: Run, duration_seconds: float) -> float | None:
    """Return the cost of the GPUs while they were measured, parts of a GPU by their size; None if a
    price is unknown.
    """
    prices = [price_of(device.name, run.prices) for device in run.devices]
    known_prices = [price for price in prices if price is not None]
    if not run.output_tokens or not known_prices or len(known_prices) < len(prices):
        return None
    parts = [hundredths_of(device) / WHOLE for device in run.devices]
    an_hour = sum(price * part for price, part in zip(known_prices, parts, strict=True))
    return an_hour * duration_seconds / HOUR_SECONDS / run.output_tokens * 1e6


def _distrust(
    details: Mapping[str, GpuDetails], duration: float, coverage_percent: float, missing: int
) -> str:
    """Say why the numbers cannot be trusted; empty if they can."""
    if not details:
        return "no GPUs were granted"
    if not duration:
        return "nothing was measured"
    if coverage_percent >= TRUSTED_COVERAGE_PERCENT:
        return ""
    silent = [name for name, device in details.items() if not device.coverage_percent]
    if len(silent) == len(details):
        return f"no sample in {duration:.3g} s"
    worst = max(details, key=lambda name: details[name].longest_gap_seconds)
    reasons = [
        f"samples cover {coverage_percent:.1f} %, expected {TRUSTED_COVERAGE_PERCENT:.0f} %",
        *([f"none of GPU {', '.join(silent)}"] if silent else []),
        f"GPU {worst} without one for {details[worst].longest_gap_seconds:.3g} s",
        *([f"{missing} ticks never came"] if missing else []),
    ]
    return "; ".join(reasons)


def _stats(device: DeviceGrant, readings: Sequence[Reading]) -> GpuStats:
    tally = GpuTally()
    for reading in readings:
        tally.add(
            utilization_percent=reading.utilization_percent,
            memory_used_mb=reading.memory_used_mb,
            memory_total_mb=reading.memory_total_mb,
            temperature_c=reading.temperature_c,
            power_draw_w=reading.power_draw_w,
            power_limit_w=reading.power_limit_w,
        )
    return tally.stats(device.name, device.uuid)
