"""The strategies by which a task chooses its configurations, and what each takes.

The command line, the web page and the checks of a task read the traits: none of them names a
strategy.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

from msgspec import Struct


class StrategyTraits(Struct, frozen=True, kw_only=True):
    """What a strategy does with a task, and which of the task's settings it takes."""

    # Proposes one configuration after the other; without, all are planned when a task is submitted.
    is_search: bool = True
    # Begins with what past tasks measured (`warm_start`), if the task has one objective.
    takes_warm_start: bool = False
    takes_prior: bool = False
    # Computes with Optuna, which takes a second to import.
    needs_optuna: bool = False
    # Measures the best again where a task leaves `trust` open.
    checks_best: bool = False


class Strategy(StrEnum):
    """How the next configuration is chosen."""

    _value_: str
    traits: StrategyTraits

    def __new__(cls, value: str, traits: StrategyTraits) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.traits = traits
        return member

    GRID_SEARCH = "grid_search", StrategyTraits(is_search=False)
    RANDOM = "random", StrategyTraits()
    BAYESIAN = (
        "bayesian",
        StrategyTraits(takes_warm_start=True, takes_prior=True, needs_optuna=True),
    )
    AUTO = (
        "auto",
        StrategyTraits(
            takes_warm_start=True, takes_prior=True, needs_optuna=True, checks_best=True
        ),
    )
    SUCCESSIVE_HALVING = "successive_halving", StrategyTraits()


def names_of(strategies: Iterable[Strategy]) -> str:
    """Return the strategies for people: `'bayesian' or 'auto'`."""
    return " or ".join(repr(strategy.value) for strategy in strategies)
