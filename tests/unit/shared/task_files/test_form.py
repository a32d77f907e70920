"""A task file with its short forms, and with all of its mistakes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.task.task_file import TaskFile
from services.gateway.request_bodies import decode_task
from shared.errors import MAX_MISTAKES, MISTAKES, RefusedError, together
from shared.task_files.form import Form, form_of
from shared.yaml_documents import json_of_yaml
from tests.support.paths import ROOT

TASK = {"task_name": "a", "base_runtime": "vllm", "model": {"id_or_path": "org/m"}}


def task_of(**changes: Any) -> TaskFile:
    return decode_task(msgspec.json.encode({**TASK, **changes}))


def test_a_value_stands_for_a_list_of_one() -> None:
    task = task_of(
        model="org/m",
        parameters={"max-num-seqs": 64, "kv-cache-dtype": "fp8", "a": True, "b": [1, 2]},
        benchmark={"num_concurrency": 8, "traffic_scenarios": "D(100,100)"},
        optimization={"objectives": "minimize_ttft"},
        gpus={"models": "H100"},
    )

    assert task.model.id_or_path == "org/m"
    assert task.parameters == {
        "max-num-seqs": (64,),
        "kv-cache-dtype": ("fp8",),
        "a": (True,),
        "b": (1, 2),
    }
    assert task.benchmark.num_concurrency == (8,)
    assert task.benchmark.traffic_scenarios == ("D(100,100)",)
    assert task.gpus is not None
    assert task.gpus.models == ("H100",)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nothing short"),
        pytest.param({"modl": 1}, id="a misspelt field"),
        pytest.param({"optimization": {"max_parallel": "2"}}, id="a text for a number"),
        pytest.param({"optimization": 7}, id="a number for a block"),
        pytest.param({"model": 7}, id="a number for a model"),
    ],
)
def test_what_is_no_short_form_stays_as_it_is(changes: dict[str, Any]) -> None:
    body = msgspec.json.encode({**TASK, **changes})

    assert form_of(body).body == body


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"\xff", b"[1]", b'{"gpus": {"power_limit_w": 1e999}}']
)
def test_what_is_no_task_stays_as_it_is(body: bytes) -> None:
    assert form_of(body).body == body


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        pytest.param({"model": "org/m", "presets": [5]}, "$.presets[0]", id="elsewhere"),
        pytest.param(
            {"benchmark": {"num_concurrency": "8"}}, "$.benchmark.num_concurrency", id="in one"
        ),
        pytest.param({"parameters": {"a": 1, "b": [{}]}}, "$.parameters.b[0]", id="beside one"),
    ],
)
def test_a_mistake_is_told_where_it_was_written(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        task_of(**changes)

    assert refusal.value.path == path


def test_many_values_are_written_together() -> None:
    lists = {f"list-{number}": [number] for number in range(30)}
    values = {f"a-{number}": number for number in range(34)}

    task = task_of(parameters={**lists, **values})

    assert task.parameters["a-33"] == (33,)


def mistakes(**changes: Any) -> dict[str | None, str]:
    form = form_of(msgspec.json.encode({**TASK, **changes}))
    return {each.path: each.message for each in form.mistakes}


def test_all_mistakes_are_told_at_once() -> None:
    found = mistakes(
        parameterz={},
        parameters={"a b": [1], "x": [{}], "y": []},
        optimization={"strategi": "auto", "objective": "minimize_latncy", "max_parallel": "2"},
        configurations=[{"a": [1]}, {}],
        benchmark={"num_concurrency": [0, "8"]},
    )

    assert found["$.parameterz"] == (
        "Object contains unknown field `parameterz`; did you mean 'parameters'?"
    )
    assert found["$.optimization.strategi"].endswith("did you mean 'strategy'?")
    assert found["$.optimization.objective"].endswith("did you mean 'minimize_latency'?")
    assert found["$.parameters"].endswith("as a key, got 'a b'")
    assert found.keys() == {
        *("$.parameterz", "$.parameters", "$.parameters.x[0]", "$.parameters.y"),
        *("$.optimization.strategi", "$.optimization.objective", "$.optimization.max_parallel"),
        *("$.configurations[0].a", "$.configurations[1]"),
        *("$.benchmark.num_concurrency[0]", "$.benchmark.num_concurrency[1]"),
    }


def test_missing_and_unknown_are_told_together() -> None:
    found = {each.path for each in form_of(b'{"model": {"id": "m"}, "task_name": "a"}').mistakes}

    assert found == {"$.model.id", "$.model.id_or_path", "$.base_runtime"}


def test_mistake_of_several_fields_has_a_place() -> None:
    twice = {"objectives": ["minimize_ttft", "minimize_ttft"]}

    assert mistakes(optimization=twice) == {"$.optimization": "expected each of `objectives` once"}
    assert list(mistakes(parameters={f"p{n}": [1] for n in range(65)})) == ["$.parameters"]


def test_refusal_lists_all_mistakes() -> None:
    with pytest.raises(RefusedError) as refused:
        task_of(modl=1, presets=5, parameters={"a": {}})

    assert refused.value.path == "$.modl"
    assert [each["path"] for each in refused.value.details[MISTAKES]] == [
        *("$.modl", "$.presets", "$.parameters.a.type"),
    ]


def test_one_mistake_needs_no_list_and_many_are_cut() -> None:
    many = form_of(msgspec.json.encode({**TASK, **{f"x{n}": 1 for n in range(100)}})).mistakes

    assert together(many[:1]).details == {}
    assert together([many[0], many[0]]).details == {}
    assert len(together(many).details[MISTAKES]) == len(many) == MAX_MISTAKES


@pytest.mark.parametrize(
    "path", sorted((ROOT / "schemas" / "examples").glob("*.yaml")), ids=lambda path: path.name
)
def test_an_example_has_no_mistake(path: Path) -> None:
    body = json_of_yaml(path.read_bytes())

    assert form_of(body) == Form(body)


def test_namespace_in_file_is_told_where_to_put_it() -> None:
    [message] = mistakes(namespace="team-a").values()

    assert message.startswith(
        "Object contains unknown field `namespace`: it is no part of the file"
    )
    assert "`submit` and `run` take --namespace" in message


def test_wrong_endpoint_is_explained_any_number_of_times() -> None:
    wrong = {"deployment_mode": "endpoint", "endpoint": {"url": 7, "api_key": 7}}
    code = (
        "from shared.task_files.form import form_of\n"
        f"for _ in range(500): mistakes = form_of({json.dumps(wrong).encode()!r}).mistakes\n"
        "print([mistake.path for mistake in mistakes])"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert ended.returncode == 0, "msgspec has ended the process"
    assert "$.endpoint.api_key" in ended.stdout
