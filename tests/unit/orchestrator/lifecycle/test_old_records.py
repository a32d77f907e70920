"""Rows of releases that stored less."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from schemas.executor.attempts import FailureKind
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.benchmark import BenchmarkTool
from shared.postgres.database import from_json, to_json
from tests.support.worlds.orchestrator_records import (
    make_attempt,
    make_experiment,
    make_granted,
    make_task,
)


@pytest.mark.parametrize(
    ("record", "added"),
    [
        pytest.param(make_task(), {"benchmark_tool": BenchmarkTool.BUILTIN}, id="task"),
        pytest.param(
            make_experiment(ExperimentState.PENDING),
            {"failed_attempts": {}, "avoided_node_ids": ()},
            id="experiment",
        ),
        pytest.param(
            make_granted(),
            {"benchmark_tool": None, "deadline_at": None, "overdue_at": None},
            id="attempt",
        ),
    ],
)
def test_older_row_is_read_with_defaults(record: Struct, added: dict[str, Any]) -> None:
    stored = msgspec.json.decode(to_json(record))
    old = {name: value for name, value in stored.items() if name not in added}

    found = from_json(msgspec.json.encode(old), type(record))

    assert found == msgspec.structs.replace(record, **added)


def test_failure_counts_and_deadlines_are_stored() -> None:
    experiment = make_experiment(
        ExperimentState.PENDING,
        failed_attempts={FailureKind.CUDA_ERROR: 2},
        avoided_node_ids=("n1",),
        interrupted_attempts=1,
    )

    found = from_json(to_json(experiment), type(experiment))

    assert found == experiment
    assert (found.failures_counted, found.attempts_made) == (2, 3)
    assert from_json(to_json(make_attempt()), type(make_attempt())) == make_attempt()
