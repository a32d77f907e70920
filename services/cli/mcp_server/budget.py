"""What an agent may still hold: GPU time, bounded before it is asked for."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.views import ReservationView
from schemas.task.task_file import OptimizationSpec
from shared.errors import RefusedError
from shared.gpu.held_gpus import gpus_of

SECONDS_PER_HOUR: Final = 3600.0


class BudgetView(Struct, frozen=True, kw_only=True):
    """In GPU-hours. `committed` is the most that everything asked for so far may use."""

    gpu_hours: float
    committed: float
    left: float


@dataclass(slots=True)
class Budget:
    """GPU-seconds that each reservation and task may use at most. A lease counts to its end, and
    for less once it is given back; a task as long as all its attempts may take.
    """

    gpu_hours: float
    _committed: dict[UUID, float] = field(default_factory=dict)

    def view(self) -> BudgetView:
        committed = sum(self._committed.values()) / SECONDS_PER_HOUR
        return BudgetView(
            gpu_hours=self.gpu_hours, committed=committed, left=self.gpu_hours - committed
        )

    def check(self, subject_id: UUID, gpu_seconds: float) -> None:
        """Raises RefusedError where it would be more than the budget."""
        other_seconds = sum(self._committed.values()) - self._committed.get(subject_id, 0.0)
        if other_seconds + gpu_seconds > self.gpu_hours * SECONDS_PER_HOUR:
            needed, left_hours = (
                gpu_seconds / SECONDS_PER_HOUR,
                self.gpu_hours - other_seconds / 3600,
            )
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                f"expected at most {left_hours:.3g} GPU-hours, what is left of {self.gpu_hours:g};"
                f" this may use {needed:.3g}",
            )

    def commit(self, subject_id: UUID, gpu_seconds: float) -> None:
        """Raises RefusedError where it would be more than the budget."""
        self.check(subject_id, gpu_seconds)
        self._committed[subject_id] = gpu_seconds

    def reduce(self, subject_id: UUID, gpu_seconds: float) -> None:
        """Record that it has ended, after so much."""
        if subject_id in self._committed:
            self._committed[subject_id] = min(self._committed[subject_id], gpu_seconds)


def gpu_seconds_until(view: ReservationView, end: datetime) -> float:
    """Return what a reservation has used if it ends at `end`; 0 before it is granted."""
    if view.granted_at is None:
        return 0.0
    return gpus_of(view.request) * max(0.0, (end - view.granted_at).total_seconds())


def longest_gpu_seconds(requests: tuple[GpuRequest, ...], optimization: OptimizationSpec) -> float:
    """Return what a task uses if every attempt of every experiment takes as long as it may."""
    attempt_seconds = optimization.timeout_per_iteration * optimization.max_attempts
    return sum(map(gpus_of, requests)) * attempt_seconds
