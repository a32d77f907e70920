"""Which source an agent reads from."""

import gzip
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import schemas
from schemas.telemetry.readings import Source
from services.telemetry.domain.holdings import Holdings
from services.telemetry.settings import TelemetrySettings
from services.telemetry.sources.amd.source import AmdSource
from services.telemetry.sources.dcgm.source import DcgmSource
from services.telemetry.sources.dcgm.sticky_xids import StickyXids
from services.telemetry.sources.no_gpu import NoSource
from services.telemetry.sources.nvidia_smi.source import NvidiaSmiSource
from services.telemetry.sources.nvml.hung_gpus import HungGpuIsolation
from services.telemetry.sources.nvml.source import NvmlSource
from services.telemetry.sources.simulated.fleet_file import FleetError, parse_fleet
from services.telemetry.sources.simulated.recording import (
    Recording,
    RecordingError,
    Replay,
    parse_recording,
)
from services.telemetry.sources.simulated.simulation import Simulation
from services.telemetry.sources.simulated.source import FleetClock, SimulatedSource
from services.telemetry.sources.source import GpuSource, SourceAbsentError, SourceFailedError
from shared.logging import log
from shared.settings import SettingsError

DEFAULT_FLEET: Final = Path(schemas.__file__).parent / "examples" / "fleet.toml"

Make = Callable[[], GpuSource]
Candidate = tuple[Source, Make]


class SourceSelection:
    """Opens sources in the order of preference, and pins the first that opens.

    A driver that is there and fails is tried again, never replaced by a simulated fleet: once a
    real source has failed or worked, only real sources are candidates.
    """

    def __init__(self, candidates: Sequence[Candidate], *, forced: bool) -> None:
        self._candidates = list(candidates)
        self._forced = forced
        self.source = candidates[0][0] if len(candidates) == 1 else Source.NONE

    async def open(self) -> GpuSource:
        """The first source that is there, open. Raises SourceFailedError while it does not work."""
        failure: tuple[Source, SourceFailedError] | None = None
        for kind, make in self._candidates:
            if failure is not None and not _is_real(kind):
                break
            try:
                opened = await _open(make())
            except SourceAbsentError as error:
                log.info("source_absent", source=kind, reason=str(error))
                if self._forced:
                    raise SourceFailedError(f"{kind}: {error}") from error
            except SourceFailedError as error:
                log.warning("source_failed", source=kind, reason=str(error))
                failure = failure or (kind, error)
            else:
                self._pin(kind)
                return opened
        if failure is None:
            raise SourceFailedError(f"{self.source} is gone")
        self.source = failure[0]
        if not self._forced:
            self._candidates = [item for item in self._candidates if _is_real(item[0])]
        raise failure[1]

    def _pin(self, kind: Source) -> None:
        log.info("source_chosen", source=kind)
        self.source = kind
        self._forced = True
        self._candidates = [item for item in self._candidates if item[0] is kind]


async def _open(source: GpuSource) -> GpuSource:
    try:
        await source.open()
    except BaseException:
        await source.close()
        raise
    return source


def _is_real(kind: Source) -> bool:
    return kind not in {Source.SIMULATED, Source.NONE}


def select_source(settings: TelemetrySettings, holdings: Holdings) -> SourceSelection:
    """Raises SettingsError for an unusable fleet."""
    return SourceSelection(candidates(settings, holdings), forced=settings.source != "auto")


def candidates(settings: TelemetrySettings, holdings: Holdings) -> list[Candidate]:
    """The sources that the settings allow, first the preferred. Raises SettingsError.

    `auto` tries the real sources in the order of the rows here, then one that needs no GPU. What
    outlives a source that broke is made here: isolated GPUs, reported XIDs, the fleet.
    """
    isolation = HungGpuIsolation()
    makers: dict[str, Candidate] = {
        "nvml": (
            Source.NVML,
            lambda: NvmlSource(
                deadline_seconds=settings.probe_deadline_seconds,
                open_deadline_seconds=settings.open_deadline_seconds,
                isolation=isolation,
                with_mig_layouts=settings.mig_instances,
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
        return [makers[settings.source]]
    real = [made for made in makers.values() if _is_real(made[0])]
    return [*real, makers["simulated" if "simulated" in makers else "none"]]


def _dcgm(url: str, deadline_seconds: float) -> Make:
    xids = StickyXids()
    return lambda: DcgmSource(url, xids, deadline_seconds=deadline_seconds)


def read_simulation(settings: TelemetrySettings) -> Simulation:
    """The fleet of the settings, else the built-in one, with its recording."""
    path = DEFAULT_FLEET if settings.fleet is None else Path(settings.fleet)
    try:
        fleet = parse_fleet(path.read_text())
        if (plan := fleet.replay) is None:
            return Simulation(fleet)
        return Simulation(fleet, Replay(plan, _read_recording(path, plan.file), fleet.devices))
    except (OSError, EOFError, zlib.error, UnicodeError, FleetError, RecordingError) as error:
        raise SettingsError(f"GPUSTEWARD_TELEMETRY_FLEET: {path}: {error}") from error


def _read_recording(fleet: Path, name: str) -> Recording:
    path = fleet.parent / name
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return parse_recording(lines)
