"""What experiments ask of each GPU's memory, and what is said of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.executor.model_shape import ModelShape
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.task_file import MemorySource, TaskFile
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.lifecycle.past_memory import with_memory
from services.orchestrator.domain.plan.memory_rule import (
    estimate_memory,
    fit_request,
    memory_terms,
    memory_warnings,
    tokens_of_request,
)
from services.orchestrator.domain.plan.plan import Plan
from services.scheduler.domain.estimate import estimate
from tests.support.worlds.orchestrator_records import OFFERS, make_experiment, make_file, make_plan

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_405B = "meta-llama/Llama-3.1-405B-Instruct"
BENCHMARK = {"traffic_scenarios": ["D(4000,96)"]}


def task(model: str, tp: int | list[int] = 1, **overrides: Any) -> TaskFile:
    return make_file(
        model={"id_or_path": model},
        parallel_config={"tp": tp},
        **{"benchmark": BENCHMARK, **overrides},
    )


def plan(model: str, tp: int | list[int] = 1, **overrides: Any) -> Plan:
    return make_plan(task(model, tp, **overrides), OFFERS)


def estimated_mb(model: str = "a-model", tp: int = 1, **flags: Any) -> int:
    point = Point(quant={}, parallel={"tp": tp}, parameters={})
    return estimate_memory(model, point, flags).memory_mb


def test_model_size_decides_the_memory() -> None:
    [small] = plan(LLAMA_8B).experiments
    [large] = plan(LLAMA_405B, 16).experiments

    assert small.memory_estimate is not None
    assert small.memory_estimate.source is MemorySource.MODEL_NAME
    assert small.request.min_memory_mb == small.memory_estimate.memory_mb == 17_819
    assert large.request.min_memory_mb == 50_482


def test_estimates_match_the_documented_table() -> None:
    for model, want in (("llama-3-70b", 20_000), ("llama-2-13b", 12_000), (LLAMA_405B, 8_000)):
        assert estimate({"model": {"id_or_path": model}}).min_memory_mb == want


def test_config_tells_the_parameters() -> None:
    shape = ModelShape(
        weights=8_030_261_248, active_weights=7_500_000_000, cached_values=65_536, layers=32
    )
    offer = RuntimeOffer(
        runtime=Runtime.PROCESS,
        engines=("simulated",),
        model_shapes={"llama": shape},
        model_precisions={"llama": ("fp8",)},
    )
    file = make_file(model={"id_or_path": "llama"}, benchmark=BENCHMARK)

    [planned] = make_plan(file, (Offer(executor_id="n", runtimes=(offer,)),)).experiments

    assert planned.memory_estimate is not None
    assert planned.memory_estimate.source is MemorySource.MODEL_CONFIG
    assert planned.memory_estimate.terms.startswith("8.03 B parameters x 1 bytes / tp 1 = 7,659")


def test_unknown_size_takes_the_default() -> None:
    found = make_plan(task("some-model", base_runtime="vllm", deployment_mode="docker"), OFFERS)

    [planned] = found.experiments
    assert planned.request.min_memory_mb == 8_000
    [note] = memory_warnings("some-model", found.experiments, 80_000)
    assert note == (
        "memory: nothing tells the size of 'some-model', so 8,000 MiB of each GPU are asked for;"
        " gpus.min_memory_mb sets another"
    )


@pytest.mark.parametrize(
    ("flags", "terms"),
    [
        ({"quantization": "fp8"}, "x 1 bytes / tp 1 ="),
        ({"quantization": "awq_marlin"}, "x 0.5 bytes / tp 1 ="),
        ({"dtype": "float32"}, "x 4 bytes / tp 1 ="),
        ({"tensor-parallel-size": 4, "pp": 2}, "/ (tp 4 x pp 2) ="),
        ({"tp": 1, "dp": 8, "enable-expert-parallel": True}, "/ (tp 1 x dp 8 (experts)) ="),
        ({"tp": 1, "dp": 8}, "/ tp 1 ="),
        ({"max-model-len": 32_768}, "of a sequence of 32,768 tokens 4,096 MiB"),
        ({"max-model-len": 32_768, "kv-cache-dtype": "fp8"}, "32,768 tokens 2,048 MiB"),
        ({"max-model-len": "auto"}, "of a sequence of 4,096 tokens"),
    ],
)
def test_flags_are_terms_of_the_rule(flags: dict[str, Any], terms: str) -> None:
    point = Point(quant={}, parallel={}, parameters=flags)

    assert terms in estimate_memory(LLAMA_8B, point, flags).terms


@given(
    st.tuples(st.integers(1, 400), st.integers(1, 400)).map(sorted),
    st.tuples(st.integers(1, 64), st.integers(1, 64)).map(sorted),
    st.tuples(st.integers(1, 200_000), st.integers(1, 200_000)).map(sorted),
)
def test_memory_grows_with_model_falls_with_tp(
    billions: list[int], tp: list[int], length: list[int]
) -> None:
    least_mb = estimated_mb(f"m-{billions[0]}b", tp[1], **{"max-model-len": length[0]})
    most_mb = estimated_mb(f"m-{billions[1]}b", tp[0], **{"max-model-len": length[1]})

    assert least_mb <= most_mb


def test_too_large_model_asks_for_the_largest_gpu() -> None:
    planned = plan(LLAMA_405B).experiments

    [asking] = [fit_request(each, 80_000) for each in planned]

    assert asking.request.min_memory_mb == 76_000
    [warning] = memory_warnings(LLAMA_405B, planned, 80_000)
    assert warning == (
        "memory: by a rule of thumb no configuration fits, as the largest GPU that the task may"
        " take has 80,000 MiB: 76,000 MiB are asked for; more tensor parallelism or a quantized"
        " model needs less"
    )


def test_memory_note_has_most_and_least() -> None:
    found = plan(LLAMA_8B, [1, 2]).experiments

    [note] = memory_terms(found)
    [warning] = memory_warnings(LLAMA_8B, found, 16_000)

    assert note.startswith(
        "memory of each GPU, a rule of thumb by the model's name: 8 B parameters"
    )
    assert note.endswith("= 17,819 MiB; the smallest 9,934 MiB; gpus.min_memory_mb sets another")
    assert warning.startswith("memory: by a rule of thumb not all of them fit, as the largest GPU")
    assert list(memory_warnings(LLAMA_8B, found, 80_000)) == []


@pytest.mark.parametrize(
    "gpus", [{"min_memory_mb": 500}, {"shares": 0.5}, {"mig_profile": "1g.10gb"}]
)
def test_memory_of_the_task_is_not_estimated(gpus: dict[str, Any]) -> None:
    [planned] = plan(LLAMA_405B, gpus=gpus).experiments

    assert planned.memory_estimate is None
    assert fit_request(planned, 1_000) == planned


def test_unlearned_memory_is_estimated() -> None:
    [planned] = plan(LLAMA_8B).experiments
    waiting = make_experiment(
        ExperimentState.PENDING,
        engine=planned.engine,
        request=replace(planned.request, min_memory_mb=3_000),  # learned before it ran out of it
        memory_estimate=planned.memory_estimate,
    )

    asking, _ = with_memory(waiting, None, [])
    smaller, _ = with_memory(waiting, None, [], 10_000)

    assert (asking.request.min_memory_mb, asking.memory_source) == (17_819, MemorySource.MODEL_NAME)
    assert smaller.request.min_memory_mb == 9_500


@pytest.mark.parametrize(
    ("benchmark", "want"),
    [
        ({}, 200),
        ({"traffic_scenarios": ["D(10,20)", "D(100,200)"]}, 300),
        ({"traffic_scenarios": ["D(10,20)"], "turns": 4, "tool": "builtin"}, 120),
        ({"traffic_scenarios": ["dataset"]}, 4096),
    ],
)
def test_sequence_is_as_long_as_the_longest_request(benchmark: dict[str, Any], want: int) -> None:
    assert tokens_of_request(make_file(benchmark=benchmark).benchmark) == want
