"""Results of all tasks beside each other: experiments, and the best of a model."""

from typing import Annotated, Final
from uuid import UUID

from litestar.params import FromQuery, QueryParameter

from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.comparison import ExperimentComparison
from schemas.orchestrator.leaders import LeaderList, ListLeaders
from schemas.task.objectives import Objective
from services.gateway.domain.comparison import compare
from services.gateway.routes.common import Caller, InNamespace, TheGateway, route
from services.gateway.routes.tasks.tasks import find_experiment, find_task
from shared.errors import RefusedError

LEAST: Final = 2
MOST: Final = 8


@route(endpoints.COMPARE_EXPERIMENTS)
async def compare_experiments(
    gateway: TheGateway,
    identity: Caller,
    experiments: Annotated[str, QueryParameter(max_length=400)],
) -> ExperimentComparison:
    """Compare 2 to 8 experiments of any tasks; `experiments` has their ids with commas between."""
    pairs = []
    for experiment_id in _ids(experiments):
        experiment = await find_experiment(gateway, identity, experiment_id)
        pairs.append((experiment, await find_task(gateway, identity, experiment.task_id)))
    return compare(pairs)


@route(endpoints.LIST_LEADERS)
async def list_leaders(
    gateway: TheGateway,
    identity: Caller,
    model: Annotated[str | None, QueryParameter(min_length=1, max_length=1000)] = None,
    objective: FromQuery[Objective] = Objective.MAXIMIZE_THROUGHPUT,
    namespace: InNamespace = None,
    limit: Annotated[int, QueryParameter(ge=1, le=500)] = 100,
) -> LeaderList:
    """List the best experiment of a model for each engine, its version, GPUs and load.

    Without a `model` the measured models alone.
    """
    query = ListLeaders(
        model=model,
        objective=objective,
        namespace=identity.namespace_to_read(namespace),
        limit=limit,
    )
    return await gateway.bus.query(query, LeaderList)


def _ids(text: str) -> list[UUID]:
    """Return the ids in a query. Raises RefusedError."""
    try:
        ids = list(dict.fromkeys(UUID(part.strip()) for part in text.split(",")))
    except ValueError:
        ids = []
    if not LEAST <= len(ids) <= MOST:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected {LEAST} to {MOST} ids of experiments with commas between, got {text[:80]!r}",
            path="query.experiments",
        )
    return ids
