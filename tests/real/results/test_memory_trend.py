"""What the memory of an attempt's GPUs did before it ran out of memory."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from schemas.errors import Refused
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhase,
    Failure,
    FailureKind,
    PhaseTiming,
)
from schemas.gpus.device_grant import DeviceGrant
from schemas.results.measurements import GetMemoryTrend, MemoryTrendView
from schemas.results.reports import FailuresView, GetFailures
from schemas.telemetry.readings import GpuSampled
from shared.clock import utcnow
from shared.testing import eventually
from tests.support.worlds.results import NODE, World, make_finished, make_sample

TOTAL_MB = 80_000
OUT_OF_MEMORY = Failure(kind=FailureKind.GPU_OUT_OF_MEMORY, message="no room for the KV cache")


def make_failed(start: datetime, failure: Failure) -> AttemptFinished:
    """Taken down 100 s after its start, over 20 s later."""
    timing = PhaseTiming(
        phase=AttemptPhase.TEARING_DOWN,
        started_at=start + timedelta(seconds=100),
        duration_seconds=20.0,
    )
    return make_finished(
        [(start, start + timedelta(seconds=120))],
        outcome=AttemptOutcome.FAILED,
        benchmark=None,
        phases=(timing,),
        failure=failure,
        devices=tuple(
            DeviceGrant(node_id=NODE, uuid=f"GPU-{index}", index=index, name="NVIDIA A100")
            for index in (0, 1)
        ),
    )


def make_samples(start: datetime) -> list[GpuSampled]:
    """GPU 0 gains 500 MB a second, GPU 1 has 70,000 MB all the while; then both are empty."""

    def memory_mb(index: int, second: int) -> int:
        if second >= 100:
            return 0
        return 500 * second if index == 0 else 70_000

    samples = [make_sample(start + timedelta(seconds=s), s) for s in range(120)]
    return [
        replace(
            sample,
            gpus=tuple(
                replace(gpu, memory_used_mb=memory_mb(gpu.index, sample.sequence))
                for gpu in sample.gpus
            ),
        )
        for sample in samples
    ]


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(OUT_OF_MEMORY, id="by its kind"),
        pytest.param(
            Failure(
                kind=FailureKind.ENGINE_EXITED,
                message="exit code 1",
                log_tail=("torch.OutOfMemoryError: CUDA out of memory.", "Killed"),
            ),
            id="by its log",
        ),
    ],
)
async def test_memory_failure_has_the_minute_before_it(world: World, failure: Failure) -> None:
    start = utcnow() - timedelta(minutes=10)
    failed = make_failed(start, failure)
    query = GetMemoryTrend(attempt_id=failed.attempt_id)
    found: list[MemoryTrendView] = []

    async def is_known() -> bool:
        view = await world.ask(query, MemoryTrendView | Refused)
        found[:] = [view] if isinstance(view, MemoryTrendView) else []
        return bool(found)

    async with world.results():
        await world.publish(*make_samples(start), failed)
        await world.stored(240)
        await eventually(is_known, what="the trend")
        asked = GetFailures(start_at=start, end_at=utcnow())
        report = await world.ask(asked, FailuresView)

    [growing, flat] = found[0].gpus
    assert (growing.index, growing.is_growing) == (0, True)
    assert (growing.start_mb, growing.peak_mb, growing.last_mb) == (20_000, 49_500, 49_500)
    assert (flat.index, flat.is_growing) == (1, False)
    assert (flat.start_mb, flat.peak_mb, flat.last_mb) == (70_000, 70_000, 70_000)
    assert {gpu.total_mb for gpu in found[0].gpus} == {TOTAL_MB}
    assert found[0].until_at == start + timedelta(seconds=100)
    [line] = report.lines
    assert line.memory == found[0].gpus


async def test_any_other_failure_has_none(world: World) -> None:
    start = utcnow() - timedelta(minutes=10)
    failed = make_failed(start, Failure(kind=FailureKind.PORT_TAKEN, message="8000 is taken"))
    asked = GetFailures(start_at=start, end_at=utcnow())
    found: list[FailuresView] = []

    async def is_reported() -> bool:
        found[:] = [await world.ask(asked, FailuresView)]
        return bool(found[0].lines)

    async with world.results():
        await world.publish(*make_samples(start), failed)
        await world.stored(240)
        await eventually(is_reported, what="the failure")
        trend = await world.ask(
            GetMemoryTrend(attempt_id=failed.attempt_id), MemoryTrendView | Refused
        )

    assert isinstance(trend, Refused)
    assert [line.memory for line in found[0].lines] == [()]
