"""A task's list of configurations: parameters that go together, one row each."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.presets import MergedPresets
from schemas.task.objectives import Objective
from schemas.task.task_file import PresetMerge, StopReason, TaskFile
from services.cli.commands.tasks.task_life import only
from services.orchestrator.domain.plan.expansion import find_axes
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.plan.quality import altering_axes
from services.orchestrator.domain.presets.merge import with_parameters_of
from services.orchestrator.domain.search.history import RunRecord, trials_of
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.search import Search, Waiting
from services.orchestrator.domain.search.strategies.auto import stages_of
from shared.benchmarks.verdicts.ranking import Scored
from shared.errors import MISTAKES, RefusedError
from tests.support.worlds.orchestrator_records import (
    OFFERS,
    expand,
    make_file,
    make_offer,
    make_plan,
)

ROWS: list[dict[str, Any]] = [
    {"tensor-parallel-size": 1, "max-num-seqs": 64},
    {"tensor-parallel-size": 2, "max-num-seqs": 128},
    {"tensor-parallel-size": 4, "max-num-seqs": 512},
]
FLAGS: dict[str, Any] = {"block-size": [16, 32]}


def shown(**overrides: Any) -> list[dict[str, Any]]:
    return [point.show() for point in expand(make_file(**overrides)).points]


def test_rows_are_configurations_as_they_stand() -> None:
    assert shown(configurations=ROWS) == ROWS


def test_rows_vary_slower_than_values() -> None:
    points = shown(configurations=ROWS[:2], parameters=FLAGS, parallel_config={"pp": [1, 2]})

    assert [(p["parallel_config.pp"], p["max-num-seqs"], p["block-size"]) for p in points] == [
        (pp, seqs, size) for pp in (1, 2) for seqs in (64, 128) for size in (16, 32)
    ]


def test_row_decides_the_gpus_of_its_experiment() -> None:
    task = make_file(
        base_runtime="vllm", deployment_mode="docker", configurations=ROWS, parameters=FLAGS
    )

    plan = make_plan(task, (make_offer(),))

    assert (plan.total, plan.missing) == (6, ())
    assert [each.request.gpus for each in plan.experiments] == [1, 1, 2, 2, 4, 4]
    assert plan.experiments[-1].engine.parameters == {**ROWS[2], "block-size": 32}


def test_max_iterations_cuts_rows_from_the_end() -> None:
    grid = expand(make_file(configurations=ROWS, optimization={"max_iterations": 2}))

    assert ([point.show() for point in grid.points], grid.total, grid.cut) == (ROWS[:2], 3, 1)


def test_rows_in_other_spellings_are_equal() -> None:
    rows = [{"tp": 1, "max-num-seqs": 8}, {"max_num_seqs": 16, "tensor-parallel-size": 2}]

    assert shown(configurations=rows) == [rows[0], {"tp": 2, "max-num-seqs": 16}]


@pytest.mark.parametrize(
    ("overrides", "path", "message"),
    [
        pytest.param(
            {"configurations": [{"a": 1, "b": 2}, {"a": 1, "c": 2}]},
            "$.configurations[1]",
            "expected the same parameters in every row of configurations, a, b: row 2 lacks b and"
            " adds c",
            id="rows of different parameters",
        ),
        pytest.param(
            {"configurations": [{"max-num-seqs": 1}], "parameters": {"max_num_seqs": [1, 2]}},
            "$.configurations[0].max-num-seqs",
            "expected 'max-num-seqs' either in configurations or in parameters ('max_num_seqs'),"
            " found it in both",
            id="in both places",
        ),
        pytest.param(
            {"configurations": [{"tp": 1, "tp-size": 1}]},
            "$.configurations[0].tp",
            "'tp' is given twice, in two spellings",
            id="twice in a row",
        ),
    ],
)
@pytest.mark.parametrize("strategy", ["grid_search", "bayesian"])
def test_bad_rows_are_refused_by_place(
    overrides: dict[str, Any], path: str, message: str, strategy: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        make_plan(make_file(**overrides, optimization={"strategy": strategy}), OFFERS)

    assert (refused.value.path, str(refused.value)) == (path, message)


@pytest.mark.parametrize("rows", [[], [{}], [{"a": [1, 2]}], {"a": 1}])
def test_incomplete_rows_and_lists_are_refused(rows: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.configurations"):
        make_file(configurations=rows)


@pytest.mark.parametrize("strategy", ["random", "bayesian", "auto", "successive_halving"])
def test_search_tries_rows_and_finds_the_best(strategy: str) -> None:
    task = make_file(
        configurations=ROWS,
        parameters=FLAGS,
        optimization={"strategy": strategy, "seed": 3, "max_iterations": 6},
    )
    search = make_search(task)
    assert search is not None

    past = searched(search)

    assert (search.space.size, len({str(each.parameters) for each in past})) == (6, 6)
    assert all(search.space.place(each.parameters) is not None for each in past)
    scores = {each.ordinal: each.scored.score or 0.0 for each in past if each.scored}
    best = min(scores, key=lambda ordinal: scores[ordinal])
    assert past[best - 1].parameters == {**ROWS[2], "block-size": 32}


def searched(search: Search) -> list[RunRecord]:
    """Return all experiments of a search in which the last configuration is best."""
    past: list[RunRecord] = []
    while True:
        trials = trials_of((Objective.MINIMIZE_LATENCY,), search.space, past)
        proposal = propose(search, trials, lambda _: True)
        assert not isinstance(proposal, Waiting)
        if isinstance(proposal, StopReason):
            return past
        parameters = proposal.point.show()
        score = 10 - parameters["tensor-parallel-size"] - parameters["block-size"] / 100
        number = proposal.ordinal
        scored = Scored(experiment_id=UUID(int=number), ordinal=number, score=score)
        state = ExperimentState.SUCCEEDED
        past.append(RunRecord(ordinal=number, state=state, parameters=parameters, scored=scored))


def test_auto_stages_rows_by_what_they_vary() -> None:
    settings = {"strategy": "auto"}
    of_layout = make_search(make_file(configurations=ROWS, optimization=settings))
    of_load = make_search(
        make_file(configurations=[{"max-num-seqs": n} for n in (1, 2)], optimization=settings)
    )

    searches = (of_layout, of_load)
    titles = [
        stage.title
        for search in searches
        if search is not None
        for stage in stages_of(search.space)
    ]
    assert titles == ["parallel layout", "load"]


def test_answers_are_compared_if_rows_may_change_them() -> None:
    rows = [{"dtype": "auto", "seed": 1, "quantization": "fp8"}]
    rows.append({"dtype": "float16", "seed": 2, "quantization": "fp8"})

    assert altering_axes(find_axes(make_file(configurations=rows))) == ["configurations.dtype"]


def test_a_preset_gives_way_to_what_rows_give() -> None:
    merged = MergedPresets(
        parameters={"max_num_seqs": (1,), "block-size": (16,)},
        engine=None,
        conflicts=(),
        presets=("p",),
        revisions=(1,),
        how=PresetMerge.LAST_WINS,
    )

    task, notes = with_parameters_of(make_file(configurations=ROWS), merged)

    assert task.parameters == {"block-size": (16,)}
    assert notes[-1] == (
        "configurations.max-num-seqs takes the place of 'max_num_seqs' of the presets"
    )


def test_experiment_of_a_row_is_run_again_alone() -> None:
    document = msgspec.to_builtins(make_file(configurations=ROWS))

    again = msgspec.convert(only(document, ROWS[1]), TaskFile)

    assert [point.show() for point in expand(again).points] == [ROWS[1]]


def test_stored_task_without_rows_is_unchanged() -> None:
    assert msgspec.json.decode(msgspec.json.encode(make_file())).keys() == {
        *("task_name", "deployment_mode", "model", "base_runtime"),
    }


def test_a_mistake_of_a_row_is_told_by_the_row() -> None:
    task = make_file(
        base_runtime="vllm",
        deployment_mode="docker",
        configurations=[{"max-num-seqs": 1, "dtyp": "a"}, {"max-num-seqs": "x", "dtyp": "b"}],
        parameters={"block-sise": [16]},
    )

    with pytest.raises(RefusedError) as refused:
        make_plan(task, (make_offer(),))

    assert [each["path"] for each in refused.value.details[MISTAKES]] == [
        *("$.configurations[0].dtyp", "$.parameters.block-sise"),
        "$.configurations[1].max-num-seqs",
    ]


def test_flags_are_checked_where_rows_are_no_list() -> None:
    task = make_file(
        base_runtime="vllm",
        deployment_mode="docker",
        configurations=[{"max-num-seqs": 1}, {"block-size": 16}],
        parameters={"dtyp": ["a"], "swap-space": {"type": "integer", "low": 1, "high": 8}},
    )

    with pytest.raises(RefusedError) as refused:
        make_plan(task, (make_offer(),))

    assert [each["path"] for each in refused.value.details[MISTAKES]] == [
        *("$.configurations[1]", "$.parameters.dtyp"),
    ]
