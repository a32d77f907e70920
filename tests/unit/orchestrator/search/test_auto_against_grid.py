"""A staged search with all its checks against the grid of the same space, on the response of
llama.cpp on two cores: threads decide most, then the batch, slots next to nothing.
"""

import random
from uuid import UUID

import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.task_file import StopReason
from schemas.task.trust import RunInfo
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.search.history import RunRecord, trials_of
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.search import Search, Waiting
from services.orchestrator.domain.search.trust import next_checks, verdict
from shared.benchmarks.verdicts.ranking import Scored
from tests.support.worlds.orchestrator_records import make_file

PARAMETERS = {"threads": [1, 2], "parallel": [1, 2, 4, 8], "batch-size": [8, 32, 128, 512]}
SIZE = 2 * 4 * 4
OBJECTIVE = Objective.MAXIMIZE_THROUGHPUT
NOISE = 0.05  # of a run of a few seconds there


def tokens_per_s(point: Point) -> float:
    at = point.parameters
    by_batch = {8: 0.65, 32: 0.8, 128: 0.95, 512: 1.0}[at["batch-size"]]
    by_slots = {1: 0.97, 2: 0.96, 4: 0.95, 8: 1.0}[at["parallel"]]
    return {1: 250.0, 2: 400.0}[at["threads"]] * by_batch * by_slots


def measured(ordinal: int, point: Point, drawn: random.Random, run: RunInfo) -> RunRecord:
    score = tokens_per_s(point) * (1 + drawn.gauss(0, NOISE))
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters=point.show(),
        scored=Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score),
        run=run,
    )


def searched(search: Search, seed: int) -> tuple[list[RunRecord], list[Point]]:
    """Every run in turn, and the configuration of each."""
    drawn = random.Random(seed)
    past: list[RunRecord] = []
    points: list[Point] = []
    while True:
        found = propose(search, trials_of((OBJECTIVE,), search.space, past), lambda _: True)
        assert not isinstance(found, Waiting)
        if isinstance(found, StopReason):
            break
        points.append(found.point)
        past.append(measured(found.ordinal, found.point, drawn, RunInfo()))
    while checks := next_checks(OBJECTIVE, past, 1):
        for check in checks:
            run = RunInfo(role=check.role, repeats=check.repeats, seed=check.seed)
            points.append(points[check.repeats - 1])
            past.append(measured(len(past) + 1, points[-1], drawn, run))
    return past, points


@pytest.mark.parametrize("seed", range(6))
def test_auto_matches_grid_within_noise_for_less(seed: int) -> None:
    settings = {"strategy": "auto", "objective": OBJECTIVE, "seed": seed}
    search = make_search(make_file(parameters=PARAMETERS, optimization=settings))
    assert search is not None

    past, points = searched(search, seed)

    found = verdict(OBJECTIVE, past)
    best = max(tokens_per_s(search.space.point(place)) for place in search.space.places())
    assert found.winner is not None
    assert found.noise_floor_percent is not None
    behind = 1 - tokens_per_s(points[found.winner - 1]) / best
    assert 100 * behind <= found.noise_floor_percent
    assert found.replays > 0
    # Every run takes as long as any other on the same device.
    assert len(past) < SIZE
