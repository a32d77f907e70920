"""A GPU's stored reading, and spans of time, in seconds since the epoch."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from schemas.executor.attempts import Window
from schemas.telemetry.readings import GpuPod


class Span(NamedTuple):
    """A stretch of time; both ends belong to it."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def overlap(self, start: float, end: float) -> float:
        """Return how many seconds from `start` to `end` lie in the span."""
        return max(0.0, min(self.end, end) - max(self.start, start))


class Tenant(Struct, frozen=True, array_like=True):
    """Who has memory on a GPU: a reservation, or else a process by its name."""

    reservation_id: UUID | None
    name: str | None = None


class Condition(Struct, frozen=True, array_like=True):
    """What of a GPU changes seldom. None is unknown."""

    throttle_reasons: tuple[str, ...] | None
    tenants: tuple[Tenant, ...] | None
    pods: tuple[GpuPod, ...] | None = None


class Reading(Struct, frozen=True, kw_only=True, gc=False):
    """One GPU at one tick of its node. None is unknown."""

    at: float
    interval_seconds: float
    boot_id: UUID
    sequence: int
    utilization_percent: float | None = None
    memory_total_mb: float | None = None
    memory_used_mb: float | None = None
    temperature_c: float | None = None
    power_draw_w: float | None = None
    energy_mj: int | None = None
    power_limit_w: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    condition_no: int | None = None

    @property
    def tick(self) -> tuple[UUID, int]:
        """The boot and number that all readings of one tick of a node share."""
        return (self.boot_id, self.sequence)


def union_of(windows: Iterable[Window]) -> list[Span]:
    """The windows in order, overlapping ones joined, those that end before they start left out."""
    spans = sorted(
        Span(window.started_at.timestamp(), window.finished_at.timestamp())
        for window in windows
        if window.finished_at >= window.started_at
    )
    merged: list[Span] = []
    for span in spans:
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def inside(readings: Iterable[Reading], spans: Sequence[Span]) -> list[Reading]:
    """The readings taken within any of the spans."""
    return [r for r in readings if any(s.start <= r.at <= s.end for s in spans)]
