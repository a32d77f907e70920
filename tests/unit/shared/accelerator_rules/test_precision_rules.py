"""Which GPU computes in which number format: by the accelerator guide, and by the hardware."""

import json
from typing import Any

import pytest

from schemas.gpus.checks import PrecisionCheck, PrecisionRules, Verdict
from shared.accelerator_rules.checks import answer_precision
from shared.accelerator_rules.compute_capability import (
    Capability,
    capability,
    capability_by_name,
    has_capability,
)
from shared.accelerator_rules.precision import (
    PRECISIONS,
    check_precision,
    demand_of,
    precision_named,
    precisions_of_model,
)
from shared.errors import RefusedError

HARDWARE, DOCUMENTED = PrecisionRules
SUPPORTED, _, CASE_BY_CASE, BLOCKED = Verdict


@pytest.mark.parametrize(
    ("name", "found", "hardware", "documented"),
    [
        # Volta 7.0-7.2: FP16 tensor cores. Turing 7.5: FP16, INT8.
        ("float16", (7, 0), SUPPORTED, SUPPORTED),
        ("half", (6, 1), CASE_BY_CASE, BLOCKED),
        ("float16", (5, 2), BLOCKED, BLOCKED),
        ("int8", (7, 5), SUPPORTED, SUPPORTED),
        ("int8", (7, 2), SUPPORTED, BLOCKED),
        ("int8", (7, 0), CASE_BY_CASE, BLOCKED),
        ("int8", (6, 0), BLOCKED, BLOCKED),
        # Ampere 8.0-8.9: bfloat16, TF32, and by the guide FP8.
        ("bfloat16", (7, 0), BLOCKED, BLOCKED),
        ("bfloat16", (7, 5), BLOCKED, BLOCKED),
        ("bfloat16", (8, 0), SUPPORTED, SUPPORTED),
        ("bfloat16", (12, 0), SUPPORTED, SUPPORTED),
        ("tf32", (7, 5), BLOCKED, BLOCKED),
        ("tf32", (8, 0), SUPPORTED, SUPPORTED),
        ("fp8", (7, 5), BLOCKED, BLOCKED),
        ("fp8", (8, 0), CASE_BY_CASE, SUPPORTED),
        ("fp8", (8, 6), CASE_BY_CASE, SUPPORTED),
        ("fp8", (8, 9), SUPPORTED, SUPPORTED),
        # Hopper 9.0+: by the guide FP4, which came with Blackwell.
        ("nvfp4", (7, 5), BLOCKED, BLOCKED),
        ("nvfp4", (8, 0), CASE_BY_CASE, BLOCKED),
        ("nvfp4", (9, 0), CASE_BY_CASE, SUPPORTED),
        ("nvfp4", (10, 0), SUPPORTED, SUPPORTED),
        ("awq", (7, 0), BLOCKED, BLOCKED),
        ("awq", (7, 5), SUPPORTED, SUPPORTED),
        ("gptq_marlin", (7, 5), BLOCKED, BLOCKED),
        ("float32", (3, 7), SUPPORTED, SUPPORTED),
        # SGLang's W4AFp8Config and vLLM's: Hopper, whose kernels they are.
        ("w4afp8", (8, 0), BLOCKED, BLOCKED),
        ("w4afp8", (8, 9), BLOCKED, BLOCKED),
        ("w4afp8", (9, 0), SUPPORTED, SUPPORTED),
    ],
)
def test_the_verdict_at_every_boundary(
    name: str, found: Capability, hardware: Verdict, documented: Verdict
) -> None:
    precision = precision_named(name)

    by = {rules: check_precision(found, precision, rules=rules) for rules in PrecisionRules}

    assert (by[HARDWARE].verdict, by[DOCUMENTED].verdict) == (hardware, documented)
    assert all(bool(each.action) == (each.verdict is not SUPPORTED) for each in by.values())
    assert all(each.source for each in by.values())


def test_bfloat16_on_a_v100_says_what_to_set() -> None:
    finding = check_precision(capability_by_name("Tesla V100-PCIE-16GB"), precision_named("bf16"))

    assert finding.verdict is BLOCKED
    assert finding.message == "bfloat16 needs compute capability 8.0, and this is 7.0"
    assert "--dtype half" in finding.action


def test_unknown_capability_is_no_verdict() -> None:
    assert check_precision(None, precision_named("bf16")).verdict is CASE_BY_CASE
    with pytest.raises(RefusedError, match="bfloat16"):
        precision_named("bf17")


@pytest.mark.parametrize(
    ("gpu", "want"),
    [
        ("Tesla V100-PCIE-16GB", "7.0"),
        ("Tesla T4", "7.5"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA A30", "8.0"),
        ("NVIDIA A10", "8.6"),
        ("NVIDIA A10G", "8.6"),
        ("NVIDIA A40", "8.6"),
        ("NVIDIA RTX A6000", "8.6"),
        ("NVIDIA GeForce RTX 3090", "8.6"),
        ("NVIDIA L4", "8.9"),
        ("NVIDIA L40S", "8.9"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("Simulated H200", "9.0"),
        ("NVIDIA B200", "10.0"),
        ("NVIDIA GB200", "10.0"),
        ("NVIDIA B300 SXM6 AC", "10.3"),
        ("NVIDIA GB300", "10.3"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("NVIDIA GB10", "12.1"),
        ("Quadro RTX 6000", "7.5"),
        ("Tesla P4", "6.1"),
        ("Tesla P40", "6.1"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("Tesla K80", "3.7"),
        ("NVIDIA Z900", None),
        ("AMD Instinct MI300X", None),
    ],
)
def test_a_model_tells_its_capability(gpu: str, want: str | None) -> None:
    assert capability_by_name(gpu) == capability(want)


def test_only_nvidias_gpus_have_a_compute_capability() -> None:
    assert has_capability("NVIDIA Z900")
    assert not any(map(has_capability, ("AMD Instinct MI300X", "Intel Gaudi 3", "MI250X")))
    assert [capability(text) for text in ("8.9", "8", "8.9.1", "", None)] == [
        (8, 9),
        *[None] * 4,
    ]


@pytest.mark.parametrize(
    ("parameters", "want"),
    [
        ({}, None),
        ({"dtype": "auto"}, None),
        ({"dtype": "half"}, None),
        ({"dtype": "float16", "quantization": "gptq"}, None),
        ({"dtype": "bfloat16"}, (8, 0)),
        ({"dtype": "BFloat16"}, (8, 0)),
        ({"quantization": "awq"}, (7, 5)),
        ({"quantization": "fp8"}, (8, 0)),
        ({"kv-cache-dtype": "fp8_e4m3", "dtype": "half"}, (8, 0)),
        ({"dtype": True, "quantization": None}, None),
        ({"other": "bfloat16"}, None),
    ],
)
def test_parameters_need_the_least_capability(
    parameters: dict[str, object], want: Capability | None
) -> None:
    demand = demand_of(parameters)

    assert (demand.capability if demand is not None else None) == want


@pytest.mark.parametrize(
    ("config", "want"),
    [
        ({"torch_dtype": "bfloat16"}, ["bfloat16"]),
        ({"dtype": "float16"}, ["float16"]),
        ({"text_config": {"torch_dtype": "bfloat16"}}, ["bfloat16"]),
        (
            {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}},
            ["fp8", "bfloat16"],
        ),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, []),
        ({"torch_dtype": None}, []),
        ({}, []),
    ],
)
def test_a_models_config_tells_its_precisions(config: dict[str, object], want: list[str]) -> None:
    found = precisions_of_model(json.dumps(config).encode())

    assert [each.name for each in found] == want


def test_what_is_no_config_is_refused() -> None:
    for text in (b"", b"[]", b'{"torch_dtype": 7}', b"\xff"):
        with pytest.raises(RefusedError, match=r"no model's config\.json"):
            precisions_of_model(text)


def test_every_name_of_a_precision_is_its_own() -> None:
    names = [name for each in PRECISIONS for name in each.names]

    assert len(names) == len(set(names))


def test_check_prefers_capability_over_model() -> None:
    def verdict(**given: Any) -> Verdict:
        return answer_precision(PrecisionCheck(precision="bf16", **given), ()).verdict

    assert verdict(gpu="V100") is BLOCKED
    assert verdict(gpu="V100", capability="8.0") is SUPPORTED
    for given in ({"gpu": "Z900"}, {"capability": "nine"}, {"capability": "x", "gpu": "V100"}, {}):
        with pytest.raises(RefusedError, match="expected"):
            verdict(**given)
