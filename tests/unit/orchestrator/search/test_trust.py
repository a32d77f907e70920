"""What is measured again before a winner is declared, and who wins."""

import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.benchmark import FailedLevel
from schemas.task.objectives import Objective
from schemas.task.trust import RunInfo, RunRole, RunSetting, ScoreError, TrustVerdict
from services.orchestrator.domain.search.history import RunRecord, with_settings_compared
from services.orchestrator.domain.search.trust import (
    BASELINE_RUNS,
    MAX_CHECKS,
    MIN_REPEATS,
    REPEATED_BEFORE_LASTING,
    REPLAYS,
    next_checks,
    verdict,
)
from shared.benchmarks.verdicts.ranking import Scored
from shared.benchmarks.verdicts.trust import trust_text

LATENCY, THROUGHPUT = Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_THROUGHPUT
REPEAT = RunRole.REPEAT
Truth = dict[str, float]


def run(ordinal: int, score: float | None, **overrides: Any) -> RunRecord:
    """A run; None: it failed."""
    excess, failed = overrides.pop("excess", 0.0), overrides.pop("failed_levels", ())
    about = {name: overrides.pop(name) for name in list(overrides) if name in _RUN_FIELDS}
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.FAILED if score is None else ExperimentState.SUCCEEDED,
        parameters=overrides.pop("parameters", {"n": ordinal}),
        scored=None
        if score is None
        else Scored(
            experiment_id=UUID(int=ordinal),
            ordinal=ordinal,
            score=score,
            excess=excess,
            failed_levels=failed,
        ),
        run=RunInfo(**about),
    )


_RUN_FIELDS = RunInfo.__struct_fields__


def checked(
    first: Sequence[RunRecord],
    measure: Callable[[RunRecord, int], float | None],
    *,
    objective: Objective = LATENCY,
    most: int = 1,
) -> tuple[list[RunRecord], TrustVerdict]:
    """The runs until nothing is to be added; `measure` has the first run and the new ordinal."""
    past = list(first)
    while checks := next_checks(objective, past, most):
        assert len(checks) <= most
        for check in checks:
            ordinal = len(past) + 1
            same = next(each for each in past if each.ordinal == check.repeats)
            about = {"role": check.role, "repeats": check.repeats, "seed": check.seed}
            score = measure(same, ordinal)
            past.append(run(ordinal, score, parameters=same.parameters, **about))
        assert len(past) < 100
    return past, verdict(objective, past)


def noisy(noise: float, seed: int = 1) -> Callable[[RunRecord, int], float]:
    drawn = random.Random(seed)

    def measure(first: RunRecord, _: int) -> float:
        return float(first.parameters["true"]) * (1 + drawn.gauss(0, noise))

    return measure


def tried(truths: Sequence[float], noise: float, seed: int = 0) -> list[RunRecord]:
    drawn = random.Random(seed)
    return [
        run(number, truth * (1 + drawn.gauss(0, noise)), parameters={"true": truth})
        for number, truth in enumerate(truths, start=1)
    ]


def runs_of(past: Sequence[RunRecord], ordinal: int, role: RunRole = RunRole.REPEAT) -> int:
    return sum(each.run.repeats == ordinal and each.run.role is role for each in past)


def test_clear_winner_costs_few_repeats() -> None:
    past, found = checked(tried([100, 60, 90, 95], 0.01), noisy(0.01))

    assert found.winner == 2
    assert (runs_of(past, 1), runs_of(past, 2)) == (BASELINE_RUNS - 1, 1)
    assert runs_of(past, 2, RunRole.REPLAY) == found.replays == REPLAYS
    assert sorted(each.run.seed for each in past)[-REPLAYS:] == [1, 2, 3]
    assert len(past) == 4 + 2 + 1 + 3
    assert found.noise_floor_percent is not None
    assert 0 < found.noise_floor_percent < 10
    assert (found.ties, found.improvement_percent) == ((), 0.0)
    assert found.worst_score == max(
        each.scored.score or 0 for each in past if each.run.role is RunRole.REPLAY and each.scored
    )


def test_close_leaders_are_measured_in_turn() -> None:
    past, found = checked(tried([100, 60, 60.5, 95], 0.02), noisy(0.02))

    racing = [e.run.repeats for e in past if e.run.role is RunRole.REPEAT and e.run.repeats != 1]
    assert len(racing) > 3
    for length in range(1, len(racing)):
        assert abs(racing[:length].count(2) - racing[:length].count(3)) <= 1
    assert found.winner in (2, 3)
    assert {each.ordinal for each in found.repeated} >= {1, 2, 3}


def test_fewest_changed_flags_win_within_noise() -> None:
    base = {"a": 1, "b": 1, "c": 1}
    first = [
        run(1, 100.0, parameters=base),
        run(2, 59.9, parameters={"a": 2, "b": 2, "c": 2}),
        run(3, 60.0, parameters={"a": 2, "b": 1, "c": 1}),
    ]
    drawn = random.Random(3)

    _, found = checked(
        first,
        lambda same, _: (
            (same.scored.score or 0) * (1 + drawn.gauss(0, 0.02)) if same.scored else None
        ),
    )

    assert found.winner == 3
    assert found.ties == (2,)
    assert found.improvement_percent is not None
    assert found.improvement_percent > 0


def test_equal_results_without_noise_are_ties() -> None:
    _, found = checked(
        [run(1, 100.0), run(2, 60.0), run(3, 60.0)],
        lambda same, _: same.scored.score if same.scored else None,
    )

    assert (found.winner, found.ties, found.noise_floor_percent) == (2, (3,), 0.0)


def test_the_most_is_won_where_more_is_better() -> None:
    _, found = checked(tried([100, 160, 90], 0.01), noisy(0.01), objective=THROUGHPUT, most=4)

    assert found.winner == 2
    [base] = [each for each in found.repeated if each.ordinal == 1]
    assert base.behind_percent == pytest.approx(100 * (1 - 100 / 160), abs=3)


def test_disturbed_run_is_repeated_once() -> None:
    first = tried([100, 80, 90], 0.01)
    disturbed = run(4, 40.0, parameters={"true": 120}, contaminated=("GPU 0: XID 79",))

    past, found = checked([*first, disturbed], noisy(0.01))

    assert runs_of(past, 4) == 1
    assert [each.ordinal for each in past if each.run.repeats == 4] == [5], "before all others"
    assert found.winner == 2, "not the one whose score was disturbed"
    assert [(each.ordinal, each.reason) for each in found.set_aside] == [(4, "GPU 0: XID 79")]


def test_run_disturbed_again_is_left_aside() -> None:
    hot = ("GPU 0: throttled by hw_thermal for 9 s",)
    past = [
        *tried([100, 80], 0.01),
        run(3, 40.0, contaminated=hot),
        run(4, 41.0, role=RunRole.REPEAT, repeats=3, contaminated=hot),
    ]

    assert all(check.repeats != 3 for check in next_checks(LATENCY, past, 9))
    assert verdict(LATENCY, past).winner == 2


@pytest.mark.parametrize("one_is_clean", [False, True])
def test_nothing_is_decided_if_all_are_disturbed(one_is_clean: bool) -> None:
    past = [
        run(number, 100.0 + number, contaminated=("another reservation had memory on it",))
        for number in range(1, 17)
    ]
    if one_is_clean:
        past[-1] = run(16, 90.0)

    added = 0
    while checks := next_checks(LATENCY, past, 1):
        [check] = checks
        about = {"role": check.role, "repeats": check.repeats, "contaminated": ("again",)}
        past.append(run(len(past) + 1, 100.0, **about))
        added += 1

    of_disturbed = [each for each in past[16:] if each.run.repeats != 16]
    assert len(of_disturbed) == REPEATED_BEFORE_LASTING
    assert added - REPEATED_BEFORE_LASTING <= BASELINE_RUNS + 1 + REPLAYS
    found = verdict(LATENCY, past)
    # A repeat of the first three measured 100 exactly.
    assert found.winner == (16 if one_is_clean else 1)
    assert {each.ordinal for each in found.undecided} == set(range(1, 17)) - {found.winner}
    assert trust_text(found).startswith(f"not decided: experiment {found.winner} measured best")


@pytest.mark.parametrize(("disturbed", "repeats"), [(0, 2), (2, 2), (3, 1), (4, 0), (5, 0)])
def test_always_disturbed_baseline_is_given_up(disturbed: int, repeats: int) -> None:
    past = [run(1, 100.0), run(2, 50.0)]
    past += [
        run(3 + n, 99.0, role=RunRole.REPEAT, repeats=1, contaminated=("throttled",))
        for n in range(disturbed)
    ]

    checks = next_checks(LATENCY, past, 9)

    assert [each.repeats for each in checks if each.role is RunRole.REPEAT] == [1] * repeats
    assert {each.seed for each in checks if each.role is RunRole.REPEAT} <= {0}


def spread_baseline() -> list[RunRecord]:
    """Of which one run says little: by 10 % equal ones may differ."""
    again = (run(90 + n, score, role=RunRole.REPEAT, repeats=1) for n, score in ((1, 95), (2, 105)))
    return [run(1, 100.0), *again]


def test_no_more_than_four_leaders_are_repeated() -> None:
    past = [*spread_baseline(), *(run(n, 89.0 + n) for n in range(2, 9))]

    assert {each.repeats for each in next_checks(LATENCY, past, 99)} == {2, 3, 4, 5}


@pytest.mark.parametrize(("disturbed", "is_repeated"), [(5, True), (6, False)])
def test_always_disturbed_leader_is_given_up(disturbed: int, is_repeated: bool) -> None:
    past = [*spread_baseline(), run(2, 90.0), run(3, 91.0), run(4, 92.0)]
    past += [
        run(10 + n, 91.0, role=RunRole.REPEAT, repeats=3, contaminated=("throttled",))
        for n in range(disturbed)
    ]

    assert (3 in {each.repeats for each in next_checks(LATENCY, past, 99)}) is is_repeated


def test_only_repeated_results_can_be_ties() -> None:
    past = [*spread_baseline(), run(2, 90.0), run(3, 90.5), run(4, 90.6)]
    past += [
        run(20 + first, score, role=RunRole.REPEAT, repeats=first)
        for first, score in ((2, 90.2), (3, 90.7))
    ]

    found = verdict(LATENCY, past)

    assert (found.winner, found.ties) == (2, (3,))


@pytest.mark.parametrize(
    "repeat",
    [
        pytest.param({"score": None}, id="crashes"),
        pytest.param({"score": 50.0, "excess": 0.3}, id="misses a constraint"),
        pytest.param(
            {
                "score": 50.0,
                "failed_levels": (
                    FailedLevel(
                        scenario="D(1,1)",
                        num_concurrency=8,
                        num_requests=9,
                        num_completed_requests=1,
                    ),
                ),
            },
            id="does not serve a load",
        ),
    ],
)
def test_what_once_fails_when_repeated_never_wins(repeat: dict[str, Any]) -> None:
    score = repeat.pop("score")
    past = [
        *tried([100, 50, 90], 0.001),
        run(4, score, role=RunRole.REPEAT, repeats=2, **repeat),
    ]

    assert verdict(LATENCY, past).winner == 3


@pytest.mark.parametrize(
    "past",
    [
        pytest.param([], id="nothing ran"),
        pytest.param([run(1, None), run(2, None)], id="all failed"),
        pytest.param([run(1, 5.0, excess=0.1)], id="none meets the constraints"),
    ],
)
def test_nothing_is_repeated_without_a_best(past: list[RunRecord]) -> None:
    assert next_checks(LATENCY, past, 4) == []
    assert verdict(LATENCY, past).winner is None


def test_leader_replaces_a_failed_baseline() -> None:
    past, found = checked([run(1, None), *tried([90, 60], 0.01)[1:]], noisy(0.01))

    assert runs_of(past, 1) == 0
    assert found.winner == 2
    assert found.noise_floor_percent is not None


@pytest.mark.parametrize("seed", range(5))
def test_repeats_are_bounded_among_equals(seed: int) -> None:
    past, found = checked(tried([100] * 12, 0.05, seed), noisy(0.05, seed), most=3)

    assert sum(each.run.role is RunRole.REPEAT for each in past) <= MIN_REPEATS + 2
    assert found.winner is not None


@pytest.mark.parametrize(("configurations", "repeats"), [(12, 10), (30, 15), (40, 20)])
def test_more_configurations_allow_more_repeats(configurations: int, repeats: int) -> None:
    past, _ = checked(tried([100] * configurations, 0.05, 1), noisy(0.05, 1))

    assert sum(each.run.role is RunRole.REPEAT for each in past) == repeats
    assert len(past) - configurations == repeats + MAX_CHECKS - MIN_REPEATS


def test_a_score_of_nothing_breaks_no_arithmetic() -> None:
    _, found = checked([run(1, 0.0), run(2, 0.0)], lambda *_: 0.0)

    assert found.winner == 1


def test_interim_verdict_says_why_it_is_incomplete() -> None:
    found = verdict(LATENCY, tried([100, 60], 0.01), "no GPU-hours left")

    assert (found.winner, found.incomplete_because) == (2, "no GPU-hours left")
    assert (found.noise_floor_percent, found.replays) == (None, 0)


def test_spread_is_the_standard_deviation() -> None:
    """Of 90 and 110: 14.1, which is 14.1 % of their mean."""
    past = [run(1, 90.0), run(2, 300.0), run(3, 110.0, role=RunRole.REPEAT, repeats=1)]

    found = verdict(LATENCY, past)

    (repeated,) = found.repeated
    assert (repeated.ordinal, repeated.runs, repeated.mean_score) == (1, 2, 100.0)
    assert repeated.spread_percent == pytest.approx(14.142, abs=0.001)
    # Of one pair alone Student's t is 6.31, of the difference of two runs.
    assert found.noise_floor_percent == pytest.approx(6.31 * 2**0.5 * 14.142, abs=0.01)


def test_the_same_history_gives_the_same_checks() -> None:
    past = tried([100, 60, 61], 0.02)

    assert next_checks(LATENCY, past, 5) == next_checks(LATENCY, list(past), 5)


OTHERS = [
    pytest.param({"image_digest": "sha256:b"}, {"image_digest": "sha256:a"}, id="image"),
    pytest.param(
        {"setting": RunSetting(gpu_models=("H100",), memory_total_mb=(80_000,))},
        {"setting": RunSetting(gpu_models=("A100",), memory_total_mb=(80_000,))},
        id="GPU model",
    ),
    pytest.param(
        {"setting": RunSetting(gpu_models=("A100",), memory_total_mb=(80_000,))},
        {"setting": RunSetting(gpu_models=("A100",), memory_total_mb=(40_000,))},
        id="GPU memory",
    ),
    pytest.param(
        {"setting": RunSetting(mig_profiles=("3g.40gb",))},
        {"setting": RunSetting(mig_profiles=("1g.10gb",))},
        id="MIG profile",
    ),
    pytest.param(
        {"setting": RunSetting(power_limits_w=(700,))},
        {"setting": RunSetting(power_limits_w=(500,))},
        id="power limit in W",
    ),
    pytest.param(
        {"setting": RunSetting(driver_versions=("580.1",))},
        {"setting": RunSetting(driver_versions=("570.2",))},
        id="driver",
    ),
]


@pytest.mark.parametrize(("usual", "other"), OTHERS)
def test_run_on_another_setting_is_never_better(
    usual: dict[str, Any], other: dict[str, Any]
) -> None:
    again = {"role": RunRole.REPEAT, "repeats": 1}
    past = with_settings_compared(
        [
            run(1, 100.0, **usual),
            run(2, 50.0, **other),
            run(3, 90.0, **usual),
            run(4, 100.1, **usual, **again),
        ]
    )

    found = verdict(LATENCY, past)

    assert [each.run.contaminated != () for each in past] == [False, True, False, False]
    assert found.winner == 3
    (undecided,) = found.undecided
    assert undecided.ordinal == 2
    assert undecided.undecided_because.startswith("it ran on ")


def test_an_unknown_setting_differs_from_nothing() -> None:
    past = [run(1, 100.0, image_digest="sha256:a"), run(2, 50.0)]

    assert with_settings_compared(past) == past


def test_searched_power_limit_is_compared() -> None:
    past = [
        run(
            limit, 1.0, parameters={"power_limit_w": limit},
            setting=RunSetting(power_limits_w=(limit,)),
        )
        for limit in (300, 400)
    ]  # fmt: skip

    assert with_settings_compared(past) == past


def test_explaining_client_decides_nothing() -> None:
    """0.10 s and 0.12 s: the client may have made a third of the second one's time."""
    late = ScoreError(better_share=1 / 3, because=("the load generator itself may ...",))
    past = [run(1, 0.10), run(2, 0.12, error=late), run(3, 0.1001, role=REPEAT, repeats=1)]

    found = verdict(LATENCY, past)

    assert (found.winner, found.ties) == (1, ())
    assert [each.ordinal for each in found.undecided] == [2]
    assert found.set_aside == ()


def test_innocent_client_is_no_doubt() -> None:
    late = ScoreError(better_share=0.05, because=("the load generator itself may ...",))
    past = [run(1, 0.10, error=late), run(2, 0.12, error=late)]
    past += [run(n, 0.1001, role=REPEAT, repeats=1, error=late) for n in (3, 4)]

    found = verdict(LATENCY, past)

    assert (found.winner, found.ties, found.undecided) == (1, (), ())
    assert [each.ordinal for each in found.order] == [1, 2]


@pytest.mark.parametrize(
    ("error", "winner", "is_decided"),
    [
        pytest.param(ScoreError(better_share=None, because=("throttled",)), 1, True, id="leads"),
        pytest.param(ScoreError(worse_share=None, because=("cache",)), 2, False, id="flattered"),
    ],
)
def test_one_sided_error_leaves_the_other_decided(
    error: ScoreError, winner: int, is_decided: bool
) -> None:
    past = [run(1, 0.10, error=error), run(2, 0.12)]
    past += [run(3, 0.1001, role=REPEAT, repeats=1, error=error)]
    past += [run(4, 0.1201, role=REPEAT, repeats=2)]

    found = verdict(LATENCY, past)

    assert found.winner == winner
    assert (found.undecided == ()) is is_decided


def test_constraint_missed_by_client_is_undecided() -> None:
    late = ScoreError(better_share=0.2, because=("late",), may_meet=True)
    past = [run(1, 0.10, error=late, excess=0.04), run(2, 0.12), run(3, 0.13)]
    past += [run(4, 0.1201, role=REPEAT, repeats=2)]

    found = verdict(LATENCY, past)

    assert found.winner == 2
    assert [each.ordinal for each in found.undecided] == [1]
    assert "it may meet what it missed" in found.undecided[0].undecided_because


def test_better_disturbed_run_is_undecided() -> None:
    """By its clean run the first is slower than the second, by both of its runs it is faster."""
    past = [
        run(1, 10.0, contaminated=("XID 31",)),
        run(2, 80.0),
        run(3, 100.0, role=REPEAT, repeats=1),
        run(4, 80.1, role=REPEAT, repeats=2),
    ]

    found = verdict(LATENCY, past)

    assert found.winner == 2
    assert [each.undecided_because for each in found.undecided] == [
        "its disturbed runs were the better ones"
    ]
