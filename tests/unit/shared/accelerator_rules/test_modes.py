"""Forms in which Kubernetes counts GPUs, what they come to, and where they cannot be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gpus.checks import GpuMode, ModeCheck, PrecisionRules, Verdict
from schemas.gpus.gpu_request import GpuRequest
from shared.accelerator_rules.advice import advise_environment
from shared.accelerator_rules.modes import (
    FORMS,
    GpuForm,
    answer_mode,
    request_of,
    units_per_gpu,
)
from shared.errors import RefusedError

GPU, CORE, MEMORY = "nvidia.com/gpu", "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
MPS, MPS_MEMORY = "nvidia.com/mps-core", "nvidia.com/mps-memory"


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({GPU: 2}, GpuRequest(gpus=2)),
        ({CORE: 1}, GpuRequest(shares=0.01, unfragmented=True)),
        ({CORE: 99}, GpuRequest(shares=0.99, unfragmented=True)),
        ({CORE: 100}, GpuRequest(gpus=1)),
        ({CORE: 300}, GpuRequest(gpus=3)),
        # 30 units of 256 MiB in 20 % of a card: one of at least five times as much.
        (
            {CORE: 20, MEMORY: 30},
            GpuRequest(shares=0.2, unfragmented=True, min_memory_mb=38_400),
        ),
        ({MPS: 50}, GpuRequest(shares=0.5, unfragmented=True, enforced_shares=True)),
        ({MPS: 200}, GpuRequest(gpus=2)),
        ({"nvidia.com/mig-1g.10gb": 1}, GpuRequest(mig_profile="1g.10gb")),
    ],
)
def test_limits_ask_for_what_they_mean(resources: dict[str, int], want: GpuRequest) -> None:
    assert request_of(resources) == want


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({}, "got nothing"),
        ({GPU: 0}, "at least 1"),
        ({GPU: 1, CORE: 100}, "expected one of"),
        ({"vendor.com/npu": 1}, "got vendor.com/npu"),
        ({MEMORY: 30}, "expected one of"),
        ({CORE: 101}, "1 to 100 .* or a multiple of 100, got 101"),
        ({CORE: 150}, "got 150"),
        ({CORE: 100, MEMORY: 30}, "no `vgpu_memory_mb` with whole GPUs"),
        ({GPU: 1, MEMORY: 30}, "does not belong to"),
        ({MPS: 120}, "got 120"),
        ({MPS: 50, MPS_MEMORY: 4}, "whose unit the guide does not tell"),
        ({"nvidia.com/mig-1g.10gb": 2}, "expected 1 of"),
    ],
)
def test_limits_that_no_plugin_serves_are_refused(resources: dict[str, int], said: str) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        request_of(resources)

    assert refused.value.path == "$.resources"


@given(st.integers(1, 4096))
def test_whole_gpus_are_one_request_in_any_form(gpus: int) -> None:
    forms = {form.mode: form for form in reversed(FORMS)}
    modes = (GpuMode.PGPU, GpuMode.VGPU, GpuMode.MPS)
    counted = [{forms[mode].resource: gpus * forms[mode].per_gpu} for mode in modes]

    assert {units_per_gpu(name) for each in counted for name in each} == {1, 100}
    assert [request_of(each) for each in counted] == [GpuRequest(gpus=gpus)] * len(modes)


@pytest.mark.parametrize(
    ("resource", "where", "hardware", "documented"),
    [
        (CORE, {"mig": True}, Verdict.BLOCKED, Verdict.BLOCKED),
        (MPS, {"mig": True}, Verdict.BLOCKED, Verdict.BLOCKED),
        (MPS, {"mig": True, "mps_on_mig": True}, Verdict.CASE_BY_CASE, Verdict.CASE_BY_CASE),
        (CORE, {"mig": True, "mps_on_mig": True}, Verdict.BLOCKED, Verdict.BLOCKED),
        (GPU, {"mig": True}, Verdict.SUPPORTED, Verdict.SUPPORTED),
        (MPS, {"gpu": "P100"}, Verdict.CASE_BY_CASE, Verdict.BLOCKED),
        (MPS, {"capability": "6.2"}, Verdict.CASE_BY_CASE, Verdict.BLOCKED),
        (MPS, {"capability": "7.0"}, Verdict.SUPPORTED, Verdict.SUPPORTED),
        (CORE, {"gpu": "P100"}, Verdict.SUPPORTED, Verdict.SUPPORTED),
        (MPS, {"driver": "11.4"}, Verdict.CASE_BY_CASE, Verdict.BLOCKED),
        (MPS, {"driver": "11.5"}, Verdict.SUPPORTED, Verdict.SUPPORTED),
        (GPU, {"kubernetes_version": "v1.24.17"}, Verdict.BLOCKED, Verdict.BLOCKED),
        (GPU, {"kubernetes_version": "1.25+"}, Verdict.SUPPORTED, Verdict.SUPPORTED),
        (MPS, {}, Verdict.SUPPORTED, Verdict.SUPPORTED),
    ],
)
def test_each_form_has_its_documented_limits(
    resource: str, where: dict[str, Any], hardware: Verdict, documented: Verdict
) -> None:
    found = [
        answer_mode(ModeCheck(resources={resource: 100}, rules=rules, **where))
        for rules in (PrecisionRules.HARDWARE, PrecisionRules.DOCUMENTED)
    ]

    assert [each.verdict for each in found] == [hardware, documented]
    assert all(finding.source for each in found for finding in each.findings)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.mode.value)
def test_what_fits_names_the_source_of_its_own_mode(form: GpuForm) -> None:
    [found] = answer_mode(ModeCheck(resources={form.resource: form.per_gpu})).findings

    assert (found.verdict, found.source) == (Verdict.SUPPORTED, form.source)


@pytest.mark.parametrize("version", ["new", "1", "1.x"])
def test_what_is_no_version_of_kubernetes_is_refused(version: str) -> None:
    with pytest.raises(RefusedError, match="version of Kubernetes"):
        answer_mode(ModeCheck(resources={GPU: 1}, kubernetes_version=version))


@pytest.mark.parametrize(
    ("image", "resource", "is_advised"),
    [
        ("registry/paddlepaddle/paddle:2.6.1-gpu", CORE, True),
        ("own/FastDeploy-serving:1", CORE, True),
        ("registry/paddlepaddle/paddle:2.6.1-gpu", GPU, False),
        ("registry/paddlepaddle/paddle:2.6.1-gpu", "", False),
        ("vllm/vllm-openai:v0.18.0", CORE, False),
    ],
)
def test_paddle_on_vgpu_gets_its_allocator(image: str, resource: str, is_advised: bool) -> None:
    want = {"FLAGS_allocator_strategy": "naive_best_fit"} if is_advised else {}

    assert advise_environment(image, resource) == want
