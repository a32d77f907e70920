"""The `gpu_monitoring` of an experiment."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from schemas.gpu_request import DeviceGrant
from schemas.monitoring import GpuStats
from schemas.results import GpuMonitoring
from services.results.domain.coverage import covered_seconds
from services.results.domain.energy import energy_wh
from services.results.domain.reading import Reading, Span, inside
from shared.gpu.stats import GpuTally

PHASE: Final = "measuring"
DeviceKey = tuple[str, str]


def summarize(
    devices: Sequence[DeviceGrant],
    readings: Mapping[DeviceKey, Sequence[Reading]],
    spans: Sequence[Span],
    *,
    simulated: bool,
) -> GpuMonitoring:
    """What the granted devices did within the spans.

    `readings` by (node, device uuid), in any order and with duplicates, may include some around the
    spans; only those inside are counted. With several nodes, `sample_count` is the largest node's.
    """
    known = {key: _distinct(found) for key, found in readings.items()}
    of_device = {_key(device): known.get(_key(device), []) for device in devices}
    within = {key: inside(found, spans) for key, found in of_device.items()}
    duration = sum(span.seconds for span in spans)
    covered = [covered_seconds(found, spans) for found in of_device.values()]
    energies = [energy_wh(of_device[key], spans) for key in of_device if within[key]]
    known_energies = [energy for energy in energies if energy is not None]
    several_nodes = len({device.node_id for device in devices}) > 1
    return GpuMonitoring(
        monitoring_duration_seconds=duration,
        sample_count=_ticks(within),
        gpu_stats={
            f"{d.node_id}/{d.index}" if several_nodes else str(d.index): _stats(d, within[_key(d)])
            for d in devices
        },
        coverage_percent=_percent(sum(covered), duration * len(devices)),
        energy_wh=sum(known_energies) if known_energies else None,
        phase=PHASE,
        simulated=simulated,
    )


def _key(device: DeviceGrant) -> DeviceKey:
    return (device.node_id, device.uuid)


def _distinct(readings: Iterable[Reading]) -> list[Reading]:
    """Each tick once, sorted by time."""
    return sorted({r.tick: r for r in readings}.values(), key=lambda r: (r.at, r.sequence))


def _ticks(within: Mapping[DeviceKey, Sequence[Reading]]) -> int:
    ticks: dict[str, set[object]] = {}
    for (node_id, _), readings in within.items():
        ticks.setdefault(node_id, set()).update(reading.tick for reading in readings)
    return max((len(of_node) for of_node in ticks.values()), default=0)


def _percent(part: float, whole: float) -> float:
    return min(100.0, 100.0 * part / whole) if whole > 0 else 0.0


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
