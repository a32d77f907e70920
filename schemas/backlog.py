"""How far behind its own events a service is; asked for the platform's metrics."""

from typing import ClassVar, Final

from schemas.base import NodeId, Query, Seconds, View


class GetBacklog(Query, frozen=True, kw_only=True):
    """What has this service committed and not published yet? Answered by `Backlog`."""


class GetSchedulerBacklog(GetBacklog, frozen=True, kw_only=True, tag="scheduler.get_backlog"):
    """Answered by `Backlog`."""


class GetOrchestratorBacklog(GetBacklog, frozen=True, kw_only=True, tag="orchestrator.get_backlog"):
    """Answered by `Backlog`."""


class GetResultsBacklog(GetBacklog, frozen=True, kw_only=True, tag="results.get_backlog"):
    """Answered by `Backlog`."""


class GetExecutorBacklog(GetBacklog, frozen=True, kw_only=True, tag="executor.get_backlog"):
    """Answered by `Backlog`."""

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId


class Backlog(View, frozen=True, kw_only=True, tag="backlog"):
    """`outbox_age_seconds` is of the oldest unpublished event; 0 if all are published."""

    outbox_age_seconds: Seconds


# Of the services whose outbox is in Postgres; the gateway reads its own.
BACKLOG_OF: Final[dict[str, type[GetBacklog]]] = {
    "scheduler": GetSchedulerBacklog,
    "orchestrator": GetOrchestratorBacklog,
    "results": GetResultsBacklog,
}
