"""Constraints as text, how far experiments are from them, and the weighted SLO."""

import math
import random
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from schemas.task.benchmark import Distribution, LevelResult, LevelStats
from schemas.task.objectives import Objective
from schemas.task.quality import QualityVerdict
from schemas.task.slo import ConstraintCheck, LatencySlo, PenaltyForm, SloBound, SloSpec, SloVerdict
from shared.benchmarks.metrics import FailedRequest, RequestSample, level_result
from shared.benchmarks.verdicts.constraints import (
    check_constraints,
    excess_of,
    margin_of,
    max_goodput,
    parse_constraints,
    worst_excess,
)
from shared.benchmarks.verdicts.ranking import Scored, rank
from shared.benchmarks.verdicts.slo import penalize, penalty_of, slo_verdict
from shared.errors import RefusedError
from shared.ids import new_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = [5_000, pytest.param(100_000, marks=pytest.mark.long)]
WHOLE = "ttft:p99<300ms, tpot:p95<=20ms, error_rate<1%, goodput>=95%"


def level(*seconds: tuple[float, float], failed: int = 0, concurrency: int = 1) -> LevelResult:
    """Requests of `ttft` and `tpot`, of eleven output tokens each."""
    samples = [
        RequestSample(
            ttft=ttft, e2e_latency=ttft + 10 * tpot, num_input_tokens=5, num_output_tokens=11
        )
        for ttft, tpot in seconds
    ]
    return level_result(
        scenario="D(5,11)",
        num_concurrency=concurrency,
        started_at=NOW,
        run_duration=10.0,
        samples=samples,
        error_codes={"500": failed} if failed else {},
        failed=[FailedRequest(code="500")] * failed,
    )


def checked(text: str, *levels: LevelResult) -> list[ConstraintCheck]:
    return list(check_constraints(parse_constraints(text), levels))


def test_constraint_text_has_metric_and_units() -> None:
    found = parse_constraints(WHOLE)

    assert [(c.metric, c.statistic, c.is_upper, c.is_strict) for c in found] == [
        ("ttft", "p99", True, True),
        ("tpot", "p95", True, False),
        ("error_rate", None, True, True),
        ("goodput", None, False, False),
    ]
    assert [c.bound for c in found] == pytest.approx([0.3, 0.02, 0.01, 0.95])
    assert found[0].text == "ttft:p99<300ms"


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("ttft:p99<200us", 0.0002),
        ("ttft:p99<200ms", 0.2),
        ("ttft:p99<2s", 2.0),
        ("error_rate<0.5", 0.5),
        ("error_rate<5%", 0.05),
        ("requests>2", 2.0),
        ("requests>2/s", 2.0),
        ("requests>2req/s", 2.0),
        ("output_throughput>=1e3", 1000.0),
        ("output_throughput>=1e3tok/s", 1000.0),
        ("total_throughput>=1e3tokens/s", 1000.0),
    ],
)
def test_a_bound_has_the_units_of_its_metric(text: str, bound: float) -> None:
    (found,) = parse_constraints(text)

    assert found.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ttfb:p99<1s", "one of ttft, tpot, e2e, error_rate, goodput, requests"),
        ("ttft<1s", "a statistic, as in ttft:p99 at character 5, got '<1s'"),
        ("ttft:p98<1s", "p95, p99 at character 6"),
        ("ttft:p99=1s", "<, <=, > or >= at character 9"),
        ("ttft:p99<fast", "a number at character 10, got 'fast'"),
        ("ttft:p99<300", "a unit of 'us', 'ms', 's' at character 13, got nothing"),
        ("ttft:p99<1s tpot:p95<2s", "a comma or the end at character 13"),
        ("ttft:p99<1s,", "at character 13, got nothing"),
        ("error_rate<1%, goodput>=101%", "at most 100% at character 25"),
        ("error_rate:p99<1%", "error_rate has no statistics at character 11"),
    ],
)
def test_refused_text_tells_expected_and_place(text: str, want: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_constraints(text)

    assert want in refused.value.message


def test_all_of_the_requests_may_be_asked_for() -> None:
    (found,) = parse_constraints("goodput>=100%")

    assert found.bound == 1.0


def test_no_text_is_no_constraint() -> None:
    assert parse_constraints(" ") == ()


def test_worst_load_counts_by_its_excess() -> None:
    light, heavy = level((0.1, 0.01)), level((0.45, 0.01), concurrency=8)

    (found,) = checked("ttft:max<=300ms", light, heavy)

    assert found.load == "D(5,11) at concurrency 8"
    assert found.actual == pytest.approx(0.45)
    assert found.excess == pytest.approx(0.5)


def test_equal_meets_at_most_and_misses_below() -> None:
    at_bound = level((0.25, 0.01))

    assert worst_excess(checked("ttft:max<=250ms", at_bound)) == 0
    assert 0 < worst_excess(checked("ttft:max<250ms", at_bound)) < 1e-9


def test_excess_over_zero_bound_is_absolute() -> None:
    three_of_four = level((0.1, 0.01), (0.1, 0.01), (0.1, 0.01), failed=1)

    assert worst_excess(checked("error_rate<=0%", three_of_four)) == pytest.approx(0.25)
    assert worst_excess(checked("error_rate<=0%", level((0.1, 0.01)))) == 0


def test_percentiles_pool_requests_of_a_load() -> None:
    """Half of the requests at 100 ms, half at 300 ms: the median of all is 200 ms."""
    repeats = [level((0.1, 0.01), (0.1, 0.01)), level((0.3, 0.01), (0.3, 0.01))]

    (found,) = checked("ttft:p50<1s", *repeats)

    assert found.actual == pytest.approx(0.2)


def test_goodput_needs_all_bounds_at_once() -> None:
    """Of five, one is too late at first, one between tokens, and one failed: two are good."""
    requests = level((0.1, 0.01), (0.2, 0.01), (0.5, 0.01), (0.1, 0.05), failed=1)

    found = checked("ttft:p99<=300ms, tpot:p99<=20ms, goodput>=95%", requests)

    assert found[2].actual == pytest.approx(0.4)
    assert found[2].excess == pytest.approx((0.95 - 0.4) / 0.95)


def test_best_goodput_is_of_the_most_timely_load() -> None:
    slow = level(*[(0.5, 0.01)] * 9, (0.1, 0.01), concurrency=8)
    quick = level((0.1, 0.01), (0.2, 0.01), (0.2, 0.01), failed=1)

    found = max_goodput(parse_constraints("ttft:p99<=300ms"), [slow, quick])

    assert found == pytest.approx(0.3), "3 requests in 10 seconds"
    assert max_goodput(parse_constraints("ttft:p99<=300ms"), []) is None


def test_unmeasured_constraint_is_missed_most() -> None:
    nothing_served = level(failed=3)

    found = checked("ttft:p99<1s", nothing_served)

    assert found[0].excess is None
    assert math.isinf(worst_excess(found))


def scored(ordinal: int, score: float | None, excess: float = 0.0) -> Scored:
    return Scored(experiment_id=new_id(), ordinal=ordinal, score=score, excess=excess)


def test_unmeasured_margin_is_worst_and_certain() -> None:
    no_times = level()

    assert margin_of(parse_constraints("ttft:p99<1s"), no_times) == (-1.0, 0.0)
    assert margin_of((), no_times) == (1.0, 0.0)


FOUR_OK = level((0.1, 0.01), (0.2, 0.01), (0.3, 0.01), (0.4, 0.01))
NINE_OK = level(*((tenth / 10, 0.01) for tenth in range(1, 10)))
ONE_OF_FOUR_FAILED = level((0.1, 0.01), (0.2, 0.01), (0.3, 0.01), failed=1)


@pytest.mark.parametrize(
    ("text", "load", "margin", "error"),
    [
        # Half of the four are a rank and a half in; one more or less is chance.
        pytest.param("ttft:p50<=500ms", FOUR_OK, 0.5, 0.15 / 0.5, id="median"),
        pytest.param("ttft:p50<=500ms", ONE_OF_FOUR_FAILED, 0.6, 0.1 / 0.5, id="of those answered"),
        pytest.param("ttft:p50<=1s", NINE_OK, 0.5, 0.2, id="the more the surer"),
        pytest.param("ttft:mean<=500ms", FOUR_OK, 0.5, 0.1118 / 2 / 0.5, id="mean"),
        pytest.param("ttft:max<=800ms", FOUR_OK, 0.5, 0.0, id="an extreme has no neighbours"),
        pytest.param("error_rate<=50%", ONE_OF_FOUR_FAILED, 0.5, 0.2165 / 0.5, id="share"),
        pytest.param("requests>=0.5", FOUR_OK, -0.2, 0.2 / 0.5, id="rate"),
        pytest.param("ttft:p50<=500ms, ttft:max<=500ms", FOUR_OK, 0.2, 0.0, id="the worst of two"),
        pytest.param("ttft:max<=10ms", FOUR_OK, -1.0, 0.0, id="never below -1"),
    ],
)
def test_a_margin_says_how_much_of_it_may_be_chance(
    text: str, load: LevelResult, margin: float, error: float
) -> None:
    found = margin_of(parse_constraints(text), load)

    assert found == pytest.approx((margin, error), abs=0.001)


def test_feasible_precede_infeasible_and_unscored() -> None:
    experiments = [scored(1, 1.0, math.inf), scored(2, 2.0, 0.1), scored(3, None), scored(4, 9.0)]

    ranking = rank(Objective.MINIMIZE_LATENCY, experiments)

    assert [each.ordinal for each in ranking.ranked] == [4, 2, 1]
    assert [each.ordinal for each in ranking.unranked] == [3]


def test_the_documented_penalty() -> None:
    """2 s where 1 s is the threshold, weight 3, steepness 0.5: 3 exp(2)."""
    slo = SloSpec(
        latency=LatencySlo(p90=SloBound(threshold=1.0, weight=3.0)),
        ttft=SloBound(threshold=5.0),
        steepness=0.5,
    )

    verdict = slo_verdict(slo, [level((1.9, 0.01))])

    assert verdict.penalty == pytest.approx(3 * math.exp(2))
    assert penalize(Objective.MINIMIZE_LATENCY, 2.0, verdict.penalty) == pytest.approx(
        2 * (1 + 3 * math.exp(2))
    )
    assert penalize(Objective.MAXIMIZE_THROUGHPUT, 2.0, verdict.penalty) == pytest.approx(
        2 / (1 + 3 * math.exp(2))
    )


def test_the_continuous_form_begins_at_nothing() -> None:
    assert penalty_of(1e-12, 1.0, 0.1, PenaltyForm.EXPONENTIAL) == pytest.approx(1.0)
    assert penalty_of(1e-12, 1.0, 0.1, PenaltyForm.CONTINUOUS) == pytest.approx(0.0, abs=1e-9)


def test_hard_bound_fails_beyond_its_ratio() -> None:
    bound = SloBound(threshold=1.0, hard_fail=True, fail_ratio=0.2)
    slo = SloSpec(ttft=bound)

    assert not slo_verdict(slo, [level((1.2, 0.01))]).failed_because
    assert "ttft is 1.3 s, 30 % above" in slo_verdict(slo, [level((1.3, 0.01))]).failed_because


@pytest.mark.parametrize(
    ("threshold", "actual"), [(0.35, 0.42), (0.1, 0.12), (0.7, 0.84), (3.0, 3.6), (0.55, 0.66)]
)
def test_a_time_exactly_at_its_ratio_is_within_it(threshold: float, actual: float) -> None:
    slo = SloSpec(ttft=SloBound(threshold=threshold, hard_fail=True, fail_ratio=0.2))

    assert not slo_verdict(slo, [level((actual, 0.01))]).failed_because
    assert slo_verdict(slo, [level((actual * 1.0001, 0.01))]).failed_because


@pytest.mark.parametrize("percent", range(1, 101))
def test_percentage_is_a_share_of_100(percent: int) -> None:
    (found,) = parse_constraints(f"goodput>={percent}%")

    assert found.bound == percent / 100


@pytest.mark.parametrize("count", COUNTS)
def test_scores_have_one_total_order(count: int) -> None:
    drawn = random.Random(5)  # no secret
    experiments = [
        Scored(
            experiment_id=ID,
            ordinal=ordinal,
            score=drawn.choice([None, 0.0, 1.0, drawn.expovariate(1e-3)]),
            excess=drawn.choice([0.0, 0.0, drawn.random(), math.inf]),
        )
        for ordinal in range(count)
    ]
    drawn.shuffle(experiments)

    ranking = rank(Objective.MAXIMIZE_THROUGHPUT, experiments)

    assert all(each.score is None for each in ranking.unranked)
    assert len(ranking.ranked) + len(ranking.unranked) == len(experiments)
    keys = [(each.excess, -(each.score or 0.0), each.ordinal) for each in ranking.ranked]
    assert keys == sorted(keys)


@pytest.mark.parametrize("count", COUNTS)
def test_drawn_penalties_grow_and_stay_finite(count: int) -> None:
    drawn = random.Random(6)  # no secret
    for _ in range(count):
        smaller, larger = sorted((drawn.uniform(-1, 1e6), drawn.expovariate(1.0)))
        weight, steepness = drawn.expovariate(1.0), drawn.uniform(1e-6, 10)
        form = drawn.choice(list(PenaltyForm))

        low = penalty_of(smaller, weight, steepness, form)
        high = penalty_of(larger, weight, steepness, form)

        assert 0 <= low <= high < math.inf


@pytest.mark.parametrize("penalty", [0.0, 1.0, 1e200, 1.7e308])
def test_larger_penalty_never_improves_a_score(penalty: float) -> None:
    penalties = (penalty / 2, penalty)

    slow, slower = (penalize(Objective.MINIMIZE_TTFT, 2.0, each) for each in penalties)
    fast, less = (penalize(Objective.MAXIMIZE_THROUGHPUT, 2.0, each) for each in penalties)

    assert slow <= slower < math.inf
    assert fast >= less >= 0


def test_level_order_does_not_matter() -> None:
    """Levels with requests, of which some are repeats, and levels with figures alone."""
    drawn = random.Random(7)  # no secret
    constraints = parse_constraints("ttft:p99<300ms, tpot:p95<=20ms, error_rate<1%")
    slo = SloSpec(ttft=SloBound(threshold=0.2), tpot=SloBound(threshold=0.01))
    base = level((0.1, 0.01))
    for number in range(500):
        levels = [
            replace(
                base,
                num_concurrency=place,
                error_rate=drawn.choice([0.0, drawn.random()]),
                stats=LevelStats(
                    ttft=spread_of(drawn.uniform(0, 1)), tpot=spread_of(drawn.uniform(0, 0.1))
                ),
                requests=None,
            )
            for place in range(1, 4)
        ]
        if number % 20 == 0:
            levels += [level((drawn.random(), 0.01)) for _ in range(2)]
        shuffled = drawn.sample(levels, len(levels))

        assert worst_excess(check_constraints(constraints, levels)) == pytest.approx(
            worst_excess(check_constraints(constraints, shuffled)), rel=1e-12
        )
        assert slo_verdict(slo, levels).penalty == pytest.approx(
            slo_verdict(slo, shuffled).penalty, rel=1e-9
        )


ID = new_id()


def spread_of(value: float) -> Distribution:
    return Distribution(
        min=value,
        max=value,
        mean=value,
        stddev=0.0,
        sum=value,
        p25=value,
        p50=value,
        p75=value,
        p90=value,
        p95=value,
        p99=value,
    )


@pytest.mark.parametrize(
    ("constraints", "quality", "excess"),
    [
        ((), None, 0.0),
        ((0.0,), None, 0.0),
        ((0.25, 0.5), None, 0.5),
        ((0.25,), 0.0, 0.25),
        ((0.25,), 0.75, 0.75),
        ((None,), 0.75, math.inf),
    ],
)
def test_experiment_is_as_far_as_its_worst(
    constraints: tuple[float | None, ...], quality: float | None, excess: float
) -> None:
    checks = tuple(ConstraintCheck(constraint="ttft:p99<1s", excess=each) for each in constraints)
    answers = None if quality is None else QualityVerdict(baseline=1, excess=quality)

    assert excess_of(SloVerdict(constraints=checks, quality=answers)) == excess
    assert excess_of(None) == 0.0
