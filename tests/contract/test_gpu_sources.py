"""What every source of GPU readings keeps, whatever it reads from."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from schemas.telemetry import GpuSampled
from services.telemetry.choice import DEFAULT_FLEET
from services.telemetry.domain.fleet import parse_fleet
from services.telemetry.domain.holdings import Holdings
from services.telemetry.domain.simulation import Simulation
from services.telemetry.nothing import NoSource
from services.telemetry.nvidia_smi import NvidiaSmiSource
from services.telemetry.nvml import NvmlSource
from services.telemetry.ports import GpuSource
from services.telemetry.simulated import FleetClock, SimulatedSource
from shared.clock import utcnow
from shared.codec import encode
from shared.ids import new_id
from tests.fake_nvml import FakeNvml
from tests.fake_smi import FakeSmi, make_gpu


@dataclass(frozen=True)
class Case:
    """A way to make one kind of source, and how many GPUs it then has."""

    make: Callable[[], GpuSource]
    gpus: int


def _nvml(directory: Path) -> Case:
    fake = FakeNvml(directory, gpus=3)
    return Case(
        lambda: NvmlSource(deadline_seconds=5, open_deadline_seconds=10, environ=fake.environ), 3
    )


def _nvidia_smi(directory: Path) -> Case:
    smi = FakeSmi(directory)
    smi.answer([make_gpu(1, "GPU-b"), make_gpu(0, "GPU-a", utilization__gpu="[N/A]")])
    return Case(lambda: NvidiaSmiSource(smi.path, deadline_seconds=5), 2)


def _simulated(_: Path) -> Case:
    fleet = parse_fleet(DEFAULT_FLEET.read_text())
    simulation, clock = Simulation(fleet), FleetClock()
    return Case(
        lambda: SimulatedSource(
            simulation, Holdings(), clock, interval_seconds=1.0, deadline_seconds=1.0
        ),
        2,
    )


def _none(_: Path) -> Case:
    return Case(NoSource, 0)


@pytest.fixture(params=[_nvml, _nvidia_smi, _simulated, _none], ids=lambda make: make.__name__[1:])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    made: Case = request.param(tmp_path)
    return made


@asynccontextmanager
async def opened(case: Case) -> AsyncIterator[GpuSource]:
    source = case.make()
    await source.open()
    try:
        yield source
    finally:
        await source.close()


async def test_inventory_names_every_device_once_in_the_order_of_indices(case: Case) -> None:
    async with opened(case) as source:
        inventory = await source.inventory()

    assert [device.index for device in inventory.devices] == list(range(case.gpus))
    assert len({device.uuid for device in inventory.devices}) == case.gpus
    assert all(device.name for device in inventory.devices)


async def test_a_reading_has_the_devices_of_the_inventory(case: Case) -> None:
    async with opened(case) as source:
        inventory = await source.inventory()
        reading = await source.read()

    found = [(gpu.index, gpu.uuid, gpu.name) for gpu in reading.gpus]
    assert found == [(facts.index, facts.uuid, facts.name) for facts in inventory.devices]
    assert reading.lost == {}


async def test_memory_adds_up_to_no_more_than_there_is(case: Case) -> None:
    async with opened(case) as source:
        await source.inventory()
        reading = await source.read()

    for gpu in reading.gpus:
        assert gpu.memory_total_mb is not None
        assert (gpu.memory_used_mb or 0) + (gpu.memory_free_mb or 0) <= gpu.memory_total_mb


async def test_a_reading_survives_the_wire(case: Case) -> None:
    async with opened(case) as source:
        await source.inventory()
        reading = await source.read()

    sample = GpuSampled(
        node_id="node-a",
        boot_id=new_id(),
        sequence=1,
        observed_at=utcnow(),
        interval_seconds=1.0,
        source=source.source,
        gpus=reading.gpus,
    )
    assert msgspec.msgpack.decode(encode(sample), type=GpuSampled) == sample


async def test_devices_are_marked_simulated_where_they_are_and_only_there(case: Case) -> None:
    async with opened(case) as source:
        inventory = await source.inventory()

    simulated = source.source == "simulated"
    assert all(device.simulated is simulated for device in inventory.devices)


async def test_a_source_can_be_closed_twice_and_replaced_by_another(case: Case) -> None:
    source = case.make()
    await source.open()
    await source.close()
    await source.close()

    async with opened(case) as another:
        await another.inventory()
        assert len((await another.read()).gpus) == case.gpus
