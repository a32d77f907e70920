"""Random search: every configuration is drawn by chance."""

from typing import Final

from schemas.task.task_file import OptimizationSpec
from services.orchestrator.domain.search.search import Answer, Search, SearchStrategy, Situation
from services.orchestrator.domain.search.space import Space
from services.orchestrator.domain.search.steps import count_within, draw_at_random, stop_at_limit


class RandomSearch:
    """Draws without learning, so that it is what other strategies are compared with."""

    avoids_crashes = False

    def count_experiments(self, spec: OptimizationSpec, space: Space) -> int:
        return count_within(spec, space)

    def next(self, situation: Situation) -> Answer:
        return stop_at_limit(situation) or draw_at_random(
            situation, drawn=situation.search.experiments
        )

    def describe(self, search: Search) -> str:  # noqa: ARG002 - as the protocol has it
        return "drawn at random"


STRATEGY: Final[SearchStrategy] = RandomSearch()
