"""Whose use a pod's readings are."""

import pytest

from schemas.results.series import WhoseReading
from schemas.telemetry.readings import GpuPod, GpuReading, PodUse
from services.gateway.domain.pod_views import pod_views

LLAMA = GpuPod("serving", "llama-0", "main", kind="time_slice", percent=50, uid="a", owner="Job/x")
OTHER = GpuPod("team-a", "notebook", "main", kind="time_slice", percent=50, uid="b")
SIDECAR = GpuPod("serving", "llama-0", "sidecar", uid="a")
WHOLE, OWN = (WhoseReading.GPU, 900, 95.0), WhoseReading.OWN
USES = (PodUse("a", 600, 60.0), PodUse("b"))


@pytest.mark.parametrize(
    ("pods", "uses", "want"),
    [
        pytest.param((LLAMA,), None, [(OWN, 900, 95.0)], id="alone"),
        pytest.param((LLAMA, SIDECAR), None, [(OWN, 900, 95.0)] * 2, id="two containers of one"),
        pytest.param((LLAMA, OTHER), None, [WHOLE, WHOLE], id="nothing tells"),
        pytest.param((LLAMA, OTHER), USES, [(OWN, 600, 60.0), WHOLE], id="told of one"),
        pytest.param((), None, [], id="nobody"),
    ],
)
def test_reading_is_of_pod_or_marked_as_gpu(
    pods: tuple[GpuPod, ...],
    uses: tuple[PodUse, ...] | None,
    want: list[tuple[WhoseReading, int, float]],
) -> None:
    gpu = GpuReading(
        uuid="GPU-a",
        index=0,
        utilization_percent=95.0,
        memory_used_mb=900,
        pods=pods,
        pod_uses=uses,
    )

    found = pod_views(gpu) or ()

    assert [(v.reading, v.memory_used_mb, v.utilization_percent) for v in found] == want


def test_without_a_kubelet_pods_are_unknown() -> None:
    assert pod_views(GpuReading(uuid="GPU-a", index=0)) is None
