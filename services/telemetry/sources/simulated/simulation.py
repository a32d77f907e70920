"""A fleet that does not exist, as it is at some second of its life."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from schemas.gpus.mig import MigInstance, MigLayout, MigOption
from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.domain.faults import Fault
from services.telemetry.domain.mig_instances import with_another
from services.telemetry.domain.mig_profiles import usual_options
from services.telemetry.domain.power_range import check_clock, limit_for
from services.telemetry.domain.xid import xid_fault
from services.telemetry.sources.simulated.fault_script import (
    FaultKind,
    FaultSchedule,
    ScriptedFault,
    device_of,
)
from services.telemetry.sources.simulated.fleet_file import Fleet, instance_of
from services.telemetry.sources.simulated.load import DeviceLoad, load_from, reading_at
from services.telemetry.sources.simulated.recording import Replay

SCRIPTED: Final = "scripted in the simulated fleet"
SLICES: Final = 8  # of a GPU's memory
_MAX_AT_ONCE: Final = 8
_PROFILE = re.compile(r"^\d+g\.(\d+)gb$")
_GIB_IN_MIB: Final = 1024


@dataclass(frozen=True, slots=True)
class FleetReading:
    """Readings by index; devices without one, each with the reason."""

    gpus: tuple[GpuReading, ...]
    lost: dict[str, str]
    hung: dict[str, str]
    faults: tuple[Fault, ...]


class Simulation:
    """The state of a fleet that outlives its source: energy, limits, counters, time.

    Seconds count from the fleet's start and never fall.
    """

    def __init__(self, fleet: Fleet, replay: Replay | None = None) -> None:
        self.fleet = fleet
        uuids = [facts.uuid for facts in fleet.devices]
        self._schedules = [
            (FaultSchedule(fault, fleet.load.seed, place), device_of(fault, uuids))
            for place, fault in enumerate(fleet.faults)
        ]
        self._replay = replay
        self._reported = [0] * len(fleet.faults)
        self._loads = dict.fromkeys(uuids, DeviceLoad())
        self._energy_mj = dict.fromkeys(uuids, 0.0)
        self._limits: dict[str, float] = {}
        self._clocks_mhz: dict[str, int] = {}
        self._last_seconds = 0.0
        self._mig: dict[str, tuple[MigInstance, ...]] = {
            facts.uuid: ()
            for facts in fleet.devices
            if facts.mig_enabled and not any(d.parent_uuid == facts.uuid for d in fleet.devices)
        }

    def hangs(self, seconds: float) -> bool:
        """True while the whole driver does not return."""
        return any(device is None for _, device in self._on(FaultKind.HANG, seconds))

    def fails(self, seconds: float) -> bool:
        """True while the whole driver answers with an error."""
        return bool(self._on(FaultKind.FAIL, seconds))

    def devices(self, seconds: float) -> tuple[DeviceFacts, ...]:
        """Return the devices: whole GPUs by index, then the instances of those in MIG mode."""
        gone = {uuid for _, uuid in self._on(FaultKind.VANISH, seconds)}
        partitioned = self._partitions(seconds)
        present = [
            facts
            for facts in self.fleet.devices
            if facts.uuid not in gone and facts.parent_uuid not in gone
        ]
        wholes = [
            msgspec.structs.replace(facts, mig_enabled=True) if facts.uuid in partitioned else facts
            for facts in present
        ]
        wholes = [self._with_layout(facts) for facts in wholes]
        return (*wholes, *self._made(present), *self._instances(present, partitioned))

    def read(self, seconds: float, held_uuids: frozenset[str]) -> FleetReading:
        """Read every device. Each fault is reported once, also one from between two readings."""
        devices = self.devices(seconds)
        hung = {
            uuid: f"its call does not return, {SCRIPTED}"
            for _, uuid in self._on(FaultKind.HANG, seconds)
            if uuid is not None
        }
        present = {facts.uuid for facts in devices}
        readings = [self._read(facts, seconds, held_uuids) for facts in devices]
        self._last_seconds = max(seconds, self._last_seconds)
        return FleetReading(
            gpus=tuple(
                self._without_fields(reading, seconds)
                for reading in readings
                if reading.uuid not in hung
            ),
            lost={
                facts.uuid: f"fell off the bus, {SCRIPTED}"
                for facts in self.fleet.devices
                if facts.uuid not in present
            },
            hung={uuid: reason for uuid, reason in hung.items() if uuid in present},
            faults=tuple(self._new_faults(seconds, present)),
        )

    def set_power_limit(self, device_uuid: str, watts: float | None, seconds: float) -> float:
        """Returns the limit before. Raises RefusedError."""
        facts = next(
            (device for device in self.devices(seconds) if device.uuid == device_uuid), None
        )
        limit = limit_for(facts, device_uuid, watts)
        limit_before = self._limits.get(device_uuid, self.fleet.load.power_limit_w)
        self._limits[device_uuid] = limit
        return limit_before

    def set_sm_clock(self, device_uuid: str, mhz: int | None, seconds: float) -> None:
        """Raises RefusedError."""
        facts = next(
            (device for device in self.devices(seconds) if device.uuid == device_uuid), None
        )
        is_part = facts is not None and facts.parent_uuid is not None
        slowest, fastest = self.fleet.load.idle_sm_clock_mhz, self.fleet.load.held_sm_clock_mhz
        supported = () if is_part else (round(slowest), round(fastest))
        check_clock(facts, device_uuid, mhz, supported)
        if mhz is None:
            self._clocks_mhz.pop(device_uuid, None)
        else:
            self._clocks_mhz[device_uuid] = mhz

    def make_mig(self, device_uuid: str, profile: str, start: int) -> None:
        """Raises RefusedError, as a driver does."""
        instances = self._mig.get(device_uuid)
        self._mig[device_uuid] = with_another(instances, self._options(device_uuid), profile, start)

    def remove_mig(self, device_uuid: str, start: int) -> None:
        instances = self._mig.get(device_uuid)
        if instances is not None:
            self._mig[device_uuid] = tuple(
                instance for instance in instances if instance.start != start
            )

    def _options(self, uuid: str) -> tuple[MigOption, ...]:
        sizes = (facts.memory_total_mb or 0 for facts in self.fleet.devices if facts.uuid == uuid)
        return usual_options(next(sizes, 0))

    def _with_layout(self, facts: DeviceFacts) -> DeviceFacts:
        if facts.uuid not in self._mig:
            return facts
        instances = self._mig[facts.uuid]
        layout = MigLayout(
            options=self._options(facts.uuid),
            instances=tuple(
                msgspec.structs.replace(
                    instance, device_uuids=(self._made_facts(facts, instance).uuid,)
                )
                for instance in instances
            ),
        )
        return msgspec.structs.replace(facts, mig_layout=layout)

    def _made(self, present: Sequence[DeviceFacts]) -> list[DeviceFacts]:
        return [
            self._made_facts(facts, instance)
            for facts in present
            for instance in self._mig.get(facts.uuid, ())
        ]

    def _made_facts(self, facts: DeviceFacts, instance: MigInstance) -> DeviceFacts:
        index = len(self.fleet.devices) + facts.index * SLICES + instance.start
        size_mb = (facts.memory_total_mb or 0) * instance.size // SLICES
        return instance_of(facts, instance.profile, instance.start, index, size_mb)

    def _on(self, kind: FaultKind, seconds: float) -> list[tuple[FaultSchedule, str | None]]:
        return [
            (line, device)
            for line, device in self._schedules
            if line.fault.kind is kind and line.is_on(seconds)
        ]

    def _partitions(self, seconds: float) -> dict[str, ScriptedFault]:
        return {
            device: line.fault
            for line, device in self._on(FaultKind.MIG_CHANGE, seconds)
            if device is not None
        }

    def _instances(
        self, present: Sequence[DeviceFacts], partitioned: dict[str, ScriptedFault]
    ) -> list[DeviceFacts]:
        parts = [
            (facts, fault, number)
            for facts in present
            if (fault := partitioned.get(facts.uuid)) is not None
            for number in range(fault.instances)
        ]
        first = len(self.fleet.devices) * (1 + SLICES * bool(self._mig))
        return [
            instance_of(facts, fault.profile, number, first + place, _memory_mb(fault.profile))
            for place, (facts, fault, number) in enumerate(parts)
        ]

    def _read(self, facts: DeviceFacts, seconds: float, held_uuids: frozenset[str]) -> GpuReading:
        if facts.parent_uuid is not None:
            total, share = facts.memory_total_mb or 0, self.fleet.load.held_memory_percent / 100
            used = round(total * share) if facts.uuid in held_uuids else 0
            return GpuReading(
                uuid=facts.uuid,
                index=facts.index,
                memory_total_mb=total,
                memory_used_mb=used,
                memory_free_mb=total - used,
                name=facts.name,
                processes=(),  # without a utilization, only this shows that it is idle
            )
        limit = self._limits.get(facts.uuid, self.fleet.load.power_limit_w)
        if self._replay is not None:
            recorded = self._replay.reading_at(facts, seconds)
            draw = recorded.power_draw_w
            reading = msgspec.structs.replace(
                recorded,
                power_limit_w=limit,
                power_draw_w=None if draw is None else min(draw, limit),
                sm_clock_mhz=self._clocks_mhz.get(facts.uuid, recorded.sm_clock_mhz),
            )
        else:
            reading = self._made_up(facts, seconds, facts.uuid in held_uuids, limit)
        if facts.mig_enabled or facts.uuid in self._partitions(seconds):
            # A GPU in MIG mode has no utilization of its own.
            reading = msgspec.structs.replace(reading, utilization_percent=None)
        return self._with_ecc_errors(reading, seconds)

    def _made_up(
        self, facts: DeviceFacts, seconds: float, is_held: bool, limit: float
    ) -> GpuReading:
        device, shape = facts.uuid, self.fleet.load
        self._loads[device] = load_from(
            self._loads[device], shape, is_held=is_held, seconds=seconds
        )
        reading = reading_at(
            facts,
            self._loads[device],
            shape,
            seconds=seconds,
            power_limit_w=limit,
            locked_clock_mhz=self._clocks_mhz.get(device),
        )
        passed = max(0.0, seconds - self._last_seconds)
        self._energy_mj[device] += (reading.power_draw_w or 0.0) * 1000 * passed
        return msgspec.structs.replace(reading, energy_mj=int(self._energy_mj[device]))

    def _with_ecc_errors(self, reading: GpuReading, seconds: float) -> GpuReading:
        """Add the errors of all storms so far: counters of a loaded driver never fall."""
        storms = [
            line
            for line, device in self._schedules
            if line.fault.kind is FaultKind.ECC_STORM and device == reading.uuid
        ]
        if not storms:
            return reading
        corrected = sum(
            line.seconds_on(seconds) * line.fault.corrected_per_second for line in storms
        )
        uncorrected = sum(
            line.count_beginnings(seconds) * line.fault.uncorrected for line in storms
        )
        return msgspec.structs.replace(
            reading,
            ecc_corrected=(reading.ecc_corrected or 0) + int(corrected),
            ecc_uncorrected=(reading.ecc_uncorrected or 0) + uncorrected,
        )

    def _without_fields(self, reading: GpuReading, seconds: float) -> GpuReading:
        names = {
            name
            for line, device in self._on(FaultKind.NOT_AVAILABLE, seconds)
            if device in {None, reading.uuid}
            for name in line.fault.fields
        }
        return msgspec.structs.replace(reading, **dict.fromkeys(names)) if names else reading

    def _new_faults(self, seconds: float, present: set[str]) -> list[Fault]:
        faults: list[Fault] = []
        for place, (line, device) in enumerate(self._schedules):
            if line.fault.kind is not FaultKind.XID or device not in present:
                continue
            beginnings = line.count_beginnings(seconds)
            new, self._reported[place] = beginnings - self._reported[place], beginnings
            faults += [_xid(line.fault, device)] * min(new, _MAX_AT_ONCE)
        return faults


def _xid(fault: ScriptedFault, device: str) -> Fault:
    """Make the fault of the catalogue, unless the script says what to do."""
    catalogued = xid_fault(device, fault.xid or 0, SCRIPTED)
    if fault.action is None:
        return catalogued
    return msgspec.structs.replace(catalogued, action=fault.action, action_source=SCRIPTED)


def _memory_mb(profile: str) -> int:
    sized = _PROFILE.match(profile)
    return int(sized.group(1)) * _GIB_IN_MIB if sized else 0
