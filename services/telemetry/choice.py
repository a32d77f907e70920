"""Which source an agent reads from."""

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import schemas
from schemas.telemetry import Source
from services.telemetry.amd import AmdSource
from services.telemetry.dcgm import DcgmSource
from services.telemetry.domain.dcgm_xid import StickyXids
from services.telemetry.domain.fleet import FleetError, parse_fleet
from services.telemetry.domain.holdings import Holdings
from services.telemetry.domain.replay import Recording, RecordingError, parse_recording
from services.telemetry.domain.simulation import Simulation
from services.telemetry.nothing import NoSource
from services.telemetry.nvidia_smi import NvidiaSmiSource
from services.telemetry.nvml import NvmlSource
from services.telemetry.nvml_quarantine import Quarantine
from services.telemetry.ports import GpuSource, SourceAbsentError, SourceFailedError
from services.telemetry.settings import TelemetrySettings
from services.telemetry.simulated import FleetClock, SimulatedSource
from shared.logging import log
from shared.settings import SettingsError

REAL_SOURCES: Final = ("nvml", "nvidia-smi", "amd", "dcgm")
DEFAULT_FLEET: Final = Path(schemas.__file__).parent / "examples" / "fleet.toml"

Make = Callable[[], GpuSource]


class SourceChoice:
    """Opens sources in the order of preference, and stays with the first that was there.

    A driver that is there and fails is waited for, never replaced by a made-up fleet: once a real
    source has failed or worked, only real sources are tried again.
    """

    def __init__(self, candidates: Sequence[tuple[Source, Make]], *, forced: bool) -> None:
        self._candidates = list(candidates)
        self._forced = forced
        self.source = candidates[0][0] if len(candidates) == 1 else Source.NONE

    @property
    def may_simulate(self) -> bool:
        """Whether a simulated source is, or may become, the one."""
        return any(kind is Source.SIMULATED for kind, _ in self._candidates)

    async def open(self) -> GpuSource:
        """The first source that is there, open. Raises SourceFailedError while it does not work."""
        failure: tuple[Source, SourceFailedError] | None = None
        for kind, make in self._candidates:
            if failure is not None and not _is_real(kind):
                break
            try:
                opened = await _opened(make())
            except SourceAbsentError as error:
                log.info("source_absent", source=kind, reason=str(error))
                if self._forced:
                    raise SourceFailedError(f"{kind}: {error}") from error
            except SourceFailedError as error:
                log.warning("source_failed", source=kind, reason=str(error))
                failure = failure or (kind, error)
            else:
                self._settle(kind)
                return opened
        if failure is None:
            raise SourceFailedError(f"{self.source} is gone")
        self.source = failure[0]
        if not self._forced:
            self._candidates = [item for item in self._candidates if _is_real(item[0])]
        raise failure[1]

    def _settle(self, kind: Source) -> None:
        log.info("source_chosen", source=kind)
        self.source = kind
        self._forced = True
        self._candidates = [item for item in self._candidates if item[0] is kind]


async def _opened(source: GpuSource) -> GpuSource:
    try:
        await source.open()
    except BaseException:
        await source.close()
        raise
    return source


def _is_real(kind: Source) -> bool:
    return kind not in {Source.SIMULATED, Source.NONE}


def choose(settings: TelemetrySettings, holdings: Holdings) -> SourceChoice:
    """The candidates that these settings allow. Raises SettingsError for an unusable fleet."""
    quarantine = Quarantine()
    makers: dict[str, tuple[Source, Make]] = {
        "nvml": (
            Source.NVML,
            lambda: NvmlSource(
                deadline_seconds=settings.probe_deadline_seconds,
                open_deadline_seconds=settings.open_deadline_seconds,
                quarantine=quarantine,
            ),
        ),
        "nvidia-smi": (
            Source.NVIDIA_SMI,
            lambda: NvidiaSmiSource(
                settings.smi_path,
                deadline_seconds=settings.smi_deadline_seconds,
                open_deadline_seconds=settings.open_deadline_seconds,
            ),
        ),
        "amd": (
            Source.AMD,
            lambda: AmdSource(
                settings.amd_smi_path,
                settings.rocm_smi_path,
                deadline_seconds=settings.smi_deadline_seconds,
                open_deadline_seconds=settings.open_deadline_seconds,
            ),
        ),
        "none": (Source.NONE, NoSource),
    }
    if settings.dcgm_url is not None:
        makers["dcgm"] = (Source.DCGM, _dcgm(settings.dcgm_url, settings.probe_deadline_seconds))
    if settings.source == "simulated" or settings.simulate or settings.fleet is not None:
        simulation, clock = read_simulation(settings), FleetClock()
        makers["simulated"] = (
            Source.SIMULATED,
            lambda: SimulatedSource(
                simulation,
                holdings,
                clock,
                interval_seconds=settings.interval_seconds,
                deadline_seconds=settings.probe_deadline_seconds,
            ),
        )
    if settings.source != "auto":
        if settings.source not in makers:
            raise SettingsError("GPUSTEWARD_TELEMETRY_DCGM_URL: expected the exporter's address")
        return SourceChoice([makers[settings.source]], forced=True)
    last = "simulated" if "simulated" in makers else "none"
    order = [name for name in (*REAL_SOURCES, last) if name in makers]
    return SourceChoice([makers[name] for name in order], forced=False)


def _dcgm(url: str, deadline_seconds: float) -> Make:
    xids = StickyXids()
    return lambda: DcgmSource(url, xids, deadline_seconds=deadline_seconds)


def read_simulation(settings: TelemetrySettings) -> Simulation:
    """The fleet of the settings, else the built-in one, with its recording."""
    path = DEFAULT_FLEET if settings.fleet is None else Path(settings.fleet)
    try:
        fleet = parse_fleet(path.read_text())
        recording = None if fleet.replay is None else _read_recording(path, fleet.replay.file)
        return Simulation(fleet, recording)
    except (OSError, EOFError, zlib.error, UnicodeError, FleetError, RecordingError) as error:
        raise SettingsError(f"GPUSTEWARD_TELEMETRY_FLEET: {path}: {error}") from error


def _read_recording(fleet: Path, name: str) -> Recording:
    path = fleet.parent / name
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return parse_recording(lines)
