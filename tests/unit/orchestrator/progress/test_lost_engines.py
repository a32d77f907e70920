"""An engine that cannot be started costs one experiment, not the search."""

from typing import Any

import pytest

from schemas.executor.attempts import FailureKind
from schemas.orchestrator.experiments import ExperimentState
from services.orchestrator.domain.progress.lost_engines import find_lost_engines
from services.orchestrator.domain.search.history import RunRecord
from tests.support.worlds.orchestrator_records import make_file, make_task

ENGINES = [{"base_runtime": "vllm", "runtime_image_tag": ["v1", "v2"]}, {"base_runtime": "sglang"}]


def failed(kind: FailureKind, **parameters: Any) -> RunRecord:
    return RunRecord(
        ordinal=3,
        state=ExperimentState.FAILED,
        parameters={"base_runtime": "vllm", "runtime_image_tag": "v1", **parameters},
        failure=kind,
        reason="manifest unknown",
    )


@pytest.mark.parametrize(
    "kind",
    [FailureKind.IMAGE_MISSING, FailureKind.IMAGE_PULL_FAILED, FailureKind.ENGINE_MISSING],
)
def test_version_that_cannot_be_fetched_is_lost(kind: FailureKind) -> None:
    task = make_task(make_file(engines=ENGINES))

    lost = find_lost_engines(task, [failed(kind), failed(kind)])

    assert lost == {
        ("vllm", None, "v1"): "vLLM v1 is left out after experiment 3: manifest unknown"
    }


def test_what_its_flags_cause_loses_no_engine() -> None:
    task = make_task(make_file(engines=ENGINES))

    assert not find_lost_engines(task, [failed(FailureKind.GPU_OUT_OF_MEMORY)])


def test_task_with_one_engine_loses_none() -> None:
    assert not find_lost_engines(make_task(), [failed(FailureKind.IMAGE_MISSING)])
