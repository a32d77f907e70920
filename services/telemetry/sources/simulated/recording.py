"""A recorded CSV as the readings of a fleet: what was not recorded is unknown."""

import csv
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from schemas.base import PositiveSeconds
from schemas.telemetry.readings import DeviceFacts, GpuReading

MAX_ROWS: Final = 5_000_000
TIME_COLUMNS: Final = ("t_seconds", "seconds")
# Whole numbers in a reading; a recording may have means of them.
_WHOLE: Final = frozenset(
    {
        "memory_used_mb",
        "energy_mj",
        "sm_clock_mhz",
        "memory_clock_mhz",
        "ecc_corrected",
        "ecc_uncorrected",
    }
)
_FRACTIONS: Final = frozenset(
    {
        "utilization_percent",
        "memory_utilization_percent",
        "temperature_c",
        "power_draw_w",
        "fan_percent",
        "encoder_percent",
        "decoder_percent",
    }
)
_UNKNOWN: Final = math.nan


class RecordingError(ValueError):
    """A recording says something else than expected; the text names the line."""


class ReplayPlan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[replay]` section. `file` is relative to the fleet's file; `.gz` is read as it is.

    `speed` is recorded seconds per second. At the end it begins anew (`loop`), repeats
    the last values (`hold`) or has none (`stop`). `devices` names the recorded device of a fleet's
    device by its uuid; the others take the rest of the recording in its order, again and again.
    """

    file: str
    at_end: Literal["loop", "hold", "stop"] = "loop"
    speed: PositiveSeconds = 1.0
    start_seconds: Annotated[float, Meta(ge=0)] = 0.0
    devices: dict[str, str] = {}


class Track(Struct, frozen=True):
    """One recorded device: when, and each column's values then; NaN is unknown."""

    times: "array[float]"
    columns: "dict[str, array[float]]"


class Recording(Struct, frozen=True):
    """Recorded devices in the order of their names, and the time from the first row to the end.

    The last row is taken to be as long as the step before it.
    """

    tracks: dict[str, Track]
    first_seconds: float
    length_seconds: float


def parse_recording(lines: Iterable[str]) -> Recording:
    """Read `t_seconds,device,<fields of a reading>`, rows in the order of time.

    Raises RecordingError.
    """
    rows = csv.reader(lines)
    header = [name.strip() for name in next(rows, [])]
    time_column = next((name for name in TIME_COLUMNS if name in header), None)
    if time_column is None or "device" not in header:
        raise RecordingError(f"line 1: expected t_seconds and device, found {header}")
    values = [name for name in header if name not in {time_column, "device"}]
    if unknown := sorted(set(values) - _WHOLE - _FRACTIONS):
        raise RecordingError(f"line 1: expected fields of a reading, found {unknown}")
    tracks: dict[str, Track] = {}
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header) or number > MAX_ROWS:
            raise RecordingError(f"line {number}: expected {len(header)} values in a short file")
        _add_row(tracks, dict(zip(header, row, strict=True)), time_column, values, number)
    if not tracks:
        raise RecordingError("line 2: expected a row, found the end")
    return _recording(tracks)


def _add_row(
    tracks: dict[str, Track],
    row: Mapping[str, str],
    time_column: str,
    values: Sequence[str],
    number: int,
) -> None:
    device = row["device"].strip()
    track = tracks.get(device)
    if track is None:
        track = tracks[device] = Track(array("d"), {name: array("d") for name in values})
    seconds = _number(row[time_column], number)
    if math.isnan(seconds) or (track.times and seconds <= track.times[-1]):
        raise RecordingError(f"line {number}: expected a later time for device {device}")
    track.times.append(seconds)
    for name in values:
        track.columns[name].append(_number(row[name], number))


def _number(value: str, number: int) -> float:
    if not value.strip():
        return _UNKNOWN
    try:
        parsed = float(value)
    except ValueError:
        raise RecordingError(f"line {number}: expected a number, found {value!r}") from None
    if not math.isfinite(parsed) or parsed < 0:
        raise RecordingError(f"line {number}: expected a number from 0 on, found {value!r}")
    return parsed


def _recording(tracks: Mapping[str, Track]) -> Recording:
    first = min(track.times[0] for track in tracks.values())
    last = max(track.times[-1] for track in tracks.values())
    step = max((_last_step(track) for track in tracks.values()), default=0.0) or 1.0
    return Recording(
        tracks={name: tracks[name] for name in sorted(tracks, key=_natural)},
        first_seconds=first,
        length_seconds=last - first + step,
    )


def _last_step(track: Track) -> float:
    return track.times[-1] - track.times[-2] if len(track.times) > 1 else 0.0


def _natural(name: str) -> tuple[int, int, str]:
    """Numbers by value and before names."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


class Replay:
    """A recording laid over a fleet. Raises RecordingError for devices that neither has."""

    def __init__(
        self, plan: ReplayPlan, recording: Recording, devices: Sequence[DeviceFacts]
    ) -> None:
        self._plan = plan
        self._recording = recording
        self._tracks = _assign(plan, recording, devices)
        for facts in devices:
            _check_memory(facts, self._tracks[facts.uuid])

    def reading_at(self, facts: DeviceFacts, seconds: float) -> GpuReading:
        """Return the last reading recorded by then. Before a device's first row nothing is known of
        it.
        """
        reading = GpuReading(
            uuid=facts.uuid,
            index=facts.index,
            memory_total_mb=facts.memory_total_mb,
            name=facts.name,
        )
        at = self._position(seconds)
        track = self._tracks[facts.uuid]
        place = -1 if at is None else bisect_right(track.times, at) - 1
        if place < 0:
            return reading
        recorded = {name: _value(name, column[place]) for name, column in track.columns.items()}
        used, total = recorded.get("memory_used_mb"), facts.memory_total_mb
        if used is not None and total is not None:
            recorded["memory_free_mb"] = total - int(used)
        return msgspec.structs.replace(reading, **recorded)

    def _position(self, seconds: float) -> float | None:
        recording = self._recording
        into = self._plan.start_seconds + seconds * self._plan.speed
        if into >= recording.length_seconds:
            match self._plan.at_end:
                case "loop":
                    into %= recording.length_seconds
                case "hold":
                    into = recording.length_seconds
                case "stop":
                    return None
        return recording.first_seconds + into


def _assign(
    plan: ReplayPlan, recording: Recording, devices: Sequence[DeviceFacts]
) -> dict[str, Track]:
    uuids = {facts.uuid for facts in devices}
    for uuid, name in plan.devices.items():
        if uuid not in uuids:
            raise RecordingError(f"expected a device of the fleet, found {uuid}")
        if name not in recording.tracks:
            raise RecordingError(f"expected a recorded device, found {name!r}")
    spare = [name for name in recording.tracks if name not in plan.devices.values()]
    spare = spare or list(recording.tracks)
    other_uuids = [facts.uuid for facts in devices if facts.uuid not in plan.devices]
    names = {uuid: spare[place % len(spare)] for place, uuid in enumerate(other_uuids)}
    return {uuid: recording.tracks[name] for uuid, name in {**names, **plan.devices}.items()}


def _check_memory(facts: DeviceFacts, track: Track) -> None:
    used = [value for value in track.columns.get("memory_used_mb", ()) if not math.isnan(value)]
    if used and facts.memory_total_mb is not None and round(max(used)) > facts.memory_total_mb:
        raise RecordingError(
            f"expected at most {facts.memory_total_mb} MiB on {facts.uuid}, "
            f"the recording has {round(max(used))}"
        )


def _value(name: str, value: float) -> float | None:
    if math.isnan(value):
        return None
    return round(value) if name in _WHOLE else value
