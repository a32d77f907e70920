"""Which nodes make ready for what waits for GPUs."""

from typing import Any
from uuid import UUID

import pytest

from schemas.executor.attempts import EngineSpec, Runtime
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState, WaitingStart
from services.orchestrator.domain.lifecycle.waiting_starts import (
    FEW_NODES,
    MAX_STARTS,
    WaitingExperiment,
    starts_by_node,
)
from tests.support.worlds.orchestrator_records import make_attempt, make_experiment

NODES = ("n1", "n2", "n3")


def waits(
    number: int,
    *,
    allowed: tuple[str, ...] = NODES,
    expected: tuple[str, ...] = (),
    position: int | None = None,
    **engine: Any,  # any field of what it runs
) -> WaitingExperiment:
    wanted: dict[str, Any] = {"runtime": Runtime.DOCKER, "engine": "vllm", "model": "a/model"}
    experiment = make_experiment(
        ExperimentState.WAITING,
        experiment_id=UUID(int=number),
        engine=EngineSpec(**wanted | engine, parameters={"max-num-seqs": number}),
        request=GpuRequest(node_ids=allowed),
    )
    return WaitingExperiment(
        experiment=experiment,
        attempt=make_attempt(attempt_id=UUID(int=100 + number)),
        queue_position=position,
        expected_node_ids=expected,
    )


def numbers(starts: tuple[WaitingStart, ...]) -> list[int]:
    return [start.experiment_id.int for start in starts]


def test_expected_node_prepares_alone() -> None:
    told = starts_by_node([waits(1, expected=("n2",))], NODES)

    assert {node: numbers(starts) for node, starts in told.items()} == {
        "n1": [],
        "n2": [1],
        "n3": [],
    }
    assert told["n2"][0].attempt_id == UUID(int=101)
    assert told["n2"][0].engine == EngineSpec(
        runtime=Runtime.DOCKER, engine="vllm", model="a/model"
    )


def test_every_node_of_a_gang_makes_ready() -> None:
    told = starts_by_node([waits(1, expected=("n1", "n3"))], NODES)

    assert [node for node, starts in told.items() if starts] == ["n1", "n3"]


@pytest.mark.parametrize(("nodes", "told"), [(FEW_NODES, FEW_NODES), (FEW_NODES + 1, 0)])
def test_few_allowed_nodes_prepare_without_forecast(nodes: int, told: int) -> None:
    allowed = tuple(f"n{number}" for number in range(nodes))

    found = starts_by_node([waits(1, allowed=allowed)], allowed)

    assert sum(bool(starts) for starts in found.values()) == told


def test_a_node_that_is_away_is_told_nothing() -> None:
    assert starts_by_node([waits(1, expected=("n9",)), waits(2)], ["n1"]).keys() == {"n1"}


def test_same_image_and_model_is_prepared_once() -> None:
    queue = [waits(1, position=2), waits(2, position=1), waits(3, position=3, image_tag="v2")]

    assert numbers(starts_by_node(queue, ["n1"])["n1"]) == [2, 3]


def test_preparations_follow_the_queue_order() -> None:
    queue = [waits(1, model="a"), waits(2, model="b", position=7), waits(3, model="c", position=1)]

    assert numbers(starts_by_node(queue, ["n1"])["n1"]) == [3, 2, 1]


def test_only_the_next_few_are_told() -> None:
    queue = [waits(number, model=f"m{number}", position=number) for number in range(1, 9)]

    assert numbers(starts_by_node(queue, ["n1"])["n1"]) == list(range(1, MAX_STARTS + 1))


@pytest.mark.parametrize("runtime", [Runtime.OME, Runtime.KUBERNETES])
def test_cluster_nodes_prepare_nothing(runtime: Runtime) -> None:
    assert starts_by_node([waits(1, expected=("n1",), runtime=runtime)], ["n1"]) == {"n1": ()}
