"""Which attempts at running servers start, and on which GPUs their readings are looked for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas.executor.attempts import EngineSpec, Runtime
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.task.benchmark import BenchmarkTool
from schemas.task.endpoint import EndpointConfig, EngineEndpoint
from schemas.task.task_file import DeploymentMode, TaskFile
from schemas.telemetry.readings import GpuPod, GpuProcess, GpuReading
from services.orchestrator.domain.lifecycle import endpoints, waiting
from services.orchestrator.domain.lifecycle.endpoints import EndpointAttempt
from services.orchestrator.domain.records import Attempt, Experiment, Task
from shared.ids import new_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def open_attempt(
    url: str, executor_ids: tuple[str, ...] = ("n1", "n2"), **endpoint: Any
) -> EndpointAttempt:
    file = msgspec.convert(
        {
            "task_name": "measured",
            "model": {"id_or_path": "m"},
            "base_runtime": "openai",
            "endpoint": {"url": url, **endpoint},
        },
        TaskFile,
    )
    task = Task(
        task_id=new_id(),
        namespace="default",
        task_name="measured",
        state=TaskState.RUNNING,
        mode=DeploymentMode.ENDPOINT,
        file=file,
        created_at=NOW,
        benchmark_tool=BenchmarkTool.BUILTIN,
    )
    engine = EngineSpec(
        runtime=Runtime.ENDPOINT, engine="openai", model="m", endpoint=EngineEndpoint(url=url)
    )
    experiment = Experiment(
        experiment_id=new_id(),
        task_id=task.task_id,
        namespace="default",
        ordinal=1,
        state=ExperimentState.WAITING,
        parameters={},
        engine=engine,
        request=GpuRequest(),
        created_at=NOW,
    )
    attempt = Attempt(
        attempt_id=new_id(),
        experiment_id=experiment.experiment_id,
        task_id=task.task_id,
        attempt_number=1,
        reservation_id=new_id(),
        has_reservation=False,
        requested_at=NOW,
    )
    return EndpointAttempt(
        task=task, experiment=experiment, attempt=attempt, executor_ids=executor_ids
    )


def under_way(each: EndpointAttempt) -> EndpointAttempt:
    return replace(
        each,
        attempt=replace(each.attempt, executor_id="n1"),
        experiment=replace(each.experiment, state=ExperimentState.RUNNING),
    )


@pytest.mark.parametrize("second", ["http://GPU-01:8000/v1", "http://gpu-01.:8000"])
def test_one_server_is_measured_by_one_attempt_at_a_time(second: str) -> None:
    first, other = open_attempt("http://gpu-01:8000"), open_attempt("http://gpu-02:8000")

    steps = endpoints.choose_steps([first, open_attempt(second), other], NOW)

    assert [step.attempt for step in steps] == [first, other]
    assert endpoints.choose_steps([under_way(first), open_attempt(second)], NOW) == []


def test_the_servers_own_node_measures_where_it_can() -> None:
    here, there = open_attempt("http://a:1", node="n2"), open_attempt("http://b:1", node="n9")

    steps = endpoints.choose_steps([here, there], NOW)

    assert [step.executor_id for step in steps] == ["n2", "n1"]


def test_without_executors_it_waits_then_fails_in_words() -> None:
    attempt = open_attempt("http://a:1", executor_ids=())
    patience = timedelta(seconds=attempt.task.file.optimization.wait_timeout_seconds)

    assert endpoints.choose_steps([attempt], NOW) == []
    [step] = endpoints.choose_steps([attempt], NOW + patience)

    assert step.executor_id is None
    assert "no executor" in step.failed_because
    decision = waiting.fail(attempt.experiment, attempt.attempt, step.failed_because, NOW)
    assert decision is not None
    assert decision.experiment.state is ExperimentState.FAILED


def test_start_holds_no_lease_and_sends_no_reservation() -> None:
    each = open_attempt("http://a:1")

    decision = endpoints.start(each.task, each.experiment, each.attempt, "n1", (), NOW)

    assert decision is not None
    assert decision.attempt is not None
    assert decision.attempt.reservation_ended
    [start] = endpoints.commands_of(decision)
    assert (start.executor_id, start.devices) == ("n1", ())  # type: ignore[attr-defined]


def test_repeated_start_changes_nothing() -> None:
    each = open_attempt("http://a:1")
    decision = endpoints.start(each.task, each.experiment, each.attempt, "n1", (), NOW)
    assert decision is not None
    assert decision.attempt is not None

    assert endpoints.start(each.task, decision.experiment, decision.attempt, "n2", (), NOW) is None


GPUS = (
    GpuReading(
        uuid="GPU-0", index=0, name="H100", processes=(GpuProcess(pid=7, container_id="ab" * 32),)
    ),
    GpuReading(
        uuid="GPU-1",
        index=1,
        name="H100",
        pods=(GpuPod(namespace="x", pod="llama-0", container="c"),),
    ),
)


@pytest.mark.parametrize(
    ("which", "uuids"),
    [
        ({}, ["GPU-0", "GPU-1"]),
        ({"gpu_indices": [1]}, ["GPU-1"]),
        ({"pod": "llama-0"}, ["GPU-1"]),
        ({"container": "abababababab"}, ["GPU-0"]),
        ({"container": "cdcdcdcdcdcd"}, []),
    ],
)
def test_gpus_of_the_server_are_found_as_said(which: dict[str, Any], uuids: list[str]) -> None:
    config = msgspec.convert({"url": "http://a:1", "node": "n1", **which}, EndpointConfig)

    devices = endpoints.find_devices(config, GPUS, simulated=False)

    assert [device.uuid for device in devices] == uuids
    assert all(device.node_id == "n1" for device in devices)
