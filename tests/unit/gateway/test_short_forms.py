"""One value where a list of one is meant, and a model by its id alone."""

from typing import Any

import msgspec
import pytest

from schemas.task.task_file import TaskFile
from services.gateway.request_bodies import decode_task
from services.gateway.short_forms import written_out
from shared.errors import RefusedError

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

    assert written_out(body) == (body, frozenset())


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"\xff", b"[1]", b'{"gpus": {"power_limit_w": 1e999}}']
)
def test_what_is_no_task_stays_as_it_is(body: bytes) -> None:
    assert written_out(body) == (body, frozenset())


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


def test_values_of_any_number_are_written_out_together() -> None:
    lists = {f"list-{number}": [number] for number in range(30)}
    values = {f"a-{number}": number for number in range(34)}

    task = task_of(parameters={**lists, **values})

    assert task.parameters["a-33"] == (33,)
