"""Which readings change what looks idle to a request."""

from datetime import UTC, datetime

import pytest

from schemas.gateway.views import GpuMetrics, GpuView
from schemas.gpus.gpu_request import GpuRequest
from schemas.telemetry.readings import Source
from services.gateway.domain.availability_news import Idle, is_news, looks_idle


def gpu(
    free_mb: int | None = 50_000,
    utilization: float | None = 10.0,
    total_mb: int | None = 80_000,
    uuid: str = "GPU-0",
) -> GpuView:
    return GpuView(
        node_id="n1",
        uuid=uuid,
        index=0,
        name="NVIDIA A100",
        source=Source.NVML,
        simulated=False,
        memory_free_mb=free_mb,
        memory_total_mb=total_mb,
        utilization_percent=utilization,
    )


@pytest.mark.parametrize(
    ("view", "request_", "want"),
    [
        (gpu(free_mb=40_000), GpuRequest(), True),
        (gpu(free_mb=39_999), GpuRequest(), False),
        (gpu(free_mb=20_000), GpuRequest(min_memory_mb=20_000), True),
        (gpu(free_mb=19_999), GpuRequest(min_memory_mb=20_000), False),
        (gpu(total_mb=None), GpuRequest(min_memory_mb=20_000), True),
        (gpu(total_mb=None), GpuRequest(), False),
        (gpu(free_mb=None), GpuRequest(min_memory_mb=0), False),
        (gpu(utilization=50.0), GpuRequest(), True),
        (gpu(utilization=50.1), GpuRequest(), False),
        (gpu(utilization=None), GpuRequest(), False),
    ],
)
def test_gpu_with_free_memory_and_low_use_is_idle(
    view: GpuView, request_: GpuRequest, want: bool
) -> None:
    assert looks_idle(view, request_) is want


def test_change_of_idle_devices_is_news() -> None:
    idle: Idle = {}

    def news(*gpus: GpuView, node_id: str = "n1") -> bool:
        at = datetime(2026, 1, 5, tzinfo=UTC)
        metrics = GpuMetrics(
            node_id=node_id, sequence=1, observed_at=at, simulated=False, gpus=gpus
        )
        return is_news(metrics, GpuRequest(), idle)

    assert news(gpu(), gpu(uuid="GPU-1", utilization=90.0))
    assert not news(gpu(utilization=20.0), gpu(uuid="GPU-1", utilization=80.0))
    assert news(gpu(utilization=90.0), gpu(uuid="GPU-1", utilization=0.0))
    assert news(gpu(), node_id="n2")
    assert not news(gpu(utilization=90.0), gpu(uuid="GPU-1", utilization=0.0))
