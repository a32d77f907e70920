"""What the live view shows: newest readings joined to the ledger, sorted, filtered, summed up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.gateway.views import GpuMetrics, GpuView
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.views import ReservationView
from schemas.telemetry.readings import HealthState
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.gpu_tables import gpu_holder
from services.cli.display.output import number, until
from shared.clock import utcnow

BAR_CELLS: Final = 6
FULL: Final = "█"
EMPTY: Final = "░"
MIB_PER_GIB: Final = 1024
_LEDGER_FIELDS: Final = (
    *("state", "reservation_id", "namespace", "holder", "holders", "reasons", "cordon", "pods"),
)


class SortKey(StrEnum):
    """By what rows are ordered; by all but the node the highest first, the lease's end soonest."""

    NODE = "node"
    UTILIZATION = "utilization"
    MEMORY = "memory"
    TEMPERATURE = "temperature"
    POWER = "power"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU with the end of its lease (None without one), and when its reading was made."""

    gpu: GpuView
    lease_expires_at: datetime | None
    age_seconds: float | None

    @property
    def memory_share(self) -> float | None:
        """The used part of its memory, 0 to 1; None if unknown."""
        if self.gpu.memory_used_mb is None or not self.gpu.memory_total_mb:
            return None
        return self.gpu.memory_used_mb / self.gpu.memory_total_mb


@dataclass(slots=True)
class FleetState:
    """Every GPU by node and UUID. Times are seconds of one monotonic clock."""

    node_id: str | None = None
    namespace: str | None = None
    _gpus: dict[tuple[str, str], GpuView] = field(default_factory=dict)
    _read_at: dict[tuple[str, str], float] = field(default_factory=dict)
    _lease_ends: Mapping[UUID, datetime] = field(default_factory=dict)

    def apply_ledger(
        self, gpus: Iterable[GpuView], reservations: Iterable[ReservationView], now: float
    ) -> None:
        """Take all GPUs and who holds them; a reading replaces only an older one."""
        self._lease_ends = {
            reservation.reservation_id: reservation.lease_expires_at
            for reservation in reservations
            if reservation.lease_expires_at is not None
        }
        gpus_before, self._gpus = self._gpus, {}
        read_before, self._read_at = self._read_at, {}
        for gpu in gpus:
            key = (gpu.node_id, gpu.uuid)
            self._gpus[key] = gpu
            if gpu.age_seconds is not None:
                self._read_at[key] = now - gpu.age_seconds
            if read_before.get(key, float("-inf")) > self._read_at.get(key, float("-inf")):
                self._gpus[key] = _with_ledger_of(gpus_before[key], gpu)
                self._read_at[key] = read_before[key]

    def apply_readings(self, metrics: GpuMetrics, now: float) -> None:
        """A node's newest reading; who holds its GPUs stays as it was."""
        for gpu in metrics.gpus:
            key = (gpu.node_id, gpu.uuid)
            if (previous := self._gpus.get(key)) is not None:
                self._gpus[key] = _with_ledger_of(gpu, previous)
                self._read_at[key] = now - metrics.age_seconds

    def rows(self, now: float, *, sort: SortKey = SortKey.NODE, text: str = "") -> list[GpuRow]:
        """Return the GPUs of the node and namespace in which `text` occurs, in the order of
        `sort`.
        """
        all_rows = [
            GpuRow(
                gpu,
                self._lease_ends.get(gpu.reservation_id) if gpu.reservation_id else None,
                max(0.0, now - self._read_at[key]) if key in self._read_at else None,
            )
            for key, gpu in self._gpus.items()
            if self.node_id in {None, gpu.node_id}
            and (self.namespace is None or self.namespace in _namespaces(gpu))
        ]
        needle = text.casefold()
        matching = [row for row in all_rows if not needle or needle in _search_text(row.gpu)]
        return sorted(matching, key=lambda row: (*_rank(row, sort), row.gpu.node_id, row.gpu.index))


def summary(rows: Sequence[GpuRow]) -> str:
    """Return one line on all GPUs that are shown."""
    gpus = [row.gpu for row in rows]
    states = [gpu.state for gpu in gpus]
    free, held_count = states.count(DeviceState.FREE), states.count(DeviceState.HELD)
    nodes = len({gpu.node_id for gpu in gpus})
    parts = [f"{len(gpus)} GPUs on {nodes} node{'' if nodes == 1 else 's'}"]
    parts += [f"{held_count} held", f"{free} free"]
    if other_count := len(gpus) - free - held_count:
        parts.append(f"{other_count} neither")
    utilizations = [
        utilization for gpu in gpus if (utilization := gpu.utilization_percent) is not None
    ]
    if utilizations:
        parts.append(f"util {sum(utilizations) / len(utilizations):.0f}%")
    powers = [gpu.power_draw_w for gpu in gpus if gpu.power_draw_w is not None]
    if powers:
        parts.append(f"{sum(powers) / 1000:.1f} kW")
    if ill := sum(gpu.health is not HealthState.OK for gpu in gpus):
        parts.append(f"{ill} unhealthy")
    if made_up := sum(gpu.simulated for gpu in gpus):
        parts.append("simulated" if made_up == len(gpus) else f"{made_up} simulated")
    return "  ".join(parts)


def top_table(rows: Sequence[GpuRow], wall_now: datetime | None = None) -> Table:
    """A line for each GPU; `-` is unknown."""
    wall_now = wall_now or utcnow()
    cells = [
        [
            row.gpu.node_id,
            str(row.gpu.index),
            row.gpu.name,
            bar(row.gpu.utilization_percent, f"{number(row.gpu.utilization_percent)}%"),
            bar(
                row.memory_share * 100 if row.memory_share is not None else None,
                f"{number(_gibibytes(row.gpu.memory_used_mb))}G",
            ),
            number(row.gpu.temperature_c),
            number(row.gpu.power_draw_w),
            row.gpu.state.value if row.gpu.state is not None else UNKNOWN,
            gpu_holder(row.gpu),
            until(row.lease_expires_at, wall_now) if row.lease_expires_at else UNKNOWN,
            row.gpu.health.value,
            f"{row.age_seconds:.0f}s" if row.age_seconds is not None else UNKNOWN,
            ("sim" if row.gpu.simulated else "real") + ("" if row.gpu.fresh else ", stale"),
        ]
        for row in rows
    ]
    return Table(
        [
            *("node", "gpu", "model", "util", "memory", "C", "W", "state", "holder", "lease"),
            *("health", "age", "from"),
        ],
        cells,
        numeric=frozenset({"gpu", "C", "W", "lease", "age"}),
        important=(
            *("gpu", "util", "memory", "holder", "lease", "from", "health", "age", "W", "C"),
            *("state", "model"),
        ),
        shortened=frozenset({"model", "holder"}),
    )


def bar(percent: float | None, text: str) -> str:
    """`███░░░  47%`; nothing but `-` for what is unknown."""
    if percent is None:
        return UNKNOWN
    filled = round(min(max(percent, 0.0), 100.0) / 100 * BAR_CELLS)
    return f"{FULL * filled}{EMPTY * (BAR_CELLS - filled)} {text:>4}"


def _with_ledger_of(reading: GpuView, ledger_gpu: GpuView) -> GpuView:
    return replace(reading, **{name: getattr(ledger_gpu, name) for name in _LEDGER_FIELDS})


def _namespaces(gpu: GpuView) -> set[str | None]:
    return {gpu.namespace, *(holder.namespace for holder in gpu.holders)}


def _search_text(gpu: GpuView) -> str:
    state = gpu.state.value if gpu.state is not None else ""
    texts = (gpu.node_id, gpu.name, gpu_holder(gpu), gpu.namespace or "", state, gpu.health.value)
    return "\n".join(texts).casefold()


def _rank(row: GpuRow, sort: SortKey) -> tuple[bool, float]:
    """Unknown last."""
    end = row.lease_expires_at
    values = {
        SortKey.NODE: 0.0,
        SortKey.UTILIZATION: row.gpu.utilization_percent,
        SortKey.MEMORY: row.memory_share,
        SortKey.TEMPERATURE: row.gpu.temperature_c,
        SortKey.POWER: row.gpu.power_draw_w,
        SortKey.LEASE: -end.timestamp() if end is not None else None,
    }
    value = values[sort]
    return value is None, -(value or 0.0)


def _gibibytes(mebibytes: int | None) -> float | None:
    return None if mebibytes is None else mebibytes / MIB_PER_GIB
