"""What a thousand agents send, from one process: a connection, an inventory, samples for each.

`python -m tests.benchmarks.scale_agents NATS_URL USERS_DIRECTORY COUNT`. Each node logs in with its
own credentials, as agents do, and has 8 GPUs whose readings change every second. It prints `ready`
once all have reported; after SIGTERM one JSON object with how many samples each second had, `sent`
in all and `late`: ticks that began over half a second after their time.
"""

import asyncio
import json
import random
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
from typing_extensions import override

from schemas.base import node_speaker
from schemas.telemetry.readings import GpuReading
from shared.messaging.bus import Bus
from shared.waiting import cancel_and_wait
from tests.support.worlds.scheduler import FakeGpu, FakeNode

GPUS_PER_NODE: Final = 8
PROBE_NODES: Final = 10  # of a model of their own, which the benchmark's own requests ask for
MODEL: Final = "Simulated H100"
PROBE_MODEL: Final = "Simulated L40S"
AT_ONCE: Final = 20
LATE_SECONDS: Final = 0.5


def node_names(count: int) -> list[str]:
    return [f"node-{number:04}" for number in range(count)]


@dataclass(slots=True)
class ChangingGpu(FakeGpu):
    """A GPU with every reading that is stored, another one each time."""

    energy_mj: int = 0

    @override
    def reading(self) -> GpuReading:
        self.energy_mj += 300_000
        used_mb = random.randrange(self.memory_total_mb // 4)
        return GpuReading(
            uuid=self.uuid,
            index=self.index,
            name=self.name,
            utilization_percent=float(random.randrange(20)),
            memory_total_mb=self.memory_total_mb,
            memory_used_mb=used_mb,
            memory_free_mb=self.memory_total_mb - used_mb,
            temperature_c=float(random.randrange(35, 80)),
            power_draw_w=random.randrange(7000) / 10,
            power_limit_w=700.0,
            energy_mj=self.energy_mj,
            ecc_corrected=0,
            ecc_uncorrected=0,
            processes=(),
        )


class Fleet:
    """All the nodes, and what they have sent."""

    def __init__(self) -> None:
        self.sent = 0
        self.late = 0
        self.nodes: list[FakeNode] = []

    async def join(self, node: FakeNode) -> None:
        await node.bus.open()
        await node.answer_snapshots()
        await node.answer_fences()
        await node.bus.flush()
        await node.report_inventory()
        self.nodes.append(node)

    async def sample(self, node: FakeNode, at: float) -> None:
        """Send a sample each second, from `at` on."""
        while True:
            delay = at - time.monotonic()
            await asyncio.sleep(max(0.0, delay))
            self.late += delay < -LATE_SECONDS
            await node.publish_sample()
            self.sent += 1
            at += node.interval_seconds


async def main(url: str, users: Path, count: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    fleet, places = Fleet(), asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:

        async def join(name: str, model: str) -> None:
            bus = Bus(name, url, str(users / f"{node_speaker(name)}.json"))
            gpus: list[FakeGpu] = [
                ChangingGpu(f"GPU-{name}-{index}", index, name=model)
                for index in range(GPUS_PER_NODE)
            ]
            async with places:
                await fleet.join(FakeNode(bus, name, gpus))
            stack.push_async_callback(bus.close)

        names = node_names(count)
        models = [PROBE_MODEL] * PROBE_NODES + [MODEL] * (count - PROBE_NODES)
        await asyncio.gather(*map(join, names, models))
        began = time.monotonic() + 1
        sampling = [
            asyncio.create_task(fleet.sample(node, began + number / count))
            for number, node in enumerate(fleet.nodes)
        ]
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await ended.wait()
        await cancel_and_wait(*sampling)
        sys.stdout.write(json.dumps({"sent": fleet.sent, "late": fleet.late}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
