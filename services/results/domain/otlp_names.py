"""A GPU's reading under the names that OpenTelemetry's conventions for hardware give it.

https://opentelemetry.io/docs/specs/semconv/hardware/gpu/
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from schemas.telemetry.readings import GpuReading

ID: Final = "hw.id"
NAME: Final = "hw.name"
TYPE: Final = "hw.type"
GPU: Final = "gpu"
HOST: Final = "host.name"
# Of a GPU that several hold: all of them, with commas between.
RESERVATION: Final = "gpusteward.reservation.id"
EXPERIMENT: Final = "gpusteward.experiment.id"
PHASE: Final = "gpusteward.phase"
SIMULATED: Final = "gpusteward.simulated"


class Kind(Enum):
    GAUGE = auto()
    COUNTER = auto()
    UP_DOWN_COUNTER = auto()


class Instrument(NamedTuple):
    """`read` gives None for what is unknown."""

    name: str
    unit: str
    kind: Kind
    read: Callable[[GpuReading], float | None]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


INSTRUMENTS: Final = (
    Instrument(
        "hw.gpu.utilization", "1", Kind.GAUGE, lambda gpu: _times(gpu.utilization_percent, 0.01)
    ),
    Instrument(
        "hw.gpu.memory.usage",
        "By",
        Kind.UP_DOWN_COUNTER,
        lambda gpu: _times(gpu.memory_used_mb, 1 << 20),
    ),
    Instrument(
        "hw.gpu.memory.limit",
        "By",
        Kind.UP_DOWN_COUNTER,
        lambda gpu: _times(gpu.memory_total_mb, 1 << 20),
    ),
    Instrument("hw.temperature", "Cel", Kind.GAUGE, lambda gpu: gpu.temperature_c),
    Instrument("hw.power", "W", Kind.GAUGE, lambda gpu: gpu.power_draw_w),
    Instrument("hw.energy", "J", Kind.COUNTER, lambda gpu: _times(gpu.energy_mj, 0.001)),
)
