"""What past experiments say of the memory that one like them needs."""

from typing import Any

import pytest

from schemas.executor.attempts import EngineSpec, Runtime
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.task_file import GpuPreferences, MemorySource
from services.orchestrator.domain.lifecycle.past_memory import (
    PastRun,
    learn_memory,
    note_learned_memory,
    with_memory,
)
from tests.support.worlds.orchestrator_records import make_experiment


def run(peak_memory_mb: int, total_mb: int = 80_000, name: str = "H100", **given: Any) -> PastRun:
    return PastRun(
        parameters=given or {"slots": 4},
        gpu_model=name,
        memory_total_mb=total_mb,
        peak_memory_mb=peak_memory_mb,
    )


@pytest.mark.parametrize(
    ("past", "want"),
    [
        pytest.param([], None, id="no history"),
        pytest.param([run(30_000), run(31_000)], 34_100, id="the highest peak and a margin"),
        pytest.param([run(30_000, slots=8)], None, id="another parameter that matters"),
        pytest.param([run(30_000, slots=4, seed=7)], 33_000, id="one that does not"),
        pytest.param(
            [run(30_000), run(20_000, name="A100")], 22_000, id="the least that was enough"
        ),
        pytest.param([run(72_000)], None, id="it takes what there is"),
        pytest.param([run(30_000), run(22_000, 24_000, "L4")], None, id="it does so on one model"),
    ],
)
def test_memory_is_learned_from_experiments_alike(past: list[PastRun], want: int | None) -> None:
    learned = learn_memory(past, {"slots": 4, "seed": 1})

    assert (learned.min_memory_mb if learned else None) == want


def test_engine_with_a_memory_share_teaches_nothing() -> None:
    past = [run(32_000, gpu_memory_utilization=0.4)]

    assert learn_memory(past, {"gpu_memory_utilization": 0.4}) is None


def test_only_the_models_that_are_asked_for_count() -> None:
    past = [run(30_000, name="NVIDIA H100 80GB HBM3"), run(20_000, name="NVIDIA A100-SXM4-80GB")]

    learned = learn_memory(past, {"slots": 4}, ["h100"])

    assert learned is not None
    assert (learned.gpu_model, learned.runs) == ("NVIDIA H100 80GB HBM3", 1)


def test_note_states_learned_and_estimated_memory() -> None:
    found = [learn_memory([run(peak)], {"slots": 4}) for peak in (10_000, 20_000)]

    assert note_learned_memory([each for each in found if each is not None], 12_000) == (
        "11000 to 22000 MB of each GPU are asked for, as past experiments like 2 of these had at"
        " most 20000 MB of H100 in use; estimated it would be 12000 MB"
    )


def test_memory_of_the_task_goes_first() -> None:
    waiting = make_experiment(
        ExperimentState.PENDING,
        engine=EngineSpec(
            runtime=Runtime.PROCESS, engine="x", model="llama-7b", parameters={"slots": 4}
        ),
        request=GpuRequest(min_memory_mb=500),
    )
    given = GpuPreferences(min_memory_mb=500)

    by_task, _ = with_memory(waiting, given, [run(10_000)])
    by_history, _ = with_memory(waiting, None, [run(10_000)])
    by_name, _ = with_memory(by_history, None, [])

    assert [
        (each.request.min_memory_mb, each.memory_source) for each in (by_task, by_history, by_name)
    ] == [
        (500, MemorySource.TASK),
        (11_000, MemorySource.HISTORY),
        (12_000, MemorySource.MODEL_NAME),
    ]
