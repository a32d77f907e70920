"""Presets of `quant_config` and `parallel_config` as the flags of vLLM and SGLang."""

from typing import Any

import pytest

from services.orchestrator.domain.plan.plan import Plan
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import make_file, make_offer, make_plan

FP8_CACHE = {"kv-cache-dtype": "fp8_e5m2"}
EXPERTS = {"dtype": "auto", "moe-runner-backend": "flashinfer_mxfp4", "quantization": "w4afp8"}


def plan(engine: str, model: str = "a-model", **overrides: Any) -> Plan:
    file = make_file(
        deployment_mode="docker", base_runtime=engine, model={"id_or_path": model}, **overrides
    )
    return make_plan(file, (make_offer(),))


@pytest.mark.parametrize(
    ("preset", "vllm", "sglang"),
    [
        ("default", {}, {}),
        ("kv-cache-fp8", FP8_CACHE, FP8_CACHE),
        (
            "dynamic-fp8",
            {"quantization": "fp8", **FP8_CACHE},
            {"quantization": "fp8", **FP8_CACHE, "attention-backend": "flashinfer"},
        ),
        (
            "bf16-stable",
            {"dtype": "bfloat16", **FP8_CACHE},
            {"dtype": "bfloat16", **FP8_CACHE},
        ),
        (
            "aggressive-moe",
            {"dtype": "bfloat16", **FP8_CACHE},
            {**FP8_CACHE, "attention-backend": "flashinfer", **EXPERTS},
        ),
    ],
)
def test_quantization_preset_becomes_flags(
    preset: str, vllm: dict[str, Any], sglang: dict[str, Any]
) -> None:
    for engine, want in (("vllm", vllm), ("sglang", sglang)):
        planned = plan(engine, quant_config={"preset": preset})

        [experiment] = planned.experiments
        assert experiment.engine.parameters == want
        assert experiment.parameters == {"quant_config.preset": preset}
        assert planned.missing == ()


@pytest.mark.parametrize(
    ("preset", "gpus", "vllm", "sglang"),
    [
        ("single-gpu", 1, {}, {}),
        ("high-throughput", 8, {"data-parallel-size": 8}, {"dp-size": 8}),
        ("large-model-tp", 8, {"tensor-parallel-size": 8}, {"tp-size": 8}),
        (
            "large-model-tp-pp",
            16,
            {"tensor-parallel-size": 8, "pipeline-parallel-size": 2},
            {"tp-size": 8, "pp-size": 2},
        ),
        (
            "moe-optimized",
            16,
            {"tensor-parallel-size": 2, "data-parallel-size": 8, "enable-expert-parallel": True},
            {"tp-size": 2, "dp-size": 8, "moe-dense-tp-size": 2},
        ),
        (
            "long-context",
            4,
            {"tensor-parallel-size": 4, "decode-context-parallel-size": 4},
            None,
        ),
        (
            "balanced",
            8,
            {"tensor-parallel-size": 2, "data-parallel-size": 4},
            {"tp-size": 2, "dp-size": 4},
        ),
    ],
)
def test_parallel_preset_becomes_flags_and_gpus(
    preset: str, gpus: int, vllm: dict[str, Any], sglang: dict[str, Any] | None
) -> None:
    for engine, want in (("vllm", vllm), ("sglang", sglang)):
        planned = plan(engine, parallel_config={"preset": preset})

        [experiment] = planned.experiments
        if want is None:
            assert [each.path for each in planned.missing] == ["$.parallel_config.dcp"]
        else:
            assert (experiment.engine.parameters, experiment.request.gpus) == (want, gpus)
            assert planned.missing == ()


def test_several_presets_are_one_axis() -> None:
    planned = plan(
        "sglang",
        quant_config={"presets": ["default", "dynamic-fp8"]},
        parallel_config={"preset": "single-gpu", "presets": ["balanced"]},
        parameters={"mem-fraction-static": [0.8, 0.9]},
    )

    assert len(planned.experiments) == 8
    assert len({str(each.engine.parameters) for each in planned.experiments}) == 8
    assert [each.request.gpus for each in planned.experiments] == [1, 1, 8, 8] * 2


def test_fields_override_presets_parameters_both() -> None:
    planned = plan(
        "sglang",
        quant_config={"preset": "dynamic-fp8", "kvcache_dtype": "auto"},
        parallel_config={"preset": "balanced", "dp": 2},
        parameters={"tp-size": [4], "attention-backend": ["triton"]},
    )

    [experiment] = planned.experiments
    assert experiment.engine.parameters == {
        "quantization": "fp8",
        "dp-size": 2,
        "tp-size": 4,
        "attention-backend": "triton",
    }
    assert experiment.request.gpus == 8
    assert "parameters.tp-size takes the place of 'tp-size' of parallel_config" in planned.notes


def test_preset_part_without_a_flag_is_noted() -> None:
    planned = plan("vllm", quant_config={"preset": "aggressive-moe"})

    said = "quant_config.preset 'aggressive-moe' without moe_dtype: the engine has no flag for it"
    assert said in planned.notes


@pytest.mark.parametrize("block", ["quant_config", "parallel_config"])
def test_unknown_preset_lists_known_ones(block: str) -> None:
    unknown: dict[str, Any] = {block: {"preset": "fastest"}}

    with pytest.raises(RefusedError, match="'fastest'") as refused:
        plan("vllm", **unknown)

    assert refused.value.path == f"$.{block}.preset"
    assert "balanced" in refused.value.message or "kv-cache-fp8" in refused.value.message


@pytest.mark.parametrize(
    ("model", "is_quantized"),
    [
        ("org/Llama-3-8B-Instruct-AWQ", True),
        ("org/model-GPTQ-Int4", True),
        ("org/Llama-3_8B_FP8", True),
        ("org/model.Q4.gguf", True),
        ("org/Hawqins-7B", False),
        ("meta-llama/Llama-3.2-1B-Instruct", False),
    ],
)
def test_a_quantized_model_is_not_quantized_again(model: str, is_quantized: bool) -> None:
    planned = plan("vllm", model, quant_config={"preset": "dynamic-fp8"})

    [experiment] = planned.experiments
    want = FP8_CACHE if is_quantized else {"quantization": "fp8", **FP8_CACHE}
    assert experiment.engine.parameters == want
    assert any("no quantization fp8" in note for note in planned.notes) is is_quantized
