"""Which ticks an agent publishes and which a slow source costs, in virtual time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from services.telemetry.sources.source import NodeReading
from shared.waiting import cancelled
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
        await cancelled(running)
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
def test_every_tick_is_published_but_those_that_passed_during_a_reading(
    seconds: list[float], want: list[int]
) -> None:
    assert ticks_of(seconds, within_seconds=7.5) == want
