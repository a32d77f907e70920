"""Which GPU is meant, and what a monitoring prints."""

from uuid import UUID

import pytest

from schemas.errors import ErrorCode
from schemas.telemetry.monitoring import GpuStats, MonitoringView, SampledSpread, Spread
from services.cli.commands.operations.nodes import choose_gpu, monitoring_table
from services.cli.display.output import plain_text
from services.cli.failures import CommandFailed
from tests.support.worlds.gateway_views import NOW, make_gpu


def test_gpu_is_named_by_node_and_index_or_uuid() -> None:
    here, there = make_gpu(0), make_gpu(1)

    assert choose_gpu((here, there), f"{there.node_id}/1") is there
    assert choose_gpu((here, there), there.uuid) is there
    assert choose_gpu((here, there), "1") is there


def test_a_gpu_that_nobody_reports_is_said_so() -> None:
    with pytest.raises(CommandFailed, match="reports no GPU 7") as failed:
        choose_gpu((make_gpu(0),), "7")

    assert failed.value.code is ErrorCode.NOT_FOUND


def test_monitoring_has_one_row_per_gpu() -> None:
    stats = GpuStats(
        name="H200",
        uuid="GPU-0",
        utilization=SampledSpread(min=10, max=90, mean=55, samples=12),
        memory_used_mb=Spread(),
        memory_usage_percent=Spread(),
        temperature_c=Spread(),
        power_draw_w=Spread(min=100, max=300, mean=200),
    )
    view = MonitoringView(
        node_id="node-a",
        monitoring_id=UUID(int=1),
        running=False,
        started_at=NOW,
        monitoring_duration_seconds=12.0,
        sample_count=12,
        missed_count=0,
        gpu_stats={"0": stats},
    )

    text = plain_text(monitoring_table(view))

    assert "H200" in text
    assert "55" in text
    assert " 12" in text
