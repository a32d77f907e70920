"""A search in stages: the parallel layout, then the load, then flags of the scheduler."""

from typing import Any
from uuid import UUID

import pytest

from schemas.executor.attempts import FailureKind
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.task_file import StopReason
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.search.history import RunRecord, trials_of
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.search import Proposal, Search, Waiting
from services.orchestrator.domain.search.strategies.auto import stages_of
from shared.benchmarks.verdicts.ranking import Scored
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_plan

# In no order of their influence.
FLAGS: dict[str, Any] = {
    "schedule-policy": ["lpm", "fcfs"],
    "max_running_requests": [16, 32, 64],
    "tp-size": [1, 2, 4],
}


def make(parameters: dict[str, Any] | None = None, **optimization: Any) -> Search:
    settings = {"strategy": "auto", "seed": 7, **optimization}
    search = make_search(make_file(parameters=parameters or FLAGS, optimization=settings))
    assert search is not None
    return search


def seconds(point: Point) -> float | None:
    """Best with two GPUs, 64 requests and first come, first served; four GPUs crash."""
    at = point.parameters
    if at["tp-size"] == 4:
        return None
    fcfs = 0.0 if at["schedule-policy"] == "fcfs" else 0.1
    return float(3 - at["tp-size"] + 16 / at["max_running_requests"] + fcfs)


def past_of(proposal: Proposal, score: float | None, *, is_open: bool = False) -> RunRecord:
    state = ExperimentState.SUCCEEDED if score is not None else ExperimentState.FAILED
    scored = None
    if score is not None and not is_open:
        scored = Scored(
            experiment_id=UUID(int=proposal.ordinal), ordinal=proposal.ordinal, score=score
        )
    return RunRecord(
        ordinal=proposal.ordinal,
        state=ExperimentState.RUNNING if is_open else state,
        parameters=proposal.point.show(),
        scored=scored,
        failure=FailureKind.GPU_OUT_OF_MEMORY if state is ExperimentState.FAILED else None,
    )


def following(search: Search, past: list[RunRecord]) -> Proposal | StopReason | Waiting:
    trials = trials_of((Objective.MINIMIZE_LATENCY,), search.space, past)
    return propose(search, trials, lambda _: True)


def run(search: Search, most: int = 100) -> list[Proposal]:
    proposals: list[Proposal] = []
    past: list[RunRecord] = []
    while len(proposals) < most and isinstance(found := following(search, past), Proposal):
        proposals.append(found)
        past.append(past_of(found, seconds(found.point)))
    return proposals


def test_stage_varies_around_the_last_best() -> None:
    proposals = run(make(), most=6)

    tried = [
        (p["tp-size"], p["max_running_requests"], p["schedule-policy"])
        for p in (each.point.parameters for each in proposals)
    ]
    assert tried == [
        (2, 32, "lpm"),
        (1, 32, "lpm"),
        (4, 32, "lpm"),
        # What was measured with the best layout is not measured again.
        (2, 16, "lpm"),
        (2, 64, "lpm"),
        (2, 64, "fcfs"),
    ]
    assert [each.reason for each in proposals[::2]] == [
        "stage 1 of 3, parallel layout",
        "stage 1 of 3, parallel layout",
        "stage 2 of 3, load",
    ]
    assert proposals[5].reason == "stage 3 of 3, scheduler flags"


def test_everything_varies_after_the_last_stage() -> None:
    search = make()

    proposals = run(search)

    assert len(proposals) == search.experiments == 9
    assert {each.reason.split(",")[0] for each in proposals[6:]} <= {
        *(f"the most promising by {measured} measured" for measured in range(6, 9)),
        "drawn at random",
    }
    assert len({str(each.point) for each in proposals}) == 9


@pytest.mark.parametrize(
    ("values", "most"),
    [
        pytest.param((2, 4), 8, id="few are all tried"),
        pytest.param((2, 8), 8, id="not fewer than eight of more"),
        pytest.param((2, 16), 16, id="half of a grid"),
        pytest.param((4, 64), 31, id="what the stages and eight more take"),
    ],
)
def test_auto_takes_at_most_half_of_a_grid(values: tuple[int, int], most: int) -> None:
    layouts, loads = values
    search = make({"tp": [1, 2, 4, 8][:layouts], "max-num-seqs": list(range(1, loads + 1))})

    assert search.experiments == most


def test_next_stage_waits_for_measurements() -> None:
    search = make()
    first = run(search, most=3)
    past = [past_of(each, seconds(each.point)) for each in first[:2]]

    running = following(search, [*past, past_of(first[2], 1.0, is_open=True)])
    parameters = first[2].point.show()
    cancelled = RunRecord(ordinal=3, state=ExperimentState.CANCELLED, parameters=parameters)
    after = following(search, [*past, cancelled])

    assert isinstance(running, Waiting)
    assert isinstance(after, Proposal)
    assert after.reason == "stage 2 of 3, load"


def test_large_stage_is_searched_in_part() -> None:
    parameters = {"max-num-seqs": {"type": "integer", "low": 1, "high": 256}, "tp": [1, 2]}

    search = make(parameters)

    assert [(each.size, each.experiments) for each in stages_of(search.space)] == [
        (2, 2),
        (256, 20),
    ]
    past: list[RunRecord] = []
    while len(past) < 21 and isinstance(found := following(search, past), Proposal):
        at = found.point.parameters
        past.append(past_of(found, abs(at["max-num-seqs"] - 200) + at["tp"]))
    late = [each.parameters for each in past[10:]]
    assert {each["tp"] for each in late} == {1}
    assert min(abs(each["max-num-seqs"] - 200) for each in late) < 20


@pytest.mark.parametrize(
    ("file", "titles"),
    [
        ({"parameters": {"who-knows": [1, 2]}}, ["scheduler flags"]),
        ({"parameters": {"threads": [1, 2], "parallel": [1, 2]}}, ["parallel layout", "load"]),
        ({"parallel_config": {"tp": [1, 2], "pp": [1, 2]}}, ["parallel layout"]),
        ({"quant_config": {"gemm_dtype": ["auto", "bfloat16"]}}, ["parallel layout"]),
        ({"parameters": {"slots": [1]}}, []),
    ],
)
def test_parameters_are_staged_by_influence(file: dict[str, Any], titles: list[str]) -> None:
    search = make_search(make_file(optimization={"strategy": "auto"}, **file))

    assert search is not None
    assert [stage.title for stage in stages_of(search.space)] == titles


def test_search_plan_samples_every_request() -> None:
    parameters = {"slots": [1, 2], "tp-size": [1, 2, 4]}
    plan = make_plan(make_file(parameters=parameters, optimization={"strategy": "auto"}), OFFERS)

    assert plan.experiments == ()
    assert [each.request.gpus for each in plan.samples] == [1, 2, 4]


def test_validate_announces_the_stages() -> None:
    plan = make_plan(
        make_file(
            parameters={"slots": [1, 2], "tp-size": [1, 2, 4]}, optimization={"strategy": "auto"}
        ),
        OFFERS,
    )

    (note,) = [note for note in plan.notes if note.startswith("strategy")]
    assert note == (
        "strategy 'auto': at most 6 of 6 configurations, in stages that hold the best of the one "
        "before: parallel layout, 3 of 3 (tp-size); load, 2 of 2 (slots); then everything together"
    )
    assert plan.experiments_at_most == 6
