"""What a task's best experiment is best at, and what each objective needs of the task."""

from enum import StrEnum
from typing import Self

from msgspec import Struct


class ObjectiveTraits(Struct, frozen=True, kw_only=True):
    """How an objective is measured: the name of its measure in `BenchmarkMetrics`, and what a task
    has to have for it.
    """

    measure: str
    # In its place where the number of GPUs is not known.
    measure_of_all_gpus: str | None = None
    # Searches the load itself (`benchmark.load_search`); the first of several objectives then.
    needs_load_search: bool = False
    # Counts requests that meet a bound on time, which `constraints` give.
    needs_time_bound: bool = False
    needs_prices: bool = False
    # Made of single requests: what a load generator did to them is not known.
    counts_requests: bool = False
    # Made of the throughput, and of what the GPUs drew or cost meanwhile.
    divides_throughput: bool = False
    # Of answers that come token by token, which embeddings and rerank have not.
    needs_tokens: bool = False


class Objective(StrEnum):
    """What the best experiment is best at."""

    _value_: str
    traits: ObjectiveTraits

    def __new__(cls, value: str, traits: ObjectiveTraits) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.traits = traits
        return member

    MINIMIZE_LATENCY = "minimize_latency", ObjectiveTraits(measure="mean_e2e_latency")
    MAXIMIZE_THROUGHPUT = (
        "maximize_throughput",
        ObjectiveTraits(
            measure="max_total_throughput_per_gpu", measure_of_all_gpus="max_total_throughput"
        ),
    )
    MAXIMIZE_GOODPUT = (
        "maximize_goodput",
        ObjectiveTraits(measure="max_goodput_per_gpu", needs_time_bound=True, counts_requests=True),
    )
    MAXIMIZE_TOKENS_PER_JOULE = (
        "maximize_tokens_per_joule",
        ObjectiveTraits(measure="tokens_per_joule", divides_throughput=True, needs_tokens=True),
    )
    MINIMIZE_COST = (
        "minimize_cost",
        ObjectiveTraits(
            measure="cost_per_million_tokens",
            needs_prices=True,
            divides_throughput=True,
            needs_tokens=True,
        ),
    )
    MINIMIZE_TTFT = "minimize_ttft", ObjectiveTraits(measure="mean_ttft", needs_tokens=True)
    MINIMIZE_TPOT = "minimize_tpot", ObjectiveTraits(measure="mean_tpot", needs_tokens=True)
    MAXIMIZE_LOAD = (
        "maximize_load",
        ObjectiveTraits(measure="max_load", needs_load_search=True, counts_requests=True),
    )

    @property
    def is_maximized(self) -> bool:
        """True if a larger score is better."""
        return self.value.startswith("maximize_")
