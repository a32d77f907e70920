"""The query for the best measured configurations of a model."""

from dataclasses import dataclass
from typing import Final

from schemas.orchestrator.leaders import LeaderList, ListLeaders
from schemas.task.objectives import Objective
from services.orchestrator.domain.progress.model_leaders import leader
from services.orchestrator.ledger import leader_rows
from shared.messaging.bus import Route, query_route
from shared.postgres.database import Database

USUAL: Final = Objective.MINIMIZE_LATENCY.value  # of a file that names none


@dataclass(frozen=True, slots=True)
class LeaderHandlers:
    database: Database

    async def list_leaders(self, query: ListLeaders) -> LeaderList:
        """Return the measured models, and the leaders of the one that is asked for."""
        async with self.database.transaction() as connection:
            models = await leader_rows.list_models(connection, query.namespace, USUAL)
            if query.model is None:
                return LeaderList(models=tuple(models), objective=query.objective)
            runs = await leader_rows.best_runs(connection, query, USUAL)
        return LeaderList(
            models=tuple(models),
            leaders=tuple(leader(run.experiment, run.task, run.experiments) for run in runs),
            objective=query.objective,
        )


def leader_routes(handlers: LeaderHandlers) -> list[Route]:
    """Queries of leaders."""
    return [query_route(handlers.list_leaders, ListLeaders)]
