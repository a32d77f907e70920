"""Task files of the autotuner's release 0.2.1 mean the same today."""

from typing import Any

import msgspec
import pytest

from schemas.task.dataset import DatasetSpec
from schemas.task.task_file import DeploymentMode, TaskFile
from shared.task_files.form import form_of

URL = "https://example.com/api_logs.csv.gz"


def read(benchmark: dict[str, Any], **fields: Any) -> TaskFile:
    form = form_of(msgspec.json.encode(make(benchmark, **fields)))
    assert not form.mistakes
    return msgspec.json.decode(form.body, type=TaskFile)


def make(benchmark: dict[str, Any], **fields: Any) -> dict[str, Any]:
    model = {"id_or_path": "m"}
    return {
        "task_name": "t",
        "model": model,
        "base_runtime": "vllm",
        "benchmark": benchmark,
    } | fields


def test_local_is_what_process_is() -> None:
    assert read({}, deployment_mode="local").deployment_mode is DeploymentMode.PROCESS


@pytest.mark.parametrize(
    ("benchmark", "expected"),
    [
        ({"dataset_url": URL}, DatasetSpec(url=URL)),
        (
            {"dataset_url": URL, "dataset_deduplicate": True},
            DatasetSpec(url=URL, deduplicate=True),
        ),
        ({"dataset_url": None, "dataset_deduplicate": False}, None),
        ({"dataset_deduplicate": True}, None),
    ],
)
def test_address_of_a_dataset_becomes_a_dataset(
    benchmark: dict[str, Any], expected: DatasetSpec | None
) -> None:
    assert read(benchmark).benchmark.dataset == expected


def test_older_name_beside_todays_is_refused() -> None:
    benchmark = {"dataset_url": URL, "dataset": {"url": URL}}

    [mistake] = form_of(msgspec.json.encode(make(benchmark))).mistakes

    assert mistake.path == "$.benchmark.dataset_url"


@pytest.mark.parametrize("document", [[], 1, None, {"benchmark": 3}, {"benchmark": None}])
def test_other_documents_get_their_own_errors(document: Any) -> None:
    assert form_of(msgspec.json.encode(document)).mistakes
