"""Every strategy that proposes configurations, by the name that a task file has for it."""

from importlib import import_module
from typing import Final

from schemas.task.strategies import Strategy
from services.orchestrator.domain.search.search import SearchStrategy


def _load(strategy: Strategy) -> SearchStrategy:
    module = import_module(f"{__package__}.{strategy.value}")
    strategy_object: SearchStrategy = module.STRATEGY
    return strategy_object


STRATEGIES: Final = {
    strategy: _load(strategy) for strategy in Strategy if strategy.traits.is_search
}
