"""Results of all tasks beside each other, as typed methods."""

from collections.abc import Iterable
from uuid import UUID

from schemas.gateway import endpoints
from schemas.gateway.comparison import ExperimentComparison
from schemas.orchestrator.leaders import LeaderList
from schemas.task.objectives import Objective
from shared.client.connection import GatewayConnection


class ComparisonClient(GatewayConnection):
    """The part of `StewardClient` that is about several tasks at once."""

    async def compare_experiments(self, experiment_ids: Iterable[UUID]) -> ExperimentComparison:
        """Compare 2 to 8 experiments of any tasks."""
        ids = ",".join(map(str, experiment_ids))
        return await self.call(endpoints.COMPARE_EXPERIMENTS, experiments=ids)

    async def leaders(
        self,
        model: str | None = None,
        *,
        objective: Objective = Objective.MAXIMIZE_THROUGHPUT,
        namespace: str | None = None,
        limit: int = 100,
    ) -> LeaderList:
        """Read the best experiment of a model for each engine, its version, GPUs and load.

        Without a `model` the measured models alone.
        """
        return await self.call(
            endpoints.LIST_LEADERS,
            model=model,
            objective=objective,
            namespace=namespace,
            limit=limit,
        )
