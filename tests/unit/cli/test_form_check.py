"""A task file checked without a platform."""

import json
from typing import Any

import pytest

from services.cli.form_check import FormCheck, check_form
from services.cli.task_templates import task_template
from shared.engines.table import PROFILES
from shared.errors import MISTAKES, RefusedError
from shared.yaml_documents import json_of_yaml

TASK = {"task_name": "a", "base_runtime": "vllm", "model": "org/m"}


def checked(**changes: Any) -> FormCheck:
    return check_form(json.dumps({**TASK, **changes}).encode())


@pytest.mark.parametrize("engine", PROFILES)
def test_first_task_of_each_engine_is_valid(engine: str) -> None:
    found = check_form(json_of_yaml(task_template(engine, None, None, None).encode()))

    assert found.unknown == ()


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        (
            {"parameters": {"tensor-paralel-size": [1]}},
            "$.parameters.tensor-paralel-size",
            "did you mean 'tensor-parallel-size'?",
        ),
        (
            {"parameters": {"gpu-memory-utilization": [0.9, 95]}},
            "$.parameters.gpu-memory-utilization",
            "expected a number >= 0 and <= 1, got 95",
        ),
        (
            {"configurations": [{"max-num-seqs": 1}, {"max-num-seqs": "many"}]},
            "$.configurations[1].max-num-seqs",
            "expected an integer",
        ),
        ({"base_runtime": "vlllm"}, "$.base_runtime", "did you mean 'vllm'?"),
        ({"optimization": {"constraints": "ttft:p99<300"}}, "$.optimization.constraints", "13"),
        (
            {"configurations": [{"a": 1}, {"b": 1}]},
            "$.configurations[1]",
            "expected the same parameters in every row",
        ),
        ({"modl": "org/m"}, "$.modl", "did you mean 'model'?"),
    ],
)
def test_mistake_is_located_without_platform(
    changes: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        checked(**changes)

    assert refused.value.path == path
    assert message in refused.value.message


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(RefusedError) as refused:
        checked(
            base_runtime="vllm",
            parameters={"max-num-sequences": 1, "dtyp": "auto", "block-size": 16},
            optimization={"constraints": "nope"},
        )

    assert [each["path"] for each in refused.value.details[MISTAKES]] == [
        *("$.optimization.constraints", "$.parameters.max-num-sequences", "$.parameters.dtyp"),
    ]


def test_operator_additions_are_not_known_here() -> None:
    assert checked(parameters={"tp": 2, "my-plugin-knob": 1}).unknown == ("flag my-plugin-knob",)
    assert checked(base_runtime="tgi", parameters={"x": 1}).unknown == ("engine tgi",)
