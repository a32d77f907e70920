"""Experiments joined to what results and the scheduler know of them."""

from typing import Final
from uuid import UUID

from schemas.gateway.views import ExperimentDetail, ExperimentDetails
from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ExperimentList, ExperimentView, ListExperiments
from schemas.results.measurements import (
    GetMemoryTrend,
    GetSummary,
    GpuMemoryTrend,
    ListSummaries,
    MemoryTrendView,
    SummaryList,
    SummaryView,
)
from schemas.scheduler.views import ExplainReservation, Explanation
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.experiments import experiment_detail
from services.gateway.routes.common import or_none
from shared.errors import UnavailableError
from shared.logging import log

MEASURED: Final = frozenset({ExperimentState.SUCCEEDED})


async def join_experiment(
    gateway: Gateway, view: ExperimentView, identity: Identity
) -> ExperimentDetail:
    """Return one experiment, with everything that is known of it."""
    missing: list[str] = []
    summary = explanation = None
    failure_memory: tuple[GpuMemoryTrend, ...] = ()
    try:
        summary = await _summary(gateway, view)
        failure_memory = await _failure_memory(gateway, view)
    except UnavailableError:
        missing.append("results")
    try:
        explanation = await _explanation(gateway, view, identity)
    except UnavailableError:
        missing.append("scheduler")
    return experiment_detail(
        view, summary, explanation, missing=missing, levels=True, failure_memory=failure_memory
    )


async def list_details(
    gateway: Gateway, query: ListExperiments, monitoring: bool
) -> ExperimentDetails:
    """A page of them, with what results measured if `monitoring`."""
    page = await gateway.fetch_list(query, ExperimentList, "experiments")
    page_experiments = page.experiments
    tasks = {view.task_id for view in page_experiments if view.state in MEASURED}
    summaries: dict[UUID, SummaryView] = {}
    missing: list[str] = []
    try:
        for task_id in tasks if monitoring else ():
            summaries.update({s.experiment_id: s for s in await summaries_of(gateway, task_id)})
    except UnavailableError as error:
        log.info("experiments_without_monitoring", error=str(error))
        summaries.clear()
        missing.append("results")
    experiments = tuple(
        experiment_detail(view, summaries.get(view.experiment_id), None, missing=missing)
        for view in page_experiments
    )
    return ExperimentDetails(experiments=experiments, next_cursor=page.next_cursor)


async def summaries_of(gateway: Gateway, task_id: UUID) -> tuple[SummaryView, ...]:
    """Return all summaries of a task."""
    pages = gateway.pages(ListSummaries(task_id=task_id), SummaryList, "experiment_id")
    return tuple([summary async for page in pages for summary in page.summaries])


async def _summary(gateway: Gateway, view: ExperimentView) -> SummaryView | None:
    if view.state not in MEASURED:
        return None
    return await or_none(
        gateway.bus.query(GetSummary(experiment_id=view.experiment_id), SummaryView)
    )


async def _failure_memory(gateway: Gateway, view: ExperimentView) -> tuple[GpuMemoryTrend, ...]:
    if view.state is not ExperimentState.FAILED or not view.attempts:
        return ()
    query = GetMemoryTrend(attempt_id=view.attempts[-1].attempt_id)
    trend = await or_none(gateway.bus.query(query, MemoryTrendView))
    return trend.gpus if trend is not None else ()


async def _explanation(
    gateway: Gateway, view: ExperimentView, identity: Identity
) -> Explanation | None:
    if view.state is not ExperimentState.WAITING or view.reservation_id is None:
        return None
    query = ExplainReservation(reservation_id=view.reservation_id, names_of=identity.names_of)
    return await or_none(gateway.bus.query(query, Explanation))
