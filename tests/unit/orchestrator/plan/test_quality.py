"""Which tasks have their experiments' answers compared."""

from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.domain.plan.benchmark_plan import benchmark_spec
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_plan


@pytest.mark.parametrize(
    ("name", "is_probed"),
    [
        *[
            (name, True)
            for name in ("quantization", "kv_cache_dtype", "dtype", "attention-backend")
        ],
        *[(name, True) for name in ("speculative-num-steps", "speculative-config", "moe-backend")],
        *[(name, True) for name in ("cache-type-k", "flash-attn", "draft-max", "spec-draft-n-max")],
        *[(name, True) for name in ("decode-attention-backend", "fp8-gemm-backend")],
        *[(name, False) for name in ("slots", "max-num-seqs", "block-size", "schedule-policy")],
        *[(name, False) for name in ("kv-cache-memory-bytes", "chunked-prefill-size")],
    ],
)
def test_altering_parameters_have_answers_compared(name: str, is_probed: bool) -> None:
    task = make_file(parameters={name: ["a", "b"]})

    assert (benchmark_spec(task, BenchmarkTool.BUILTIN).quality is not None) is is_probed
    assert (
        benchmark_spec(make_file(parameters={name: ["a"]}), BenchmarkTool.BUILTIN).quality is None
    )


@pytest.mark.parametrize(
    ("fields", "is_probed"),
    [
        ({"quant_config": {"kvcache_dtype": ["bfloat16", "fp8"]}}, True),
        ({"quant_config": {"kvcache_dtype": "fp8"}}, False),
        ({"parallel_config": {"tp": [1, 2]}}, False),
        ({"benchmark": {"quality": {"prompts": 4}}}, True),
        ({"parameters": {"dtype": ["a", "b"]}, "benchmark": {"quality": {"prompts": 0}}}, False),
    ],
)
def test_a_task_may_say_itself_whether(fields: dict[str, Any], is_probed: bool) -> None:
    task = make_file(**fields)

    assert (benchmark_spec(task, BenchmarkTool.BUILTIN).quality is not None) is is_probed


def test_the_plan_says_what_is_compared_and_why() -> None:
    plan = make_plan(make_file(parameters={"answer-drift": [0.0, 0.5]}), OFFERS)

    assert any(note.startswith("quality: answer-drift may change answers") for note in plan.notes)
