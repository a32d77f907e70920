"""What an experiment requests, by what past experiments like it needed."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from schemas.executor.attempts import FailureKind
from schemas.gpus.gpu_request import GpuModel, GpuRequest
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.lifecycle.deadlines import PastHolds
from services.orchestrator.domain.lifecycle.past_memory import PastRun
from services.orchestrator.domain.progress.requests import (
    PastFacts,
    learns_memory,
    request_gpus,
)
from services.orchestrator.domain.records import Decision, Experiment, Task
from tests.support.worlds.orchestrator_records import (
    NOW,
    OFFERS,
    make_experiment,
    make_file,
    make_task,
)

PENDING = make_experiment(ExperimentState.PENDING, request=GpuRequest(min_memory_mb=9000))
PEAK = PastRun(
    parameters=PENDING.engine.parameters,
    gpu_model="H100",
    memory_total_mb=80_000,
    peak_memory_mb=1000,
)


def request(
    task: Task, experiment: Experiment = PENDING, facts: PastFacts | None = None
) -> Decision:
    ids = iter(UUID(int=number) for number in (11, 12))
    return request_gpus(
        task.file.gpus,
        task,
        experiment,
        facts or PastFacts(),
        Installation(OFFERS),
        timedelta(seconds=60),
        NOW,
        lambda: next(ids),
    )


def sent_request(task: Task, **fields: Any) -> GpuRequest:
    decision = request(task, **fields)
    assert decision.experiment.state is ExperimentState.WAITING
    return decision.experiment.request


def test_present_executors_with_the_tool_are_requested() -> None:
    able = make_task()
    unable = make_task(benchmark_tool=BenchmarkTool.GENAI_BENCH)
    known = replace(PENDING, request=GpuRequest(min_memory_mb=9000, node_ids=("n7",)))

    assert sent_request(able, experiment=known).node_ids == ("n1",)
    assert sent_request(unable, experiment=known).node_ids == ("n7",)


def test_attempt_and_reservation_get_their_own_ids() -> None:
    attempt = request(make_task()).attempt

    assert attempt is not None
    assert (attempt.attempt_id, attempt.reservation_id) == (UUID(int=11), UUID(int=12))


def test_learned_memory_is_requested() -> None:
    learned = sent_request(make_task(), facts=PastFacts(peaks=(PEAK,)))

    assert learned.min_memory_mb == 1100


def test_memory_is_learned_until_an_attempt_runs_out_of_it() -> None:
    failed = replace(PENDING, failed_attempts={FailureKind.GPU_OUT_OF_MEMORY: 1})
    stated = make_file(gpus={"min_memory_mb": 9000}).gpus

    assert learns_memory(None, PENDING)
    assert not learns_memory(None, failed)
    assert not learns_memory(stated, PENDING)


def test_past_holds_are_expected_up_to_the_bound() -> None:
    task = make_task(make_file(optimization={"timeout_per_iteration": 100}))
    holds = PastHolds(same_seconds=(10.0, 30.0, 20.0))

    expected = sent_request(task, facts=PastFacts(holds=holds))

    assert expected.expected_duration_seconds == 30.0
    assert sent_request(task).expected_duration_seconds == 160.0


def test_task_stays_on_its_gpu_model() -> None:
    model = GpuModel(name="H100", memory_total_mb=80_000)

    assert sent_request(make_task(gpu_model=model)).same_model == model
