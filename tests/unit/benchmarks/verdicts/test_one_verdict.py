"""Ranking, best, sentence and report come from one verdict, whatever was measured and disturbed."""

from itertools import permutations
from typing import Any
from uuid import UUID

import hypothesis as hyp
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.gateway.views import ExperimentDetail, MeasuredMetrics
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.task.objectives import Objective
from schemas.task.trust import RunInfo, RunRole, RunSetting, ScoreError
from services.cli.display.task_results import rank_experiments
from services.gateway.domain.task_report.report import task_report
from services.orchestrator.domain.search.history import RunRecord, with_settings_compared
from services.orchestrator.domain.search.repeated_runs import (
    configurations_of,
    is_better,
    noise_of,
)
from services.orchestrator.domain.search.trust import verdict
from shared.benchmarks.verdicts.ranking import Scored
from shared.benchmarks.verdicts.trust import trust_text
from tests.support.worlds.gateway_views import make_experiment, make_task

OBJECTIVES = st.sampled_from([Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_THROUGHPUT])
SHARES = st.one_of(st.none(), st.floats(0, 0.5))
ERRORS = st.builds(ScoreError, better_share=SHARES, worse_share=SHARES, because=st.just(("late",)))
MARKS = st.fixed_dictionaries(
    {
        "contaminated": st.sampled_from([(), (), ("XID 79",)]),
        "error": st.one_of(st.none(), ERRORS),
        "setting": st.sampled_from([RunSetting(), *(RunSetting(gpu_models=(m,)) for m in "AB")]),
    }
)
SCORES = st.floats(80, 120)


@st.composite
def histories(drawn: st.DrawFn) -> list[RunRecord]:
    """Two to five configurations, then repeats of them."""
    count = drawn(st.integers(2, 5))
    repeats = drawn(st.lists(st.integers(1, count), max_size=8))
    return [
        _run(ordinal, repeated, drawn(SCORES), drawn(MARKS))
        for ordinal, repeated in enumerate([*[None] * count, *repeats], start=1)
    ]


def _run(ordinal: int, repeats: int | None, score: float, marks: dict[str, Any]) -> RunRecord:
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters={"number": repeats or ordinal},
        scored=Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score),
        run=RunInfo(role=RunRole.REPEAT if repeats else RunRole.SEARCH, repeats=repeats, **marks),
    )


def _decided(objective: Objective, past: list[RunRecord]) -> set[tuple[int, int]]:
    """Return the pairs of which the first is better, by more than chance and measuring explain."""
    configurations = configurations_of(past)
    noise = noise_of(configurations)
    return {
        (one.ordinal, other.ordinal)
        for one, other in permutations(configurations, 2)
        if noise is not None and is_better(objective, one, other, noise)
    }


@hyp.given(OBJECTIVES, histories())
def test_no_mark_turns_the_order_of_two_round(objective: Objective, past: list[RunRecord]) -> None:
    unmarked = [
        replace(run, run=RunInfo(role=run.run.role, repeats=run.run.repeats)) for run in past
    ]

    with_marks = _decided(objective, with_settings_compared(past))
    without = _decided(objective, unmarked)

    assert not {(other, one) for one, other in with_marks} & without


@hyp.given(OBJECTIVES, histories())
def test_bounds_of_runs_decide_nothing_that_was_open(
    objective: Objective, past: list[RunRecord]
) -> None:
    """Bounds alone, of any width: no run is left out for them, and none counts less."""
    bounded = [
        replace(run, run=replace(run.run, contaminated=(), setting=RunSetting(), error=error))
        for run in past
        if (error := run.run.error) is None or None not in (error.better_share, error.worse_share)
    ]
    unbounded = [replace(run, run=replace(run.run, error=None)) for run in bounded]

    assert _decided(objective, bounded) <= _decided(objective, unbounded)


@hyp.given(OBJECTIVES, histories())
def test_the_winner_is_best_in_all_that_is_said(
    objective: Objective, past: list[RunRecord]
) -> None:
    found = verdict(objective, with_settings_compared(past))
    experiments = [_detail(run) for run in past]
    task = make_task(
        objective=objective,
        state=TaskState.COMPLETED,
        trust=found,
        best_experiment_id=UUID(int=found.winner or 0),
    )

    report = task_report(task, experiments, None)
    in_table = [
        each for each in rank_experiments(experiments, objective, found) if each.run.repeats is None
    ]

    assert report.best is not None
    assert report.best.ordinal == found.winner == found.order[0].ordinal
    assert [each.ordinal for each in in_table] == [each.ordinal for each in found.order]
    assert [each.ordinal for each in (report.best, *report.others)] == [
        each.ordinal for each in in_table
    ]
    sentence = trust_text(found)
    assert f"experiment {found.winner} " in sentence
    assert ("by more than chance" in sentence) <= (not found.ties and not found.undecided)
    assert all((each.worse_percent or 0) >= 0 for each in report.others)


def _detail(run: RunRecord) -> ExperimentDetail:
    view = make_experiment(
        run.ordinal,
        state=ExperimentState.SUCCEEDED,
        experiment_id=UUID(int=run.ordinal),
        objective_score=run.scored.score if run.scored else None,
        metrics=MeasuredMetrics(),
        parameters=run.parameters,
        run=run.run,
    )
    return ExperimentDetail(**{name: getattr(view, name) for name in view.__struct_fields__})
