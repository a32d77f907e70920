"""Reports on GPU time as typed methods."""

from datetime import datetime
from uuid import UUID

from schemas.gateway import endpoints
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
from schemas.task.load_commands import ExperimentCommands
from schemas.task.report import TaskReport
from shared.client.connection import GatewayConnection


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
        return await self.call(
            endpoints.GET_GPU_TIME, by=by, start_at=start_at, end_at=end_at, namespace=namespace
        )

    async def waste_report(
        self,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
    ) -> WasteView:
        """Reservations that were held and hardly used."""
        return await self.call(
            endpoints.GET_WASTE, start_at=start_at, end_at=end_at, namespace=namespace
        )

    async def idle_report(
        self,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
        window_seconds: float = IDLE_WINDOW_SECONDS,
        grace_seconds: float = IDLE_GRACE_SECONDS,
    ) -> IdleView:
        """Report what releasing idle reservations would have freed."""
        return await self.call(
            endpoints.GET_IDLE,
            start_at=start_at,
            end_at=end_at,
            namespace=namespace,
            window_seconds=window_seconds,
            grace_seconds=grace_seconds,
        )

    async def waits_report(
        self,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
    ) -> WaitsView:
        """Report how long requests waited for GPUs."""
        return await self.call(
            endpoints.GET_WAITS, start_at=start_at, end_at=end_at, namespace=namespace
        )

    async def failures_report(
        self,
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        namespace: str | None = None,
    ) -> FailuresView:
        """Report why attempts and reservations ended otherwise than planned."""
        return await self.call(
            endpoints.GET_FAILURES, start_at=start_at, end_at=end_at, namespace=namespace
        )

    async def waterfall(self, subject_id: UUID) -> WaterfallView:
        """Return where the GPU time of a task or an experiment went."""
        return await self.call(endpoints.GET_WATERFALL, subject_id=subject_id)

    async def experiment_commands(self, experiment_id: UUID) -> ExperimentCommands:
        """Read how to start an experiment's engine elsewhere, and send it the same loads."""
        return await self.call(endpoints.GET_COMMANDS, experiment_id=experiment_id)

    async def task_report(self, task_id: UUID) -> TaskReport:
        """Return the report of a task."""
        return await self.call(endpoints.GET_TASK_REPORT, task_id=task_id)

    async def task_report_markdown(self, task_id: UUID) -> str:
        """The same for people."""
        return await self.call(endpoints.GET_TASK_REPORT_AS_MARKDOWN, task_id=task_id)
