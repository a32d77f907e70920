"""A task file with changes given on the command line."""

from typing import Any

import click
import pytest

from services.cli.commands.task_life import with_changes

TASK: dict[str, Any] = {
    "task_name": "a",
    "optimization": {"max_iterations": 4, "strategy": "random"},
    "parameters": {"threads": [1, 2]},
}


def test_fields_are_set_at_any_depth_and_null_removes_one() -> None:
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
