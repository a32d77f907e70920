"""Where the GPU seconds of attempts went."""

from datetime import UTC, datetime, timedelta

import pytest

from schemas.executor.attempts import AttemptPhase, PhaseTiming
from schemas.gpus.device_grant import DeviceGrant, DeviceShare, ShareKind
from services.results.gpu_time.waterfall import Attempt, Steps
from shared.ids import new_id

START = datetime(2026, 1, 1, tzinfo=UTC)


def device(index: int, name: str = "NVIDIA H200", hundredths: int = 100) -> DeviceGrant:
    share = DeviceShare(kind=ShareKind.COOPERATIVE, shares=hundredths / 100)
    return DeviceGrant(
        node_id="a",
        uuid=f"GPU-{index}",
        index=index,
        name=name,
        share=share if hundredths < 100 else None,
    )


def attempt(*devices: DeviceGrant) -> Attempt:
    return Attempt(
        reservation_id=new_id(),
        devices=devices,
        phases=(
            PhaseTiming(phase=AttemptPhase.LOADING, started_at=START, duration_seconds=20),
            PhaseTiming(phase=AttemptPhase.MEASURING, started_at=START, duration_seconds=60),
        ),
        finished_at=START + timedelta(seconds=80),
    )


def test_each_step_has_seconds_and_cost() -> None:
    whole, half = device(0), device(1, hundredths=50)
    held = [
        {
            "node_id": "a",
            "device_uuid": each.uuid,
            "granted_at": START - timedelta(seconds=5),
            "ended_at": START + timedelta(seconds=95),
        }
        for each in (whole, half)
    ]
    steps = Steps({"h200": 3600.0})

    steps.add(attempt(whole, half), 7.0, held)
    sums = steps.sums

    assert (sums["waiting"].seconds, sums["waiting"].gpu_seconds) == (7, 0)
    assert (sums["loading"].seconds, sums["loading"].gpu_seconds) == (20, 30)
    assert (sums["measuring"].seconds, sums["measuring"].gpu_seconds) == (60, 90)
    assert (sums["idle_held"].seconds, sums["idle_held"].gpu_seconds) == (20, 30)
    assert sums["measuring"].cost == pytest.approx(90)
    total = sum(step.gpu_seconds for step in sums.values())
    assert total == 100 + 50


def test_without_price_there_is_no_cost() -> None:
    steps = Steps({"h200": 3.5})

    steps.add(attempt(device(0, "NVIDIA L4")), 0.0, [])

    assert steps.sums["loading"].cost is None
    assert steps.sums["idle_held"].gpu_seconds == 0
