"""What every source does that divides GPUs: NVML, over a fake library, and the simulated one."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from schemas.errors import ErrorCode
from schemas.gpus.mig import MigLayout
from services.telemetry.domain.holdings import Holdings
from services.telemetry.sources.nvml.source import NvmlSource
from services.telemetry.sources.simulated.fleet_file import parse_fleet
from services.telemetry.sources.simulated.simulation import Simulation
from services.telemetry.sources.simulated.source import SimulatedSource
from services.telemetry.sources.source import MigDriver
from shared.errors import RefusedError
from tests.support.fakes.nvml import FakeNvml

GPU = "GPU-fa4e0000-0000-0000-0000-000000000000"
Driver = NvmlSource | SimulatedSource


def _nvml(directory: Path) -> Driver:
    fake = FakeNvml(directory, gpus=1)
    fake.split(0)
    return NvmlSource(
        deadline_seconds=5, open_deadline_seconds=10, environ=fake.environ, with_mig_layouts=True
    )


def _simulated(_: Path) -> Driver:
    device = f'mother_uuid = "{GPU}", model_name = "H100", memory_size = "80G", mig_enabled = true'
    simulation = Simulation(parse_fleet(f"devices = [{{ {device} }}]"))
    return SimulatedSource(
        simulation, Holdings(), lambda: 0.0, interval_seconds=1.0, deadline_seconds=5.0
    )


@pytest.fixture(params=[_nvml, _simulated], ids=lambda make: make.__name__[1:])
async def driver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Driver]:
    make: Callable[[Path], Driver] = request.param
    source = make(tmp_path)
    await source.open()
    await source.inventory()
    try:
        yield source
    finally:
        await source.close()


async def layout(driver: Driver) -> MigLayout:
    [gpu] = [each for each in (await driver.inventory()).devices if each.parent_uuid is None]
    assert gpu.mig_layout is not None
    return gpu.mig_layout


async def places(driver: Driver) -> list[tuple[str, int, int]]:
    return [(each.profile, each.start, each.size) for each in (await layout(driver)).instances]


async def test_mig_gpu_tells_its_options(driver: Driver) -> None:
    options = {each.profile: each for each in (await layout(driver)).options}

    assert options["3g.40gb"].starts == (0, 4)
    assert options["1g.10gb"].starts == (0, 1, 2, 3, 4, 5, 6)
    assert [options[name].size for name in ("1g.10gb", "2g.20gb", "7g.80gb")] == [1, 2, 8]
    assert options["4g.40gb"].limit == 1
    assert 40_000 <= (options["3g.40gb"].memory_mb or 0) <= 41_000


async def test_instance_is_made_and_is_a_device(driver: Driver) -> None:
    assert isinstance(driver, MigDriver)
    await driver.make_mig(GPU, "3g.40gb", 4)
    await driver.make_mig(GPU, "1g.10gb", 2)

    inventory = await driver.inventory()
    made = {each.mig_profile: each for each in inventory.devices if each.parent_uuid == GPU}
    assert await places(driver) == [("1g.10gb", 2, 1), ("3g.40gb", 4, 4)]
    assert made.keys() == {"1g.10gb", "3g.40gb"}
    assert 40_000 <= (made["3g.40gb"].memory_total_mb or 0) <= 41_000
    assert _uuids(await layout(driver)) == {each.uuid for each in made.values()}
    read = {gpu.uuid for gpu in (await driver.read()).gpus}
    assert read == {GPU, *(each.uuid for each in made.values())}


def _uuids(found: MigLayout) -> set[str]:
    return {uuid for each in found.instances for uuid in each.device_uuids}


async def test_done_twice_it_changes_nothing(driver: Driver) -> None:
    for _ in range(2):
        await driver.make_mig(GPU, "2g.20gb", 0)
    made = await places(driver)
    for _ in range(2):
        await driver.remove_mig(GPU, 0)

    assert made == [("2g.20gb", 0, 2)]
    assert await places(driver) == []


@pytest.mark.parametrize(
    ("uuid", "profile", "start", "codes"),
    [
        pytest.param(GPU, "4g.40gb", 0, {ErrorCode.CONFLICT}, id="no room"),
        pytest.param(
            GPU, "3g.99gb", 4, {ErrorCode.NOT_FOUND, ErrorCode.CONFLICT}, id="no such profile"
        ),
        pytest.param("GPU-nowhere", "3g.40gb", 4, {ErrorCode.NOT_FOUND}, id="no such GPU"),
    ],
)
async def test_impossible_instance_changes_nothing(
    driver: Driver, uuid: str, profile: str, start: int, codes: set[ErrorCode]
) -> None:
    await driver.make_mig(GPU, "2g.20gb", 2)

    with pytest.raises(RefusedError) as refusal:
        await driver.make_mig(uuid, profile, start)

    assert refusal.value.code in codes
    assert await places(driver) == [("2g.20gb", 2, 2)]


async def test_removed_instance_frees_its_room(driver: Driver) -> None:
    for start in (0, 2, 4):
        await driver.make_mig(GPU, "2g.20gb", start)
    for start in (0, 2):
        await driver.remove_mig(GPU, start)
    await driver.make_mig(GPU, "4g.40gb", 0)

    assert await places(driver) == [("4g.40gb", 0, 4), ("2g.20gb", 4, 2)]
