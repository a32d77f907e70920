"""Reports on GPU time as typed methods."""

from datetime import datetime
from uuid import UUID

from schemas.results.reports import (
    FailuresView,
    IdleView,
    UsageBy,
    UsageView,
    WaitsView,
    WasteView,
    WaterfallView,
)
from schemas.scheduler.idle import IDLE_GRACE_SECONDS, IDLE_WINDOW_SECONDS
from schemas.task.report import TaskReport
from shared.client.connection import GatewayConnection, Parameters

REPORT_SECONDS = 35.0


class ReportClient(GatewayConnection):
    """The part of `StewardClient` that is about what was; of the last week by default."""

    async def usage_report(
        self,
        by: UsageBy = UsageBy.NAMESPACE,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
    ) -> UsageView:
        """GPU hours, energy and cost, and what became of all GPU time."""
        wanted = {"by": by.value, **_range(start_at, end_at, namespace)}
        return await self.get(
            "/reports/gpu-time", UsageView, wanted, timeout_seconds=REPORT_SECONDS
        )

    async def waste_report(
        self,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
    ) -> WasteView:
        """Reservations that were held and hardly used."""
        wanted = _range(start_at, end_at, namespace)
        return await self.get("/reports/waste", WasteView, wanted, timeout_seconds=REPORT_SECONDS)

    async def idle_report(
        self,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
        window_seconds: float = IDLE_WINDOW_SECONDS,
        grace_seconds: float = IDLE_GRACE_SECONDS,
    ) -> IdleView:
        """What releasing idle reservations would have freed."""
        wanted = {
            **_range(start_at, end_at, namespace),
            "window_seconds": str(window_seconds),
            "grace_seconds": str(grace_seconds),
        }
        return await self.get("/reports/idle", IdleView, wanted, timeout_seconds=REPORT_SECONDS)

    async def waits_report(
        self,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
    ) -> WaitsView:
        """How long requests waited for GPUs."""
        wanted = _range(start_at, end_at, namespace)
        return await self.get("/reports/waits", WaitsView, wanted, timeout_seconds=REPORT_SECONDS)

    async def failures_report(
        self,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
    ) -> FailuresView:
        """Why attempts and reservations ended otherwise than planned."""
        wanted = _range(start_at, end_at, namespace)
        return await self.get(
            "/reports/failures", FailuresView, wanted, timeout_seconds=REPORT_SECONDS
        )

    async def waterfall(self, subject_id: UUID) -> WaterfallView:
        """Where the GPU time of a task or an experiment went."""
        path = f"/reports/waterfall/{subject_id}"
        return await self.get(path, WaterfallView, timeout_seconds=REPORT_SECONDS)

    async def task_report(self, task_id: UUID) -> TaskReport:
        """What a task found out."""
        path = f"/reports/tasks/{task_id}"
        return await self.get(path, TaskReport, timeout_seconds=REPORT_SECONDS)

    async def task_report_markdown(self, task_id: UUID) -> str:
        """The same for people."""
        path = f"/reports/tasks/{task_id}/markdown"
        return (await self.send("GET", path, timeout_seconds=REPORT_SECONDS)).decode()


def _range(start_at: datetime | None, end_at: datetime | None, namespace: str | None) -> Parameters:
    return {
        "start_at": start_at.isoformat() if start_at is not None else None,
        "end_at": end_at.isoformat() if end_at is not None else None,
        "namespace": namespace,
    }
