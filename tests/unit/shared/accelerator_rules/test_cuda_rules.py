"""Which driver serves which CUDA runtime, in the words of the accelerator guide and of NVIDIA."""

import uuid
from itertools import product

import pytest

from schemas.gpus.checks import CudaCheck, CudaRules, GpuMode, Verdict
from schemas.telemetry.readings import DeviceFacts, HostFacts, InventoryReported, Source
from shared.accelerator_rules.checks import answer_cuda
from shared.accelerator_rules.cuda import CUDA_RULES, check_cuda
from shared.accelerator_rules.cuda_versions import (
    CUDA_BY_BRANCH,
    CudaVersion,
    driver_cuda,
    runtime_cuda,
)
from shared.clock import utcnow
from shared.errors import RefusedError

PGPU, VGPU, HAMI, MPS = GpuMode
STRICT, LENIENT = CudaRules
SUPPORTED, UNSTABLE, CASE_BY_CASE, BLOCKED = Verdict


@pytest.mark.parametrize(
    ("driver", "runtime", "mode", "baseline", "strict", "lenient"),
    [
        # Mandatory: driver >= runtime.
        ("12.4", "12.4", PGPU, None, SUPPORTED, SUPPORTED),
        ("12.4", "12.3", PGPU, None, SUPPORTED, SUPPORTED),
        ("12.4", "12.5", PGPU, None, BLOCKED, SUPPORTED),
        ("12.0", "12.9", PGPU, None, BLOCKED, SUPPORTED),
        ("11.0", "11.8", PGPU, None, BLOCKED, SUPPORTED),
        ("10.1", "10.2", PGPU, None, BLOCKED, BLOCKED),
        ("12.9", "13.0", PGPU, None, BLOCKED, CASE_BY_CASE),
        ("11.8", "12.0", PGPU, None, BLOCKED, CASE_BY_CASE),
        # Recommended: majors differ by at most one.
        ("12.0", "11.8", PGPU, None, SUPPORTED, SUPPORTED),
        ("12.9", "11.0", PGPU, None, SUPPORTED, SUPPORTED),
        ("12.0", "10.2", PGPU, None, UNSTABLE, SUPPORTED),
        ("13.0", "12.0", PGPU, None, SUPPORTED, SUPPORTED),
        ("13.0", "11.8", PGPU, None, UNSTABLE, SUPPORTED),
        # A virtual GPU: baseline >= runtime, all majors equal.
        ("12.4", "12.4", VGPU, "12.4", SUPPORTED, SUPPORTED),
        ("12.8", "12.4", VGPU, "12.4", SUPPORTED, SUPPORTED),
        ("12.8", "12.5", VGPU, "12.4", BLOCKED, BLOCKED),
        ("12.8", "12.5", HAMI, "12.4", BLOCKED, BLOCKED),
        ("12.8", "12.5", HAMI, "12.5", SUPPORTED, SUPPORTED),
        ("12.4", "12.5", HAMI, "12.5", BLOCKED, SUPPORTED),
        ("13.0", "12.4", HAMI, "12.4", BLOCKED, BLOCKED),
        ("13.0", "12.4", VGPU, "12.4", BLOCKED, BLOCKED),
        ("13.0", "12.4", VGPU, "13.0", CASE_BY_CASE, CASE_BY_CASE),
        ("12.4", "11.8", HAMI, "12.4", BLOCKED, BLOCKED),
        ("12.4", "11.8", HAMI, "11.8", BLOCKED, BLOCKED),
        # GPU-Manager's exception, the guide's own example.
        ("12.4", "11.8", VGPU, "12.4", CASE_BY_CASE, CASE_BY_CASE),
        ("12.4", "10.2", VGPU, "12.4", BLOCKED, BLOCKED),
        ("12.4", "11.8", VGPU, "11.8", BLOCKED, BLOCKED),
        # "support only cuda less then 12.4", where no baseline is told.
        ("12.4", "12.3", VGPU, None, SUPPORTED, SUPPORTED),
        ("12.4", "12.4", VGPU, None, BLOCKED, SUPPORTED),
        ("12.8", "12.5", VGPU, None, BLOCKED, BLOCKED),
        ("12.4", "11.8", VGPU, None, CASE_BY_CASE, CASE_BY_CASE),
        ("12.4", "12.3", HAMI, None, CASE_BY_CASE, CASE_BY_CASE),
        # MPS: a driver of CUDA 11.5 or newer.
        ("11.5", "11.4", MPS, None, SUPPORTED, SUPPORTED),
        ("11.4", "11.4", MPS, None, BLOCKED, CASE_BY_CASE),
        ("11.5", "11.6", MPS, None, BLOCKED, SUPPORTED),
    ],
)
def test_the_verdict_at_every_boundary(
    driver: str,
    runtime: str,
    mode: GpuMode,
    baseline: str | None,
    strict: Verdict,
    lenient: Verdict,
) -> None:
    base = runtime_cuda(baseline) if baseline else None

    found = {
        rules: check_cuda(driver_cuda(driver), runtime_cuda(runtime), mode, base, rules=rules)
        for rules in CudaRules
    }

    assert (found[STRICT].verdict, found[LENIENT].verdict) == (strict, lenient)
    for finding in found.values():
        assert finding.source
        assert "{" not in finding.message + finding.action
        assert (finding.verdict is SUPPORTED) == (not finding.action)


def test_lenient_never_blocks_what_strict_allows() -> None:
    order = list(Verdict)
    versions = [CudaVersion(*cuda) for _, cuda in CUDA_BY_BRANCH]
    for driver, runtime, mode in product(versions, versions, GpuMode):
        strict = check_cuda(driver, runtime, mode, runtime)
        lenient = check_cuda(driver, runtime, mode, runtime, rules=LENIENT)
        whole = check_cuda(driver, runtime, PGPU)

        assert order.index(lenient.verdict) <= order.index(strict.verdict)
        assert order.index(strict.verdict) >= order.index(whole.verdict)


def test_every_rule_decides_somewhere() -> None:
    versions = [CudaVersion(*cuda) for _, cuda in CUDA_BY_BRANCH]
    bases = [None, CudaVersion(11, 8), CudaVersion(12, 4)]
    decided = {
        (finding.rule, finding.verdict)
        for driver, runtime, mode, base, rules in product(
            versions, versions, GpuMode, bases, CudaRules
        )
        for finding in [check_cuda(driver, runtime, mode, base, rules=rules)]
    }

    assert decided == {(rule.name, rule.verdict) for rule in CUDA_RULES}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("550.144.03", (12, 4)),
        ("515.65.01", (11, 7)),
        ("535.54", (12, 2)),
        ("450.80.02", (11, 0)),
        ("384.81", (9, 0)),
        ("565.57.01", (12, 7)),
        ("580.65.06", (13, 0)),
        ("585.1", (13, 0)),
        ("999.1", (13, 1)),
        ("12.4", (12, 4)),
        (" 12.4 ", (12, 4)),
    ],
)
def test_a_driver_tells_its_cuda(text: str, want: tuple[int, int]) -> None:
    assert driver_cuda(text) == want


@pytest.mark.parametrize("text", ["", "383.1", "new", "12", "550"])
def test_what_is_no_driver_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="expected a driver's version"):
        driver_cuda(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("12.4", (12, 4)),
        ("12.4.1", (12, 4)),
        ("cu121", (12, 1)),
        ("cu118", (11, 8)),
        ("cu130", (13, 0)),
        ("cu92", (9, 2)),
        ("torch 2.3.0+cu121", (12, 1)),
        ("libcudart.so.12.4.127", (12, 4)),
        ("/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.127", (12, 4)),
        ("/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12", (12, 4)),
        ("nvidia-cuda-runtime-cu12  12.4.127", (12, 4)),
        ("cuda>=12.4 brand=tesla,driver>=470,driver<471", (12, 4)),
        ("NVIDIA_REQUIRE_CUDA=cuda>=11.8 brand=unknown,driver>=450", (11, 8)),
        ("CUDA_VERSION=12.8.1", (12, 8)),
        ("CUDA Version: 12.4", (12, 4)),
        ("nvidia/cuda:12.4.1-runtime-ubuntu22.04", (12, 4)),
        ("lmsysorg/sglang:v0.4.6-cu124", (12, 4)),
        ("pytorch/pytorch:2.4.0-cuda12.1-cudnn9-runtime", (12, 1)),
    ],
)
def test_a_runtime_tells_its_cuda(text: str, want: tuple[int, int]) -> None:
    assert runtime_cuda(text) == want


@pytest.mark.parametrize(
    "text", ["", "vllm/vllm-openai:v0.18.0", "libcudart.so.12", "cu12", "libcuda.so.1", "acu121"]
)
def test_unknown_cuda_is_refused_with_its_source(text: str) -> None:
    with pytest.raises(RefusedError, match="docker image inspect"):
        runtime_cuda(text)


def test_without_driver_all_gpu_nodes_are_checked() -> None:
    nodes = [
        _node("new", driver="580.65.06", cuda="13.0"),
        _node("old", driver="550.144.03"),
        _node("silent"),
        _node("cpu", gpus=0, driver="535.54"),
    ]

    view = answer_cuda(CudaCheck(runtime="cu128"), nodes)

    assert [(each.subject, each.verdict) for each in view.findings] == [
        ("new", SUPPORTED),
        ("old", BLOCKED),
        ("silent", CASE_BY_CASE),
    ]
    assert view.verdict is SUPPORTED
    assert answer_cuda(CudaCheck(runtime="12.4", driver="12.2"), nodes).verdict is BLOCKED
    with pytest.raises(RefusedError, match="no node with a GPU"):
        answer_cuda(CudaCheck(runtime="12.4"), nodes[3:])


def test_gpu_of_another_vendor_serves_no_cuda() -> None:
    nodes = [
        _node("amd", driver="6.10.5", name="AMD Instinct MI300X"),
        _node("new", driver="580.65.06", cuda="13.0"),
    ]

    view = answer_cuda(CudaCheck(runtime="12.4"), nodes)

    assert [(each.subject, each.verdict, each.rule) for each in view.findings] == [
        ("amd", BLOCKED, "no_cuda"),
        ("new", SUPPORTED, "driver_serves_runtime"),
    ]
    assert "6.10" not in view.findings[0].message


@pytest.mark.parametrize("driver", ["6.10.5", "unknown", "100.5", "[N/A]"])
def test_an_unreadable_driver_costs_its_own_row_only(driver: str) -> None:
    nodes = [_node("odd", driver=driver), _node("old", driver="535.54.03")]

    view = answer_cuda(CudaCheck(runtime="12.1"), nodes)

    assert [(each.subject, each.verdict, each.rule) for each in view.findings] == [
        ("odd", CASE_BY_CASE, "driver_unknown"),
        ("old", SUPPORTED, "driver_serves_runtime"),
    ]
    assert driver in view.findings[0].message


def _node(
    node_id: str,
    *,
    driver: str | None = None,
    cuda: str | None = None,
    gpus: int = 1,
    name: str = "H100",
) -> InventoryReported:
    return InventoryReported(
        message_id=uuid.uuid4(),
        occurred_at=utcnow(),
        revision=1,
        node_id=node_id,
        boot_id=uuid.uuid4(),
        source=Source.NVML,
        interval_seconds=1.0,
        host=HostFacts(hostname=node_id, driver_version=driver, cuda_driver_version=cuda),
        devices=tuple(DeviceFacts(uuid=f"GPU-{n}", index=n, name=name) for n in range(gpus)),
    )


def test_every_cuda_since_9_has_its_driver() -> None:
    branches, versions = zip(*CUDA_BY_BRANCH, strict=True)

    assert list(branches) == sorted(set(branches))
    newest = {9: 2, 10: 2, 11: 8, 12: 9, 13: 1}
    assert list(versions) == [
        (major, minor) for major, last in newest.items() for minor in range(last + 1)
    ]
