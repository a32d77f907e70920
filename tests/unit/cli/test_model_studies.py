"""A task on each GPU model by itself: what is handed in, and what the table says."""

from typing import Any

import msgspec
import pytest

from schemas.orchestrator.experiments import TaskState
from services.cli.failures import CommandFailed
from services.cli.model_studies import ModelStudy, documents_by_model, studies_table
from tests.support.worlds.gateway_views import make_experiment, make_task

FLEET = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")


def documents_of(task: dict[str, Any]) -> dict[str, dict[str, Any]]:
    documents = documents_by_model(msgspec.json.encode(task), FLEET)
    return {model: msgspec.json.decode(each) for model, each in documents.items()}


def test_without_models_each_fleet_model_has_task() -> None:
    found = documents_of({"task_name": "chat", "gpus": {"count": 2}})

    assert found == {
        "NVIDIA A100-SXM4-40GB": {
            "task_name": "chat-nvidia-a100-sxm4-40gb",
            "gpus": {"count": 2, "models": ["NVIDIA A100-SXM4-40GB"]},
        },
        "NVIDIA H100 80GB HBM3": {
            "task_name": "chat-nvidia-h100-80gb-hbm3",
            "gpus": {"count": 2, "models": ["NVIDIA H100 80GB HBM3"]},
        },
    }


def test_models_of_the_task_are_taken_one_by_one() -> None:
    found = documents_of({"task_name": "chat", "gpus": {"models": ["H100", "B200"]}})

    assert {model: each["gpus"]["models"] for model, each in found.items()} == {
        "H100": ["H100"],
        "B200": ["B200"],
    }


def test_model_excludes_longer_names() -> None:
    documents = documents_by_model(b'{"task_name": "chat"}', ("NVIDIA L4", "NVIDIA L40S"))
    found = {model: msgspec.json.decode(each)["gpus"] for model, each in documents.items()}

    assert found == {
        "NVIDIA L4": {
            "models": ["NVIDIA L4"],
            "require": [{"key": "gpu_model", "operator": "not_in", "values": ["NVIDIA L40S"]}],
        },
        "NVIDIA L40S": {"models": ["NVIDIA L40S"]},
    }


def test_a_long_name_is_cut_before_its_models() -> None:
    [found] = documents_of({"task_name": "t" * 128, "gpus": {"models": ["H100"]}}).values()

    assert found["task_name"] == "t" * 123 + "-h100"


def test_without_any_model_nothing_is_handed_in() -> None:
    with pytest.raises(CommandFailed, match="there are none"):
        documents_by_model(b'{"task_name": "chat"}', ())


def test_each_model_shows_own_best() -> None:
    best = make_experiment(2, parameters={"max-num-seqs": 64}, objective_score=12.5)
    done = make_task(state=TaskState.COMPLETED, best_experiment_id=best.experiment_id)
    failed = make_task(state=TaskState.FAILED)

    table = studies_table(
        [ModelStudy("H100", done, [make_experiment(1), best]), ModelStudy("A100", failed, [])]
    )

    assert "rank" not in table.headings
    assert [row[:5] for row in table.rows] == [
        ["H100", "completed", "2", "max-num-seqs=64", "12.5000"],
        ["A100", "failed", "0", "-", "-"],
    ]
