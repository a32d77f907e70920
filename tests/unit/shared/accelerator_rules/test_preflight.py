"""What a configuration asks of GPUs and drivers, by what its model and image tell."""

import pytest

from schemas.gpus.checks import CudaRules, GpuMode, Verdict
from schemas.gpus.gpu_request import Selector, SelectorKey, SelectorOperator
from shared.accelerator_rules.cuda import check_cuda
from shared.accelerator_rules.cuda_versions import (
    CudaVersion,
    cuda_of_driver,
    image_cuda,
)
from shared.accelerator_rules.preflight import least_driver, preflight

REQUIRED = "NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471"


@pytest.mark.parametrize(
    ("parameters", "of_model", "capability", "said"),
    [
        pytest.param({}, ("bfloat16",), "8.0", "bfloat16 of the model's config.json", id="model"),
        pytest.param({"dtype": "auto"}, ("bfloat16",), "8.0", "of the model's", id="auto"),
        pytest.param({"dtype": "half"}, ("bfloat16",), None, "", id="a dtype goes first"),
        pytest.param(
            {"dtype": "bfloat16"}, ("float16",), "8.0", "dtype=bfloat16", id="dtype asks for more"
        ),
        pytest.param(
            {"dtype": "half"}, ("fp8", "bfloat16"), "8.0", "fp8 of", id="weights stay as they are"
        ),
        pytest.param({}, ("awq", "float16"), "7.5", "awq of", id="AWQ"),
        pytest.param({}, ("float16",), None, "", id="runs everywhere"),
        pytest.param({}, (), None, "", id="nothing known"),
    ],
)
def test_model_precision_needs_capability(
    parameters: dict[str, str], of_model: tuple[str, ...], capability: str | None, said: str
) -> None:
    found = preflight(parameters, model_precisions=of_model)

    assert found.capability == capability
    assert [said in each.message for each in found.findings] == [True] * (capability is not None)


def test_image_needs_a_driver_for_its_cuda() -> None:
    found = preflight({}, is_in_image=True, image="vllm:cu124", image_cuda=CudaVersion(12, 4))

    assert found.selectors == (
        Selector(
            key=SelectorKey.CUDA_DRIVER_VERSION,
            operator=SelectorOperator.AT_LEAST,
            values=("12.4",),
        ),
    )
    assert "vllm:cu124 is of CUDA 12.4" in found.notes[0]


def test_image_without_cuda_needs_nothing() -> None:
    found = preflight({}, is_in_image=True, image="own")

    assert (found.selectors, found.notes) == ((), [])
    assert [each.verdict for each in found.findings] == [Verdict.CASE_BY_CASE]


@pytest.mark.parametrize("rules", CudaRules)
def test_least_driver_is_the_first_not_blocked(rules: CudaRules) -> None:
    versions = [CudaVersion(major, minor) for major in (9, 10, 11, 12, 13) for minor in (0, 1, 8)]

    for runtime in versions:
        least = least_driver(runtime, rules)
        for driver in versions:
            if driver.major > runtime.major + 1 or driver.major < runtime.major:
                continue  # unstable, or what forward compatibility may serve
            found = check_cuda(driver, runtime, GpuMode.PGPU, rules=rules)
            assert (found.verdict is Verdict.BLOCKED) is (driver < least), (driver, runtime)


@pytest.mark.parametrize(
    ("reference", "variables", "labels", "want"),
    [
        pytest.param("a:1", (REQUIRED, "CUDA_VERSION=12.5.0"), {}, "12.4", id="demanded"),
        pytest.param("a:1", ("PATH=/bin", "CUDA_VERSION=12.5.1"), {}, "12.5", id="told"),
        pytest.param("a:1", (), {"com.nvidia.cuda.version": "11.8.0"}, "11.8", id="label"),
        pytest.param("vllm/vllm-openai:v0.8.5-cu121", (), {}, "12.1", id="tag"),
        pytest.param("nvidia/cuda:12.4.1-runtime", (), {}, "12.4", id="name and tag"),
        pytest.param("a:cu118", ("CUDA_VERSION=12.2.0",), {}, "12.2", id="environment first"),
        pytest.param("a:1", ("NVIDIA_REQUIRE_CUDA=",), {}, None, id="demand taken back"),
        pytest.param("vllm/vllm-openai:v0.18.0", ("NVIDIA",), {}, None, id="none"),
    ],
)
def test_image_cuda_is_read_from_three_sources(
    reference: str, variables: tuple[str, ...], labels: dict[str, str], want: str | None
) -> None:
    assert image_cuda(reference, variables, labels) == want


@pytest.mark.parametrize(
    ("version", "want"),
    [("550.144.03", "12.4"), ("6.10.5", None), ("12.4", None), ("simulated", None), (None, None)],
)
def test_nvidia_driver_version_tells_its_cuda(version: str | None, want: str | None) -> None:
    assert cuda_of_driver(version) == want
