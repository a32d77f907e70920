"""A task file with changes given on the command line."""

from typing import Any

import click
import pytest

from services.cli.commands.tasks.task_life import only, with_changes

TASK: dict[str, Any] = {
    "task_name": "a",
    "optimization": {"max_iterations": 4, "strategy": "random"},
    "parameters": {"threads": [1, 2]},
}


def test_fields_are_set_at_any_depth() -> None:
    found = with_changes(
        TASK,
        [
            *("optimization.max_iterations=null", "optimization.strategy=bayesian"),
            *("parameters.threads=[4,8]", "gpus.count=2"),
            "optimization.constraints=ttft:p99<=300ms",
        ],
    )

    assert found == {
        "task_name": "a",
        "optimization": {"strategy": "bayesian", "constraints": "ttft:p99<=300ms"},
        "parameters": {"threads": [4, 8]},
        "gpus": {"count": 2},
    }
    assert TASK["optimization"]["max_iterations"] == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("optimization", "expected PATH=VALUE"),
        ("=3", "expected PATH=VALUE"),
        ("a..b=3", "expected PATH=VALUE"),
        ("task_name.x=3", "task_name of task_name.x is no object"),
    ],
)
def test_what_is_no_change_of_a_field_is_refused(change: str, says: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        with_changes(TASK, [change])

    assert says in refused.value.message


def test_rerun_has_one_configuration() -> None:
    task = {
        "task_name": "a-task",
        "model": {"id_or_path": "m"},
        "parameters": {"mem-fraction-static": [0.8, 0.9]},
        "quant_config": {"presets": ["default", "dynamic-fp8"], "gemm_dtype": ["auto", "fp8"]},
        "parallel_config": {"tp": [1, 2]},
        "optimization": {
            "strategy": "bayesian",
            "seed": 3,
            "trust": True,
            "max_iterations": 9,
            "warm_start": True,
            "prior": "roofline",
            "objective": "minimize_ttft",
        },
    }
    shown = {
        "quant_config.preset": "dynamic-fp8",
        "quant_config.gemm_dtype": "auto",
        "parallel_config.tp": 2,
        "mem-fraction-static": 0.9,
    }

    assert only(task, shown) == {
        "task_name": "a-task",
        "model": {"id_or_path": "m"},
        "quant_config": {"preset": "dynamic-fp8", "gemm_dtype": "auto"},
        "parallel_config": {"tp": 2},
        "parameters": {"mem-fraction-static": [0.9]},
        "optimization": {"objective": "minimize_ttft"},
    }
    assert task["parallel_config"] == {"tp": [1, 2]}, "the task itself is as it was"
