"""Which ticks an agent publishes and which a slow source costs, in virtual time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from schemas.telemetry.readings import GpuSampled, SetBurst
from services.telemetry.sources.source import NodeReading
from shared.ids import new_id
from shared.waiting import cancel_and_wait
from tests.support.virtual_time import run_virtually
from tests.support.worlds.telemetry_node import FakeSource, Node


@dataclass
class SlowSource(FakeSource):
    """Its readings take these seconds, one after the other, and then none."""

    seconds: list[float] = field(default_factory=list)

    async def read(self) -> NodeReading:
        await asyncio.sleep(self.seconds.pop(0) if self.seconds else 0.0)
        return await super().read()


def ticks_of(seconds: Sequence[float], *, within_seconds: float) -> list[int]:
    """The numbers of the samples that an agent with an interval of 1 s published."""

    async def run() -> list[int]:
        node = Node(SlowSource(seconds=list(seconds)))
        running = asyncio.create_task(node.agent.run())
        await asyncio.sleep(within_seconds)
        await cancel_and_wait(running)
        return [sample.sequence for sample in node.heard.samples]

    return run_virtually(run())


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param([], [1, 2, 3, 4, 5, 6, 7, 8], id="at once"),
        pytest.param([0.9] * 8, [1, 2, 3, 4, 5, 6, 7], id="within the interval"),
        pytest.param([0.0, 0.9], [1, 2, 3, 4, 5, 6, 7, 8], id="one late and still in time"),
        pytest.param([0.0, 2.5], [1, 2, 5, 6, 7, 8], id="one over two more slots"),
        pytest.param([2.4] * 8, [1, 4], id="all over two more slots"),
    ],
)
def test_every_tick_but_passed_ones_is_published(seconds: list[float], want: list[int]) -> None:
    assert ticks_of(seconds, within_seconds=7.5) == want


def burst_of(seconds: float) -> SetBurst:
    return SetBurst(
        command_id=new_id(), node_id="node-a", interval_seconds=0.1, duration_seconds=seconds
    )


def test_sample_tells_the_next_after_a_burst() -> None:
    async def run() -> list[tuple[float, float]]:
        node = Node(SlowSource(seconds=[0.05] * 20))
        loop, published = asyncio.get_running_loop(), []

        async def publish(sample: GpuSampled) -> None:
            published.append((loop.time(), sample.interval_seconds))

        node.heard.publish_live = publish  # type: ignore[method-assign]
        running = asyncio.create_task(node.agent.run())
        await asyncio.sleep(1.2)
        published.clear()
        node.agent.burst(burst_of(0.52))
        await asyncio.sleep(4.0)
        await cancel_and_wait(running)
        return published

    published = run_virtually(run())

    said = [interval for _, interval in published]
    assert said[:6] == [0.1] * 5 + [1.0]
    came = [after - before for (before, _), (after, _) in pairwise(published)]
    assert came == pytest.approx(said[:-1])


def test_late_snapshot_has_configured_interval() -> None:
    async def run() -> GpuSampled:
        node = Node(SlowSource(seconds=[0.0, 0.0, 1.0]))
        running = asyncio.create_task(node.agent.run())
        await asyncio.sleep(1.2)
        node.agent.burst(burst_of(0.5))
        await asyncio.sleep(0.1)  # into the reading of a second
        snapshot = await node.agent.snapshot(use_cache=False)
        await cancel_and_wait(running)
        return snapshot

    assert run_virtually(run()).interval_seconds == 1.0
