"""A simulated fleet: its recording, its faults and its power limits, second by second."""

import gzip
import os
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

import schemas
from schemas.errors import ErrorCode
from schemas.telemetry.readings import GpuReading, HealthAction, HealthKind, LinkKind
from services.telemetry.domain.xid import advice
from services.telemetry.settings import TelemetrySettings
from services.telemetry.sources.selection import read_simulation
from services.telemetry.sources.simulated.fault_script import (
    READABLE,
    FaultKind,
    FaultSchedule,
    ScriptedFault,
)
from services.telemetry.sources.simulated.fleet_file import FleetError, parse_fleet
from services.telemetry.sources.simulated.recording import RecordingError, Replay, parse_recording
from services.telemetry.sources.simulated.simulation import Simulation
from shared.errors import RefusedError
from shared.settings import SettingsError

EXAMPLES = Path(schemas.__file__).parent / "examples"
NOBODY: frozenset[str] = frozenset()
DEVICES = """
devices = [
  { mother_uuid = "GPU-a", model_name = "Simulated", memory_size = "80G" },
  { mother_uuid = "GPU-b", model_name = "Simulated", memory_size = "80G" },
]
"""
RECORDING = """\
t_seconds,device,utilization_percent,memory_used_mb,power_draw_w
0,10,0,1000.4,
0,2,50,2000,300
60,10,80,3000,100
60,2,,2500,310
"""


def fleet_with(*sections: str, seed: int = 1) -> Simulation:
    return Simulation(parse_fleet("\n".join([DEVICES, f"[load]\nseed = {seed}", *sections])))


def replaying(plan: str = "", recording: str = RECORDING) -> Simulation:
    fleet = parse_fleet(f'{DEVICES}\n[replay]\nfile = "x.csv"\n{plan}')
    assert fleet.replay is not None
    recorded = parse_recording(recording.splitlines())
    return Simulation(fleet, Replay(fleet.replay, recorded, fleet.devices))


def read(simulation: Simulation, seconds: float) -> list[GpuReading]:
    return list(simulation.read(seconds, NOBODY).gpus)


def settings_for(fleet: Path) -> TelemetrySettings:
    return TelemetrySettings(node_id="node-a", fleet=str(fleet))


# Recordings


def test_devices_replay_recorded_ones_in_order() -> None:
    simulation = replaying()

    first, second = read(simulation, 0.0)
    assert (first.utilization_percent, first.memory_used_mb) == (50, 2000)
    assert (second.utilization_percent, second.memory_used_mb) == (0, 1000)
    assert first.memory_free_mb == 81920 - 2000
    assert read(simulation, 59.9)[1].memory_used_mb == 1000
    assert read(simulation, 60.0)[1].memory_used_mb == 3000


def test_numbered_recordings_precede_named_ones() -> None:
    rows = ["t_seconds,device,memory_used_mb", "0,a,3", "0,10,2", "0,9,1"]

    first, second = read(replaying(recording="\n".join(rows[:1] + rows[2:])), 0.0)
    mixed = read(replaying(recording="\n".join(rows[:3])), 0.0)

    assert (first.memory_used_mb, second.memory_used_mb) == (1, 2)
    assert [reading.memory_used_mb for reading in mixed] == [2, 3]


def test_what_was_not_recorded_is_unknown() -> None:
    simulation = replaying()

    assert read(simulation, 60.0)[0].utilization_percent is None
    assert read(simulation, 0.0)[1].power_draw_w is None
    reading = read(simulation, 0.0)[0]
    known = {name for name in READABLE if getattr(reading, name) is not None}
    told = {"utilization_percent", "memory_used_mb", "memory_free_mb", "power_draw_w"}
    assert known == told | {"memory_total_mb", "power_limit_w", "name"}


@pytest.mark.parametrize(
    ("at_end", "want"), [("loop", [50, 50]), ("hold", [None, 2500]), ("stop", [None, None])]
)
def test_a_recording_ends_as_the_plan_says(at_end: str, want: list[int | None]) -> None:
    """It is 120 s long: the last row stands for as long as the step before it."""
    simulation = replaying(f'at_end = "{at_end}"')

    reading = read(simulation, 125.0)[0]

    assert reading.utilization_percent == want[0]
    used = 2000 if at_end == "loop" else want[1]
    assert reading.memory_used_mb == used


def test_recording_starts_with_its_first_row() -> None:
    late = RECORDING.replace("\n60,", "\n160,").replace("\n0,", "\n100,")

    reading = read(replaying(recording=late), 125.0)[0]

    assert reading.utilization_percent == 50


def test_a_recording_of_one_row_lasts() -> None:
    simulation = replaying(recording="\n".join(RECORDING.splitlines()[:3]))

    assert read(simulation, 7.3)[0].utilization_percent == 50


def test_recorded_memory_must_fit_its_device() -> None:
    with pytest.raises(RecordingError, match="has 90000"):
        replaying(recording=RECORDING.replace("3000", "90000"))


def test_speed_and_start_move_through_the_recording() -> None:
    simulation = replaying("speed = 10\nstart_seconds = 30")

    assert read(simulation, 2.9)[1].memory_used_mb == 1000
    assert read(simulation, 3.0)[1].memory_used_mb == 3000


def test_device_gets_its_named_recording() -> None:
    simulation = replaying('devices = { "GPU-a" = "10" }')

    assert [reading.memory_used_mb for reading in read(simulation, 0.0)] == [1000, 2000]


def test_grants_do_not_change_what_was_recorded() -> None:
    simulation = replaying()

    assert simulation.read(0.0, frozenset({"GPU-a"})) == replaying().read(0.0, NOBODY)


@pytest.mark.parametrize(
    ("recording", "complaint"),
    [
        ("", "line 1: expected t_seconds"),
        ("t_seconds,device,mood\n0,0,1\n", "line 1.*mood"),
        ("t_seconds,device\n", "line 2: expected a row"),
        ("t_seconds,device,utilization_percent\n0,0\n", "line 2: expected 3 values"),
        ("t_seconds,device,utilization_percent\n0,0,1\n0,0,2\n", "line 3: expected a later time"),
        ("t_seconds,device,utilization_percent\n0,0,busy\n", "line 2.*'busy'"),
        ("t_seconds,device,utilization_percent\n0,0,-1\n", "line 2.*'-1'"),
        ("t_seconds,device,memory_used_mb\n0,0,99999\n", "at most 81920 MiB on GPU-a"),
    ],
)
def test_a_wrong_recording_is_refused_with_the_line(recording: str, complaint: str) -> None:
    with pytest.raises(RecordingError, match=complaint):
        replaying(recording=recording)


@pytest.mark.parametrize("plan", ['devices = { "GPU-x" = "2" }', 'devices = { "GPU-a" = "3" }'])
def test_plan_for_missing_devices_is_refused(plan: str) -> None:
    with pytest.raises(RecordingError, match="expected a"):
        replaying(plan)


def test_compressed_recording_is_read(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(f'{DEVICES}\n[replay]\nfile = "recording.csv.gz"\n')
    (tmp_path / "recording.csv.gz").write_bytes(gzip.compress(RECORDING.encode()))

    assert read(read_simulation(settings_for(fleet)), 0.0)[0].memory_used_mb == 2000

    (tmp_path / "recording.csv.gz").write_bytes(gzip.compress(RECORDING.encode())[:-9])
    with pytest.raises(SettingsError, match="end-of-stream"):
        read_simulation(settings_for(fleet))


def test_a_production_recording_is_replayed(tmp_path: Path) -> None:
    folder = os.environ.get("GPUSTEWARD_TEST_DATA")
    recording = Path(folder or "/nowhere") / "gpu-telemetry" / "serving-pods.csv.gz"
    if not recording.is_file():
        pytest.skip("needs a recording: set GPUSTEWARD_TEST_DATA to the folder of gpu-telemetry")
    fleet = tmp_path / "fleet.toml"
    devices = ",".join(
        f'{{ mother_uuid = "GPU-{number}", model_name = "S", memory_size = "141G" }}'
        for number in range(16)
    )
    fleet.write_text(f'devices = [{devices}]\n[replay]\nfile = "{recording}"\n')
    simulation = read_simulation(settings_for(fleet))

    at_start, at_end = read(simulation, 0.0), read(simulation, 82_079.0)

    assert at_start[0].memory_used_mb == 32310
    assert at_start != at_end
    assert all(reading.temperature_c is None for reading in at_start)


# Faults


def test_xid_is_told_once_each_time() -> None:
    simulation = fleet_with(
        '[[fault]]\nkind = "xid"\nxid = 79\ndevice = 1\nat_seconds = 5\nrepeat_every_seconds = 10'
    )

    told = [simulation.read(seconds, NOBODY).faults for seconds in (4.9, 5.0, 5.1, 15.0, 36.0)]

    assert [len(faults) for faults in told] == [0, 1, 0, 1, 2]
    fault = told[1][0]
    assert (fault.device_uuid, fault.change, fault.xid) == ("GPU-b", HealthKind.XID, 79)
    assert fault.action is advice(79).action


def test_only_present_devices_report_xids() -> None:
    simulation = fleet_with(
        '[[fault]]\nkind = "xid"\nxid = 79\ndevice = 1\nat_seconds = 5',
        '[[fault]]\nkind = "vanish"\ndevice = 1\nat_seconds = 4',
        '[[fault]]\nkind = "ecc_storm"\ndevice = 0\nat_seconds = 5\ncorrected_per_second = 20',
    )

    assert simulation.read(6.0, NOBODY).faults == ()


def test_a_script_may_say_what_to_do_about_an_xid() -> None:
    simulation = fleet_with('[[fault]]\nkind = "xid"\nxid = 79\ndevice = 1\naction = "ignore"')

    (fault,) = simulation.read(0.0, NOBODY).faults

    assert (fault.action, fault.action_source) == (
        HealthAction.IGNORE,
        "scripted in the simulated fleet",
    )


def test_a_storm_raises_counters_that_never_fall() -> None:
    simulation = fleet_with(
        '[[fault]]\nkind = "ecc_storm"\ndevice = "GPU-a"\nat_seconds = 10\nduration_seconds = 5\n'
        "corrected_per_second = 20\nuncorrected = 3\nrepeat_every_seconds = 100"
    )

    readings = [read(simulation, float(second)) for second in range(130)]

    counts = [reading[0].ecc_corrected or 0 for reading in readings]
    assert (counts[9], counts[12], counts[15], counts[50]) == (0, 40, 100, 100)
    assert counts[129] == 200
    assert all(after >= before for before, after in pairwise(counts))
    assert [readings[second][0].ecc_uncorrected for second in (9, 10, 110)] == [0, 3, 6]
    assert readings[129][1].ecc_corrected == 0


def test_storm_adds_to_recorded_errors() -> None:
    recording = "t_seconds,device,ecc_corrected,ecc_uncorrected\n0,2,30,4\n0,10,,\n"
    storms = [
        f'[[fault]]\nkind = "ecc_storm"\ndevice = {device}\nduration_seconds = 5\n'
        "corrected_per_second = 20\nuncorrected = 3"
        for device in (0, 1)
    ]

    known, unknown = read(replaying("\n".join(storms), recording), 10.0)

    assert (known.ecc_corrected, known.ecc_uncorrected) == (130, 7)
    assert (unknown.ecc_corrected, unknown.ecc_uncorrected) == (100, 3)


def test_a_hung_device_hides_no_other() -> None:
    simulation = fleet_with(
        '[[fault]]\nkind = "hang"\ndevice = 0\nat_seconds = 3\nduration_seconds = 4'
    )

    scene = simulation.read(3.0, NOBODY)

    assert [reading.uuid for reading in scene.gpus] == ["GPU-b"]
    assert scene.hung.keys() == {"GPU-a"}
    assert not simulation.hangs(3.0)
    assert len(simulation.devices(3.0)) == 2
    assert simulation.read(7.0, NOBODY).hung == {}


def test_driver_hangs_or_fails_as_scripted() -> None:
    simulation = fleet_with(
        '[[fault]]\nkind = "hang"\nat_seconds = 3\nduration_seconds = 4',
        '[[fault]]\nkind = "fail"\nat_seconds = 9',
    )

    assert [simulation.hangs(second) for second in (2.9, 3.0, 6.9, 7.0)] == [0, 1, 1, 0]
    assert [simulation.fails(second) for second in (8.9, 9.0, 9999.0)] == [0, 1, 1]


def test_vanished_device_is_lost_and_unlisted() -> None:
    simulation = fleet_with(
        '[[fault]]\nkind = "vanish"\ndevice = 1\nat_seconds = 1\nduration_seconds = 1'
    )

    scene = simulation.read(1.0, NOBODY)

    assert scene.lost.keys() == {"GPU-b"}
    assert [facts.uuid for facts in simulation.devices(1.0)] == ["GPU-a"]
    assert len(simulation.read(2.0, NOBODY).gpus) == 2


def test_divided_gpu_is_listed_with_instances() -> None:
    simulation = fleet_with(
        '[[fault]]\nkind = "mig_change"\ndevice = 0\nprofile = "2g.20gb"\ninstances = 3\n'
        "at_seconds = 1\nduration_seconds = 1"
    )

    devices, scene = simulation.devices(1.0), simulation.read(1.0, NOBODY)

    assert [facts.index for facts in devices] == [0, 1, 2, 3, 4]
    assert [reading.uuid for reading in scene.gpus] == [facts.uuid for facts in devices]
    assert (devices[0].mig_enabled, devices[1].mig_enabled) == (True, False)
    assert {facts.parent_uuid for facts in devices[2:]} == {"GPU-a"}
    assert {facts.mig_profile for facts in devices[2:]} == {"2g.20gb"}
    assert all(facts.simulated and facts.memory_total_mb == 20480 for facts in devices[2:])
    assert scene.gpus[0].utilization_percent is None
    assert len(simulation.devices(2.0)) == 2
    assert simulation.devices(1.5) == devices


def test_divisible_gpu_divides_its_own_memory() -> None:
    divided = DEVICES.replace("}", ", mig_enabled = true }").replace("80G", "40G", 1)
    simulation = Simulation(parse_fleet(divided))

    layouts = [facts.mig_layout for facts in simulation.devices(0.0)]

    assert [layout and layout.options[0].profile for layout in layouts] == ["1g.5gb", "1g.10gb"]


def test_readings_lie_around_those_of_a_held_device() -> None:
    simulation = fleet_with("held_utilization_percent = 50\nheld_temperature_c = 70")
    held = frozenset({"GPU-a"})
    simulation.read(0.0, held)

    readings = [simulation.read(1000.0 + second, held).gpus[0] for second in range(400)]

    for name, middle, most in (("utilization_percent", 50, 6), ("temperature_c", 70, 1)):
        found = [getattr(reading, name) for reading in readings]
        assert statistics.mean(found) == pytest.approx(middle, abs=most / 5)
        assert middle - most <= min(found) < max(found) <= middle + most
    power = [reading.power_draw_w or 0.0 for reading in readings]
    assert statistics.mean(power) == pytest.approx((76 + 610) / 2, rel=0.02)


def test_only_unavailable_fields_are_unknown() -> None:
    spoilt = fleet_with('[[fault]]\nkind = "not_available"\nfields = ["power_draw_w"]\ndevice = 0')
    first, second = read(spoilt, 1.0)
    whole, also_whole = read(fleet_with(), 1.0)

    assert first.power_draw_w is None
    assert first.temperature_c == whole.temperature_c
    assert second == also_whole


def test_script_times_follow_the_seed() -> None:
    fault = ScriptedFault(
        kind=FaultKind.XID, xid=31, device=0, repeat_every_seconds=10, jitter_seconds=5
    )

    def starts(seed: int) -> list[int]:
        line = FaultSchedule(fault, seed, 0)
        begun = [line.count_beginnings(step / 10) for step in range(1000)]
        return [step for step, (one, other) in enumerate(pairwise(begun)) if other > one]

    assert starts(1) == starts(1) != starts(2)
    assert len(starts(1)) == 10
    assert all(0 <= start - 100 * time <= 50 for time, start in enumerate(starts(1)))


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ('kind = "explode"', r"\$\.fault\[0\]\.kind"),
        ('kind = "vanish"', "expected a device"),
        ('kind = "vanish"\ndevice = 2', "one of 2 devices, found 2"),
        ('kind = "vanish"\ndevice = "GPU-c"', "found 'GPU-c'"),
        ('kind = "fail"\ndevice = 0', "expected no device"),
        ('kind = "xid"\ndevice = 0', "expected an xid"),
        ('kind = "not_available"', "expected fields"),
        ('kind = "not_available"\nfields = ["uuid"]', r"found \['uuid'\]"),
        ('kind = "hang"\nrepeat_every_seconds = 5', "expected a duration"),
        ('kind = "hang"\nrepeat_every_seconds = 5\nduration_seconds = 6', "within 5 s"),
        (
            'kind = "hang"\nrepeat_every_seconds = 5\nduration_seconds = 4\njitter_seconds = 2',
            "within 5 s",
        ),
        ('kind = "mig_change"\ndevice = 0\nprofile = "big"', "profile"),
    ],
)
def test_a_wrong_fault_is_refused_with_the_place(fault: str, complaint: str) -> None:
    with pytest.raises(FleetError, match=complaint) as refusal:
        fleet_with(f"[[fault]]\n{fault}")

    assert "$.fault[0]" in str(refusal.value)


# Power


def test_power_limit_caps_draw_until_removed() -> None:
    simulation, held = fleet_with(), frozenset({"GPU-a"})
    simulation.read(0.0, held)
    free = simulation.read(30.0, held).gpus[0]

    assert simulation.set_power_limit("GPU-a", 300.0, 31.0) == 700
    capped = simulation.read(40.0, held).gpus[0]
    assert simulation.set_power_limit("GPU-a", None, 41.0) == 300
    restored = simulation.read(50.0, held).gpus[0]

    assert (free.power_draw_w or 0) > 500
    assert (capped.power_draw_w, capped.power_limit_w) == (300, 300)
    assert capped.throttle_reasons == ("sw_power_cap",)
    assert (capped.sm_clock_mhz or 0) < (free.sm_clock_mhz or 0)
    assert (restored.power_draw_w or 0) > 500
    assert restored.power_limit_w == 700


def test_locked_clock_lowers_draw_until_unlocked() -> None:
    simulation, held = fleet_with(), frozenset({"GPU-a"})
    simulation.read(0.0, held)
    free = simulation.read(30.0, held).gpus[0]

    simulation.set_sm_clock("GPU-a", 990, 31.0)
    locked = simulation.read(40.0, held).gpus[0]
    simulation.set_sm_clock("GPU-a", None, 41.0)
    unlocked = simulation.read(50.0, held).gpus[0]

    assert (free.sm_clock_mhz, locked.sm_clock_mhz, unlocked.sm_clock_mhz) == (1980, 990, 1980)
    assert 300 < (locked.power_draw_w or 0) < 360
    assert (unlocked.power_draw_w or 0) > 500


@pytest.mark.parametrize(
    ("uuid", "watts", "code"),
    [
        ("GPU-a", 199.0, ErrorCode.BAD_REQUEST),
        ("GPU-a", 701.0, ErrorCode.BAD_REQUEST),
        ("GPU-x", 300.0, ErrorCode.NOT_FOUND),
    ],
)
def test_a_power_limit_beyond_the_device_is_refused(
    uuid: str, watts: float, code: ErrorCode
) -> None:
    simulation = fleet_with()

    with pytest.raises(RefusedError) as refusal:
        simulation.set_power_limit(uuid, watts, 0.0)

    assert refusal.value.code is code
    limits = {"minimum_w": 200.0, "maximum_w": 700.0}
    assert refusal.value.details == (limits if code is ErrorCode.BAD_REQUEST else {})
    assert simulation.read(1.0, NOBODY).gpus[0].power_limit_w == 700


def test_energy_is_power_over_time() -> None:
    fine, coarse = fleet_with(), fleet_with()

    for tenth in range(600):
        fine.read(tenth / 10, NOBODY)
    for second in range(60):
        coarse.read(float(second), NOBODY)

    energy = [simulation.read(60.0, NOBODY).gpus[0].energy_mj for simulation in (fine, coarse)]
    assert energy == pytest.approx([60 * 76_000] * 2, rel=0.02)


# Topology


def test_first_link_naming_a_pair_counts() -> None:
    fleet = parse_fleet(
        DEVICES
        + """
        [[link]]
        devices = [1, 0]
        kind = "nvlink"
        nvlinks = 18
        [[link]]
        devices = [0, 1]
        kind = "sys"
        """
    )

    (link,) = fleet.links
    assert (link.first_uuid, link.second_uuid) == ("GPU-a", "GPU-b")
    assert (link.kind, link.nvlinks) == (LinkKind.NVLINK, 18)
    with pytest.raises(FleetError, match=r"below 2 - at `\$\.link\[0\]"):
        fleet_with('[[link]]\ndevices = [0, 2]\nkind = "sys"')


# Examples


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_an_example_can_be_loaded_and_read(path: Path) -> None:
    simulation = read_simulation(settings_for(path))

    scenes = [simulation.read(float(second), NOBODY) for second in range(300)]

    assert all(scene.gpus for scene in scenes)
    assert all(facts.simulated for facts in simulation.devices(0.0))


def test_the_example_of_faults_has_every_kind() -> None:
    fleet = parse_fleet((EXAMPLES / "fleet-faults.toml").read_text())

    assert {fault.kind for fault in fleet.faults} == set(FaultKind)
