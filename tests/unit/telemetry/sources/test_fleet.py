"""The simulated fleet's file and its load."""

from dataclasses import replace

import msgspec
import pytest

from schemas.telemetry.readings import GpuReading
from services.telemetry.domain.holdings import Holdings
from services.telemetry.sources.selection import DEFAULT_FLEET
from services.telemetry.sources.simulated.fleet_file import (
    FleetError,
    LoadShape,
    memory_mb,
    parse_fleet,
)
from services.telemetry.sources.simulated.load import DeviceLoad, load_from, warmth_at
from services.telemetry.sources.simulated.simulation import Simulation
from shared.gpu.share_units import (
    DEVICE_PLUGIN_LABEL,
    SHARE_QUANTUM_LABEL,
    SHARES_PER_GPU_LABEL,
    amount_text,
    format_of,
    shares_per_gpu,
)
from shared.ids import new_id

MOCK_ACCELERATOR = """
slot_name = "cuda"
devices = [
{ mother_uuid = "c59395cd-ac91-4cd3-a1b0-3d2568aa2d01", model_name = "CUDA GPU", numa_node = 0, \
subproc_count = 108, memory_size = "2G", is_mig_device = false },
{ mother_uuid = "c59395cd-ac91-4cd3-a1b0-3d2568aa2d02", model_name = "CUDA GPU", numa_node = 1, \
subproc_count = 108, memory_size = "2G", is_mig_device = false },
]
[attributes]
nvidia_driver = "450.00"
[formats]
"""


def series(
    seed: int, ticks: int, *, held_from: int | None = None, held_until: int = 1000
) -> list[GpuReading]:
    """Readings of the example fleet's first device, held for a while."""
    fleet = parse_fleet(DEFAULT_FLEET.read_text())
    fleet = msgspec.structs.replace(fleet, load=msgspec.structs.replace(fleet.load, seed=seed))
    holdings, reservation_id = Holdings(), new_id()
    simulation = Simulation(fleet)
    readings = []
    for tick in range(ticks):
        if tick == held_from:
            holdings.grant(reservation_id, [fleet.devices[0].uuid])
        if tick == held_until:
            holdings.end(reservation_id)
        readings.append(simulation.read(float(tick), holdings.devices).gpus[0])
    return readings


def test_the_mock_accelerator_form_is_read() -> None:
    fleet = parse_fleet(MOCK_ACCELERATOR)

    assert [facts.uuid[-2:] for facts in fleet.devices] == ["01", "02"]
    assert [facts.index for facts in fleet.devices] == [0, 1]
    assert [facts.numa_node for facts in fleet.devices] == [0, 1]
    assert {facts.memory_total_mb for facts in fleet.devices} == {2048}
    assert all(facts.simulated and facts.name == "CUDA GPU" for facts in fleet.devices)
    assert {facts.multiprocessor_count for facts in fleet.devices} == {108}
    assert fleet.driver_version == "450.00"
    assert fleet.load == LoadShape()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param(
            ("[attributes]", 'reserved_memory = "64M"\n[attributes]'),
            "allocation_mode 'fractional'.*`\\$.reserved_memory`",
            id="memory of parts",
        ),
        pytest.param(
            ("is_mig_device = false", 'mig_profile = "1g.5gb"'),
            "only a MIG instance.*`\\$.devices\\[0\\].mig_profile`",
            id="a profile of a whole GPU",
        ),
        pytest.param(
            ('slot_name = "cuda"', 'slot_name = "rocm"'),
            "none of slot 'rocm' - at `\\$.attributes.nvidia_driver`",
            id="another maker's driver",
        ),
        pytest.param(
            ("[formats]", 'driver = "1"\n[formats]'),
            "known: amd_driver, .*, nvidia_driver - at `\\$.attributes.driver`",
            id="an attribute",
        ),
        pytest.param(
            ("numa_node", "display_unit"),
            "known: is_mig_device, memory_size, .* - at `\\$.devices\\[0\\].display_unit`",
            id="a key of a device",
        ),
        pytest.param(("cuda", "tpu"), "rocm.* - at `\\$.slot_name`", id="another slot"),
        pytest.param(
            ("[attributes]", "quantum_size = 0.1\n[attributes]"),
            "allocation_mode 'fractional'.*`\\$.quantum_size`",
            id="a quantum of whole GPUs",
        ),
        pytest.param(
            ("[formats]", "[formats.shares]\nunit = 'share'"),
            "known: description, .*`\\$.formats.*unit`",
            id="a key of a format",
        ),
        pytest.param(
            ("[attributes]", 'unit_mem = "2G"\n[attributes]'),
            "'fractional'.*`\\$.unit_mem`",
            id="units of whole GPUs",
        ),
    ],
)
def test_change_without_effect_is_refused(changed: tuple[str, str], says: str) -> None:
    """An instance once showed free and was never granted."""
    with pytest.raises(FleetError, match=says):
        parse_fleet(MOCK_ACCELERATOR.replace(*changed, 1))


@pytest.mark.parametrize(
    ("units", "label"),
    [
        pytest.param("", None, id="no units: a share is a GPU"),
        pytest.param('unit_mem = "2G"', None, id="the form's own default of processors"),
        pytest.param("unit_proc = 108", None, id="the form's own default of memory"),
        pytest.param('unit_mem = "2G"\nunit_proc = 108', None, id="all of a GPU"),
        pytest.param('unit_mem = "1G"', "2.00", id="half of one"),
        pytest.param('unit_mem = "1G"\nunit_proc = 100', "1.08", id="processors are fewer"),
    ],
)
def test_share_size_is_a_label_of_the_node(units: str, label: str | None) -> None:
    fleet = parse_fleet(f'allocation_mode = "fractional"\n{units}\n{MOCK_ACCELERATOR}')

    assert fleet.labels.get(SHARES_PER_GPU_LABEL) == label


@pytest.mark.parametrize(
    ("units", "says"),
    [
        pytest.param('unit_mem = "511M"', "at least 512 MiB, found 511", id="too little"),
        pytest.param("unit_proc = 1", ">= 2.*unit_proc", id="too few processors"),
        pytest.param('unit_mem = "400G"', "less than 0.01 of a share", id="more than it has"),
        pytest.param("quantum_size = 0", "> 0.*quantum_size", id="no quantum"),
    ],
)
def test_units_that_no_share_has_are_refused(units: str, says: str) -> None:
    with pytest.raises(FleetError, match=says):
        parse_fleet(f'allocation_mode = "fractional"\n{units}\n{MOCK_ACCELERATOR}')


# As the project that it is of publishes it, but for the descriptions.
BACKEND_AI = """
slot_name = "cuda"
device_plugin_name = "CUDADevice"

# is_mig_device config is mandatory only for "cuda" slot
devices = [
  { mother_uuid = "c59395cd-ac91-4cd3-a1b0-3d2568aa2d01", model_name = "CUDA GPU", numa_node = 0, subproc_count = 108, memory_size = "40G", is_mig_device = false },
  { mother_uuid = "c59395cd-ac91-4cd3-a1b0-3d2568aa2d02", model_name = "CUDA GPU", numa_node = 1, subproc_count = 108, memory_size = "40G", is_mig_device = false },
]

[attributes]
nvidia_driver = "450.0.0"
cuda_runtime = "11.0"

[formats.devices]
display_unit = "GPU"
display_icon = "gpu1"
human_readable_name = "GPU"
description = "CUDA-capable GPU"
number_format = { binary = false, round_length = 0 }

[formats.shares]
display_unit = "fGPU"
display_icon = "gpu1"
human_readable_name = "fGPU"
description = "CUDA-capable GPU (fractional)"
number_format = { binary = false, round_length = 2 }
"""  # noqa: E501


@pytest.mark.parametrize("mode", ["discrete", "fractional"])
def test_published_file_loads_with_its_formats(mode: str) -> None:
    fleet = parse_fleet(f'allocation_mode = "{mode}"\n{BACKEND_AI}')

    assert len(fleet.devices) == 2
    assert fleet.labels[DEVICE_PLUGIN_LABEL] == "CUDADevice"
    shares = format_of(fleet.labels, "shares")
    assert shares is not None
    assert (shares.display_unit, shares.display_icon) == ("fGPU", "gpu1")
    assert (shares.human_readable_name, shares.number_format.round_length) == ("fGPU", 2)
    assert amount_text(0.6, fleet.labels, 0) == ("0.60", "fGPU")


def test_amounts_are_shown_in_shares_of_the_file() -> None:
    units = 'allocation_mode = "fractional"\nunit_mem = "20G"\nunit_proc = 2\nquantum_size = 0.1\n'
    fleet = parse_fleet(units + BACKEND_AI)

    assert fleet.labels[SHARES_PER_GPU_LABEL] == "2.00"
    assert fleet.labels[SHARE_QUANTUM_LABEL] == "0.1"
    assert amount_text(0.3, fleet.labels, 1) == ("0.60", "fGPU")


def test_gpus_of_other_sizes_have_own_amounts() -> None:
    other = BACKEND_AI.replace('memory_size = "40G"', 'memory_size = "30G"', 1)
    fleet = parse_fleet(f'allocation_mode = "fractional"\nunit_mem = "20G"\nunit_proc = 2\n{other}')

    assert [shares_per_gpu(fleet.labels, index) for index in (0, 1, 2)] == [1.5, 2.0, 1.0]


WHOLE = '{ mother_uuid = "GPU-a", model_name = "A100", memory_size = "80G" }'
PART = '{ mother_uuid = "GPU-a", model_name = "A100 1g.10gb", memory_size = "9728M"'
INSTANCE = f"{PART}, is_mig_device = true }}"


def test_instances_are_devices_of_a_divided_gpu() -> None:
    whole, *instances = parse_fleet(f"devices = [{WHOLE}, {INSTANCE}, {INSTANCE}]").devices

    assert whole.mig_enabled
    assert [each.parent_uuid for each in instances] == ["GPU-a", "GPU-a"]
    assert [(each.index, each.mig_profile) for each in instances] == [
        (1, "1g.10gb"),
        (2, "1g.10gb"),
    ]
    assert {each.memory_total_mb for each in instances} == {9728}
    assert len({each.uuid for each in (whole, *instances)}) == 3


def test_instance_shows_holder_by_its_memory() -> None:
    simulation = Simulation(parse_fleet(f"devices = [{WHOLE}, {INSTANCE}]"))
    instance = simulation.fleet.devices[1].uuid

    idle = simulation.read(0.0, frozenset()).gpus
    held = simulation.read(1.0, frozenset({instance})).gpus

    assert [gpu.utilization_percent for gpu in idle] == [None, None]
    assert (idle[1].processes, idle[1].memory_used_mb) == ((), 0)
    assert held[1].memory_used_mb == round(9728 * 0.85)


def test_masked_gpus_are_absent() -> None:
    fleet = parse_fleet(
        'allocation_mode = "fractional"\nreserved_memory = "64M"\n'
        'device_mask = "c59395cd-ac91-4cd3-a1b0-3d2568aa2d01"\n' + MOCK_ACCELERATOR
    )

    assert [(facts.uuid[-2:], facts.index) for facts in fleet.devices] == [("02", 0)]
    assert fleet.devices[0].memory_total_mb == 2048 - 64


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            f"devices = [{INSTANCE}, {WHOLE}]",
            r"GPU-a before its MIG instance.*`\$.devices\[0\].mother_uuid`",
            id="without its GPU",
        ),
        pytest.param(
            f"devices = [{WHOLE}, {INSTANCE.replace(' 1g.10gb', '')}]",
            r"a profile such as 1g.10gb.*`\$.devices\[1\].mig_profile`",
            id="without a profile",
        ),
        pytest.param(
            f'device_mask = "GPU-b"\ndevices = [{WHOLE}]', "found GPU-b.*device_mask", id="a mask"
        ),
        pytest.param(
            'allocation_mode = "fractional"\nreserved_memory = "80G"\n' + f"devices = [{WHOLE}]",
            "less than the 81920 MiB.*reserved_memory",
            id="all of its memory",
        ),
    ],
)
def test_what_cannot_be_a_device_is_refused(text: str, says: str) -> None:
    with pytest.raises(FleetError, match=says):
        parse_fleet(text)


def test_the_example_has_two_simulated_h200() -> None:
    fleet = parse_fleet(DEFAULT_FLEET.read_text())

    assert [facts.name for facts in fleet.devices] == ["Simulated H200"] * 2
    assert {facts.memory_total_mb for facts in fleet.devices} == {143771}


@pytest.mark.parametrize(
    ("size", "want"),
    [
        ("2G", 2048),
        ("2GiB", 2048),
        ("512M", 512),
        ("0.5T", 524288),
        (1 << 30, 1024),
        ("1048576", 1),
    ],
)
def test_a_size_is_whole_mebibytes(size: str | int, want: int) -> None:
    assert memory_mb(size, "$") == want


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("devices = [", "end of document", id="no TOML"),
        pytest.param("slot_name = 'cuda'", "devices", id="no devices"),
        pytest.param("devices = []", "devices", id="an empty fleet"),
        pytest.param(MOCK_ACCELERATOR + "[burden]\nseed = 1", "burden", id="an unknown section"),
        pytest.param(MOCK_ACCELERATOR + "[load]\nsede = 1", "sede", id="a misspelt setting"),
        pytest.param(MOCK_ACCELERATOR + "[load]\nseed = 'x'", r"\$\.load\.seed", id="a wrong type"),
        pytest.param(
            MOCK_ACCELERATOR + "[load]\nheld_memory_percent = 101", "<= 100", id="beyond all memory"
        ),
        pytest.param(MOCK_ACCELERATOR.replace("2d02", "2d01"), "twice", id="one uuid twice"),
        pytest.param(
            MOCK_ACCELERATOR.replace('"2G"', '"two"'), r"\$\.devices\[0\]\.memory_size", id="a size"
        ),
    ],
)
def test_a_wrong_fleet_is_refused_with_the_place(text: str, complaint: str) -> None:
    with pytest.raises(FleetError, match=complaint):
        parse_fleet(text)


def test_same_seed_gives_the_same_series() -> None:
    one, again = series(7, 30, held_from=5), series(7, 30, held_from=5)
    other = series(8, 30, held_from=5)

    assert one == again
    assert one != other


def test_an_idle_device_shows_no_load() -> None:
    readings = series(1, 20)

    assert {reading.utilization_percent for reading in readings} == {0}
    assert {reading.memory_used_mb for reading in readings} == {620}
    assert all(70 < (reading.power_draw_w or 0) < 85 for reading in readings)


def test_held_device_ramps_up_ended_is_empty() -> None:
    readings = series(1, 80, held_from=10, held_until=50)

    used = [reading.memory_used_mb or 0 for reading in readings]
    assert used[9] < used[12] < used[20] == used[49]
    assert used[20] == pytest.approx(0.85 * 143771, abs=1)
    assert used[50] == used[0]
    busy = [reading.utilization_percent or 0 for reading in readings[20:50]]
    assert 80 < min(busy) < max(busy) <= 100
    assert readings[50].utilization_percent == 0
    temperature = [reading.temperature_c or 0 for reading in readings]
    assert temperature[0] < temperature[20] < temperature[49]
    assert temperature[50] > temperature[79]


def test_energy_never_falls_power_stays_limited() -> None:
    readings = series(3, 60, held_from=5, held_until=40)

    energy = [reading.energy_mj or 0 for reading in readings]
    assert energy == sorted(energy)
    assert energy[-1] > 35 * 500_000
    assert all(0 < (reading.power_draw_w or 0) <= 700 for reading in readings)


def test_warmth_goes_on_from_where_it_was() -> None:
    shape = LoadShape(thermal_seconds=10)
    held = load_from(DeviceLoad(), shape, is_held=True, seconds=5)
    idle = load_from(held, shape, is_held=False, seconds=12)

    assert warmth_at(held, shape, 12) == pytest.approx(idle.warmth)
    assert load_from(idle, shape, is_held=False, seconds=20) is idle
    assert replace(idle) == idle
