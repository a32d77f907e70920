"""An agent that makes and removes MIG instances, over a fake NVML library.

The library is a fake, because the hardware is missing; its GPUs outlive the agent, as real ones do.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from schemas.base import pattern_for
from schemas.errors import Accepted, Reply
from schemas.gpus.mig import ChangeMig, MigLayout
from schemas.scheduler.views import ListReservations, ReservationList
from schemas.telemetry.readings import HealthKind
from services.telemetry.app import create_service
from services.telemetry.settings import TelemetrySettings
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.messaging.bus import Bus
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.fakes.nvml import FakeNvml
from tests.support.processes.agent import agent_process
from tests.support.worlds.telemetry_client import NODE, Watcher, watching

GPU = "GPU-fa4e0000-0000-0000-0000-000000000000"
INSUFFICIENT_RESOURCES = 23


@dataclass
class Node:
    """One GPU in MIG mode, and agents that come and go."""

    nats_url: str
    directory: Path
    fake: FakeNvml
    watcher: Watcher

    @asynccontextmanager
    async def agent(self, *, is_allowed: bool = True) -> AsyncIterator[None]:
        settings = TelemetrySettings(
            nats_url=self.nats_url,
            node_id=NODE,
            data_dir=str(self.directory / "data"),
            source="nvml",
            interval_seconds=0.1,
            mig_instances=is_allowed,
        )
        told = len(self.watcher.inventories)
        async with create_service(settings).running():
            await self._tells_more_than(told)
            yield

    @asynccontextmanager
    async def agent_process(self) -> AsyncIterator[asyncio.subprocess.Process]:
        told = len(self.watcher.inventories)
        async with agent_process(
            self.nats_url,
            self.directory / "data",
            GPUSTEWARD_TELEMETRY_SOURCE="nvml",
            GPUSTEWARD_TELEMETRY_MIG_INSTANCES="true",
        ) as process:
            await self._tells_more_than(told)
            yield process

    async def _tells_more_than(self, told: int) -> None:
        await eventually(
            lambda: len(self.watcher.inventories) > told, within_seconds=30, what="an inventory"
        )

    async def change(self, number: int, profile: str, start: int, *remove: int) -> Reply:
        """Sent again while the agent is away, or does not know yet what is in use."""
        command = ChangeMig(
            command_id=new_id(),
            node_id=NODE,
            device_uuid=GPU,
            number=number,
            profile=profile,
            start=start,
            remove_starts=remove,
        )
        found: list[Reply] = []

        async def is_answered() -> bool:
            try:
                reply = await self.watcher.bus.request(command, timeout_seconds=5)
            except UnavailableError:
                return False
            found[:] = [reply]
            return isinstance(reply, Accepted) or not reply.retryable

        await eventually(is_answered, within_seconds=60, what="an answer")
        return found[0]

    async def layout(self, number: int) -> MigLayout:
        """As the inventory has it once this change is over."""
        await eventually(
            lambda: (found := self.newest()) is not None and found.change == number,
            within_seconds=30,
            what=f"an inventory after change {number}",
        )
        found = self.newest()
        assert found is not None
        return found

    def starts(self) -> list[int]:
        """Where the driver has instances."""
        device = self.fake.device(0)
        return [each.start for each in device.instances[: device.instance_count]]

    def newest(self) -> MigLayout | None:
        gpus = self.watcher.inventories[-1].devices
        return next(facts.mig_layout for facts in gpus if facts.uuid == GPU)


@pytest.fixture
async def node(
    nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Node]:
    (tmp_path / "driver").mkdir()
    fake = FakeNvml(tmp_path / "driver", gpus=1)
    fake.split(0)
    for name in ("LD_LIBRARY_PATH", "FAKE_NVML_STATE"):
        monkeypatch.setenv(name, fake.environ[name])
    async with watching(nats_url) as watcher:
        await _nothing_is_held(watcher.bus)
        yield Node(nats_url, tmp_path, fake, watcher)


async def _nothing_is_held(bus: Bus) -> None:
    """As the scheduler would answer."""

    async def answer(raw: Msg) -> None:
        await raw.respond(encode(ReservationList(reservations=())))

    await bus.nats.subscribe(pattern_for(ListReservations), cb=answer)


def shown(layout: MigLayout) -> list[tuple[str, int, bool]]:
    return [(each.profile, each.start, each.made_by_agent) for each in layout.instances]


async def test_only_own_instances_make_room(
    node: Node,
) -> None:
    node.fake.split(0, "1g.10gb")  # by somebody else, at slice 0
    async with node.agent():
        await node.change(1, "3g.40gb", 4)
        first = await node.layout(1)
        await node.change(2, "4g.40gb", 0, 0)
        refused = await node.layout(2)
        await node.change(3, "2g.20gb", 2, 4)
        last = await node.layout(3)
        await node.change(2, "3g.40gb", 4, 6)  # late, and older
        await node.change(4, "2g.20gb", 4)
        after = await node.layout(4)

    assert shown(first) == [("1g.10gb", 0, False), ("3g.40gb", 4, True)]
    assert shown(refused) == shown(first)
    assert refused.refusal == "the 1g.10gb at slice 0 was not made by the agent"
    assert (shown(last), last.refusal) == ([("1g.10gb", 0, False), ("2g.20gb", 2, True)], "")
    assert shown(after) == [*shown(last), ("2g.20gb", 4, True)]
    assert HealthKind.GPU_LOST not in node.watcher.changes


async def test_what_runs_there_stays(node: Node) -> None:
    async with node.agent():
        await node.change(1, "3g.40gb", 4)
        made = await node.layout(1)
        [instance] = [each for each in node.fake.device(0).instances if each.whole]
        node.fake.run(0, 4_194_304, 100, instance=instance.gpu_instance)
        await eventually(
            lambda: any(gpu.processes for gpu in node.watcher.samples[-1].gpus), what="its process"
        )
        await node.change(2, "7g.80gb", 0, 4)
        after = await node.layout(2)

    assert shown(after) == shown(made)
    assert after.refusal == "the 3g.40gb at slice 4 runs process 4194304"


async def test_refusing_driver_leaves_nothing_half_made(node: Node) -> None:
    node.fake.rule("nvmlGpuInstanceCreateComputeInstance", error=INSUFFICIENT_RESOURCES)
    async with node.agent():
        await node.change(1, "3g.40gb", 4)
        after = await node.layout(1)

    assert shown(after) == []
    assert after.refusal.startswith("the driver refuses")
    assert after.options


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "starts"),
    [
        pytest.param("nvmlDeviceCreateGpuInstanceWithPlacement", [], id="before it is made"),
        pytest.param("nvmlGpuInstanceCreateComputeInstance", [4], id="half made"),
    ],
)
async def test_killed_agent_knows_its_own_instance(
    node: Node, function: str, starts: list[int]
) -> None:
    async with node.agent_process() as process:
        await node.change(1, "1g.10gb", 6)
        await node.layout(1)
        node.fake.rule(function, latency_seconds=60)
        interrupted = asyncio.create_task(node.change(2, "3g.40gb", 4, 6))
        await eventually(
            lambda: node.starts() == starts, within_seconds=30, what="the change to be under way"
        )
        process.kill()
        await process.wait()
        node.fake.clear_rules()
    async with node.agent():
        await interrupted
        made = await node.layout(2)
        await node.change(3, "7g.80gb", 0, 4)
        last = await node.layout(3)

    assert shown(made) == [("3g.40gb", 4, True)]
    assert shown(last) == [("7g.80gb", 0, True)]


async def test_without_the_setting_no_instance_is_made(node: Node) -> None:
    async with node.agent(is_allowed=False):
        before = node.newest()
        await node.change(1, "3g.40gb", 4)
        after = await node.layout(1)

    assert before is None
    assert (after.options, after.instances) == ((), ())
    assert "GPUSTEWARD_TELEMETRY_MIG_INSTANCES" in after.refusal
    assert node.fake.device(0).instance_count == 0
