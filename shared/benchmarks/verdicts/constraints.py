"""What an experiment has to meet: constraints as text, and how far it is from meeting them."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.task.benchmark import LevelResult
from schemas.task.slo import ConstraintCheck, SloVerdict
from shared.benchmarks.levels.level_text import load_text
from shared.benchmarks.levels.request_columns import RequestRow, unpack_requests
from shared.benchmarks.metrics import loads_of, tpot_of
from shared.benchmarks.quality.agreement import quality_text
from shared.errors import RefusedError

PATH: Final = "$.optimization.constraints"
STATISTICS: Final = ("mean", "min", "max", "p25", "p50", "p75", "p90", "p95", "p99")
# Missed by nothing: what is to be below a bound is at it.
SMALLEST_EXCESS: Final = 2.0**-52

# How many of a unit make one of ours: divided by, 57 % is the float that 57 of 100 requests are.
_SECONDS: Final = {"us": 1e6, "ms": 1e3, "s": 1.0}
_SHARE: Final = {"": 1.0, "%": 100.0}
_TOKENS: Final = {"": 1.0, "tok/s": 1.0, "tokens/s": 1.0}
_REQUESTS: Final = {"": 1.0, "/s": 1.0, "req/s": 1.0}
_ITEMS: Final = {"": 1.0, "/s": 1.0, "items/s": 1.0}


class Metric(Struct, frozen=True, kw_only=True):
    """`spread` is the distribution of a level that statistics are of; without one it is a figure of
    the level as a whole. `has_tokens`: whether it is of answers that come token by token, or of
    those that do not; None: of both.
    """

    units: Mapping[str, float]
    spread: str | None = None
    has_tokens: bool | None = None
    value: Callable[[LevelResult], float | None] = lambda _: None


METRICS: Final[Mapping[str, Metric]] = {
    "ttft": Metric(units=_SECONDS, spread="ttft", has_tokens=True),
    "tpot": Metric(units=_SECONDS, spread="tpot", has_tokens=True),
    "e2e": Metric(units=_SECONDS, spread="e2e_latency"),
    "error_rate": Metric(units=_SHARE, value=lambda level: level.error_rate),
    "goodput": Metric(units=_SHARE),
    "requests": Metric(units=_REQUESTS, value=lambda level: level.requests_per_second),
    "items": Metric(units=_ITEMS, has_tokens=False, value=lambda level: level.items_per_second),
    "output_throughput": Metric(
        units=_TOKENS,
        has_tokens=True,
        value=lambda level: level.mean_output_throughput_tokens_per_s,
    ),
    "total_throughput": Metric(
        units=_TOKENS, value=lambda level: level.mean_total_tokens_throughput_tokens_per_s
    ),
}

_NAME: Final = re.compile(r"[a-z0-9_]*")
_OPERATOR: Final = re.compile(r"<=|>=|<|>")
_NUMBER: Final = re.compile(r"\d+(\.\d+)?([eE][+-]?\d{1,3})?")
_UNIT: Final = re.compile(r"[a-z%/]*")


class Constraint(Struct, frozen=True, kw_only=True):
    """`bound` in seconds, shares (0 to 1) or rates per second."""

    text: str
    metric: str
    statistic: str | None
    is_upper: bool
    is_strict: bool
    bound: float


def parse_constraints(text: str) -> tuple[Constraint, ...]:
    """`ttft:p99<300ms, error_rate<1%`. Raises RefusedError with the place in the text."""
    bounds = []
    start = 0
    for part in text.split(",") if text.strip() else ():
        bounds.append(_Parser(text, start, start + len(part)).constraint())
        start += len(part) + 1
    return tuple(bounds)


class _Parser:
    def __init__(self, text: str, start: int, end: int) -> None:
        self._text, self._at, self._end = text, start, end

    def constraint(self) -> Constraint:
        self._skip_spaces()
        start = self._at
        name = self._take(_NAME)
        if name not in METRICS:
            raise self._refusal(f"one of {', '.join(METRICS)}", start)
        metric = METRICS[name]
        statistic = self._statistic(name, metric)
        operator = self._take(_OPERATOR)
        if not operator:
            raise self._refusal("<, <=, > or >=", self._at)
        is_upper = operator.startswith("<")
        value = self._value(metric)
        self._skip_spaces()
        if self._at < self._end:
            raise self._refusal("a comma or the end", self._at)
        return Constraint(
            text=" ".join(self._text[start : self._end].split()),
            metric=name,
            statistic=statistic,
            is_upper=is_upper,
            is_strict=len(operator) == 1,
            bound=value,
        )

    def _statistic(self, name: str, metric: Metric) -> str | None:
        has_one = self._text.startswith(":", self._at, self._end)
        if metric.spread is None:
            if has_one:
                raise self._refusal(f"an operator: {name} has no statistics", self._at)
            return None
        if not has_one:
            raise self._refusal(f"a statistic, as in {name}:p99", self._at)
        self._at += 1
        start = self._at
        statistic = self._take(_NAME)
        if statistic not in STATISTICS:
            raise self._refusal(f"one of {', '.join(STATISTICS)}", start)
        return statistic

    def _value(self, metric: Metric) -> float:
        self._skip_spaces()
        start = self._at
        number = self._take(_NUMBER)
        if not number:
            raise self._refusal("a number", start)
        unit_at = self._at
        unit = self._take(_UNIT)
        if unit not in metric.units:
            units = ", ".join(repr(unit) if unit else "none" for unit in metric.units)
            raise self._refusal(f"a unit of {units}", unit_at)
        value = float(number) / metric.units[unit]
        if metric.units is _SHARE and value > 1:
            raise self._refusal("at most 100%", start)
        return value

    def _take(self, pattern: re.Pattern[str]) -> str:
        self._skip_spaces()
        match = pattern.match(self._text, self._at, self._end)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()

    def _skip_spaces(self) -> None:
        while self._at < self._end and self._text[self._at] == " ":
            self._at += 1

    def _refusal(self, expected: str, at: int) -> RefusedError:
        remainder = self._text[at : self._end].strip()
        got = repr(remainder[:40]) if remainder else "nothing"
        return RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected {expected} at character {at + 1}, got {got}",
            path=PATH,
        )


def check_constraints(
    constraints: Sequence[Constraint], levels: Iterable[LevelResult]
) -> tuple[ConstraintCheck, ...]:
    """Check each constraint at the load that is farthest from meeting it; loads that are set aside
    do not count.

    Levels of the same load count as one, with all their requests.
    """
    loads = loads_of(levels)
    return tuple(_check(constraint, constraints, loads) for constraint in constraints)


def max_goodput(constraints: Sequence[Constraint], levels: Iterable[LevelResult]) -> float | None:
    """The most requests per second, of all loads, that were answered within every bound of a time
    at once; None: unknown.
    """
    rates = [
        share * load.num_requests / load.run_duration
        for load in loads_of(levels)
        if load.run_duration > 0 and (share := _goodput(constraints, load)) is not None
    ]
    return max(rates, default=None)


def bounds_a_time(constraints: Iterable[Constraint]) -> bool:
    return any(
        constraint.is_upper and METRICS[constraint.metric].spread for constraint in constraints
    )


def worst_excess(checks: Iterable[ConstraintCheck]) -> float:
    """Return 0 where all are met, infinite where one was not measured."""
    return max((math.inf if c.excess is None else c.excess for c in checks), default=0.0)


def excess_of(verdict: SloVerdict | None) -> float:
    """Return how far an experiment is from its task's constraints and from the baseline's answers;
    0 if the task sets none.
    """
    if verdict is None:
        return 0.0
    of_answers = verdict.quality.excess if verdict.quality is not None else 0.0
    return max(worst_excess(verdict.constraints), of_answers)


def find_missed(verdict: SloVerdict | None) -> list[ConstraintCheck]:
    """Return the checks that failed, and those of what was not measured."""
    return [check for check in verdict.constraints if check.excess != 0] if verdict else []


def describe_missed(verdict: SloVerdict | None) -> str:
    """Return `ttft:p99<300ms by 37 % at D(100,100) at concurrency 8, ...`."""
    if verdict is None:
        return ""
    missed = [_miss_text(check) for check in find_missed(verdict)]
    if verdict.quality is not None and verdict.quality.excess:
        missed.append(f"the baseline's answers: {quality_text(verdict.quality)}")
    return ", ".join(missed)


def _miss_text(check: ConstraintCheck) -> str:
    at = f" at {check.load}" if check.load else ""
    how = ", which was not measured" if check.excess is None else f" by {100 * check.excess:.3g} %"
    return f"{check.constraint}{how}{at}"


def _check(
    constraint: Constraint, constraints: Sequence[Constraint], loads: Sequence[LevelResult]
) -> ConstraintCheck:
    worst = ConstraintCheck(constraint=constraint.text)
    farthest = -1.0
    for load in loads:
        actual = _actual(constraint, constraints, load)
        excess = math.inf if actual is None else _excess(constraint, actual)
        if excess > farthest:
            farthest = excess
            worst = ConstraintCheck(
                constraint=constraint.text,
                load=load_text(load),
                actual=actual,
                excess=None if actual is None else excess,
            )
    return worst


def _actual(
    constraint: Constraint, constraints: Sequence[Constraint], load: LevelResult
) -> float | None:
    metric = METRICS[constraint.metric]
    if constraint.metric == "goodput":
        return _goodput(constraints, load)
    if metric.spread is None:
        return metric.value(load)
    spread = getattr(load.stats, metric.spread)
    value: float | None = getattr(spread, constraint.statistic or "") if spread else None
    return value


def _excess(constraint: Constraint, actual: float) -> float:
    """Return how far the value is beyond the bound, as a share of the bound; absolute for a bound
    of 0.
    """
    beyond = actual - constraint.bound if constraint.is_upper else constraint.bound - actual
    if beyond < 0 or (beyond == 0 and not constraint.is_strict):
        return 0.0
    return max(beyond / (constraint.bound or 1.0), SMALLEST_EXCESS)


def margin_of(constraints: Sequence[Constraint], load: LevelResult) -> tuple[float, float]:
    """Return the margin of the worst constraint, as a share of its bound from -1 to 1, and its
    standard error.
    """
    margins = [_margin(constraint, constraints, load) for constraint in constraints]
    return min(margins, default=(1.0, 0.0))


def _margin(
    constraint: Constraint, constraints: Sequence[Constraint], load: LevelResult
) -> tuple[float, float]:
    actual = _actual(constraint, constraints, load)
    if actual is None:
        return -1.0, 0.0
    bound = constraint.bound or 1.0
    excess = _excess(constraint, actual)
    room = max(abs(actual - constraint.bound) / bound, SMALLEST_EXCESS)
    margin = -excess if excess else room
    error = _standard_error(constraint, actual, load) / bound
    return min(max(margin, -1.0), 1.0), error


def _standard_error(constraint: Constraint, actual: float, load: LevelResult) -> float:
    """Return the standard error of a value, as if requests were independent of each other.

    Of a percentile from its neighbours by rank, of a rate as if requests were counted; 0 where that
    is unknown.
    """
    requests = load.num_requests
    metric = METRICS[constraint.metric]
    if not requests:
        return 0.0
    if metric.spread is None:
        is_share = metric.units is _SHARE
        variance = actual * (1 - actual) if is_share else actual * actual
        return math.sqrt(max(variance, 0.0) / requests)
    if constraint.statistic == "mean":
        spread = getattr(load.stats, metric.spread)
        return float(spread.stddev / math.sqrt(requests))
    if constraint.statistic in {"min", "max"} or load.requests is None:
        return 0.0
    times = sorted(
        time
        for row in unpack_requests(load.requests)
        if row.error is None and (time := _time(constraint.metric, row)) is not None
    )
    share = float((constraint.statistic or "p0")[1:]) / 100
    middle, ranks = share * (len(times) - 1), math.sqrt(len(times) * share * (1 - share))
    below, above = max(math.floor(middle - ranks), 0), math.ceil(middle + ranks)
    return (times[min(above, len(times) - 1)] - times[below]) / 2 if times else 0.0


def _time(metric: str, row: RequestRow) -> float | None:
    return {"ttft": row.ttft, "e2e": row.e2e_latency, "tpot": _tpot(row)}[metric]


def _goodput(constraints: Sequence[Constraint], load: LevelResult) -> float | None:
    """The share of all requests that were answered within every bound of a time at once."""
    if not load.num_requests:
        return None
    bounds = [(c.metric, c.bound) for c in constraints if METRICS[c.metric].spread and c.is_upper]
    served = load.num_completed_requests / load.num_requests
    if not bounds or not served:
        return served
    if load.requests is None:
        return None
    rows = [row for row in unpack_requests(load.requests) if row.error is None]
    good = 0
    for row in rows:
        good += all((time := _time(name, row)) is None or time <= bound for name, bound in bounds)
    return served * good / len(rows) if rows else None


def _tpot(row: RequestRow) -> float | None:
    if row.ttft is None or row.e2e_latency is None:
        return None
    return tpot_of(row.e2e_latency - row.ttft, row.num_output_tokens or 0, row.num_first_tokens)
