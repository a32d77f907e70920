"""Which source is taken, and which is never taken instead."""

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.telemetry.readings import Source
from services.telemetry.domain.holdings import Holdings
from services.telemetry.settings import TelemetrySettings
from services.telemetry.sources.no_gpu import NoSource
from services.telemetry.sources.selection import SourceSelection, candidates, select_source
from services.telemetry.sources.source import GpuSource, SourceAbsentError, SourceFailedError
from shared.settings import SettingsError, load_settings
from tests.support.fakes.amd import FakeAmd


class Opening(NoSource):
    """Opens as it is told to."""

    def __init__(self, outcomes: list[Exception | None]) -> None:
        self._outcomes = outcomes

    async def open(self) -> None:
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if outcome is not None:
            raise outcome


ABSENT, FAILED = SourceAbsentError("nothing there"), SourceFailedError("broken")


def opening(kind: Source, *outcomes: Exception | None) -> tuple[Source, Callable[[], GpuSource]]:
    told = list(outcomes)
    return kind, lambda: Opening(told)


@pytest.mark.parametrize(
    ("nvml", "smi", "want"),
    [
        pytest.param(None, None, Source.NVML, id="NVML first"),
        pytest.param(ABSENT, None, Source.NVIDIA_SMI, id="nvidia-smi without NVML"),
        pytest.param(FAILED, None, Source.NVIDIA_SMI, id="nvidia-smi for a failing NVML"),
        pytest.param(ABSENT, ABSENT, Source.SIMULATED, id="the fleet where nothing is"),
    ],
)
async def test_the_first_source_that_works_is_taken(
    nvml: Exception | None, smi: Exception | None, want: Source
) -> None:
    selection = SourceSelection(
        [
            opening(Source.NVML, nvml),
            opening(Source.NVIDIA_SMI, smi),
            opening(Source.SIMULATED, None),
        ],
        forced=False,
    )

    await selection.open()

    assert selection.source is want


async def test_failing_driver_is_not_replaced() -> None:
    selection = SourceSelection(
        [
            opening(Source.NVML, FAILED, ABSENT, None),
            opening(Source.NVIDIA_SMI, ABSENT),
            opening(Source.SIMULATED, None),
        ],
        forced=False,
    )

    for _ in range(2):
        with pytest.raises(SourceFailedError):
            await selection.open()
        assert selection.source is Source.NVML
    await selection.open()

    assert selection.source is Source.NVML


async def test_a_source_that_worked_is_never_exchanged() -> None:
    selection = SourceSelection(
        [opening(Source.NVML, None, ABSENT), opening(Source.NVIDIA_SMI, None)], forced=False
    )
    await selection.open()

    with pytest.raises(SourceFailedError, match="nothing there"):
        await selection.open()

    assert selection.source is Source.NVML


async def test_a_forced_source_that_is_absent_is_a_failure() -> None:
    selection = SourceSelection([opening(Source.NVML, ABSENT)], forced=True)

    with pytest.raises(SourceFailedError, match="nothing there"):
        await selection.open()

    assert selection.source is Source.NVML


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({}, False),
        ({"GPUSTEWARD_TELEMETRY_SIMULATE": "1"}, True),
        ({"GPUSTEWARD_TELEMETRY_SIMULATE": "false"}, False),
        ({"GPUSTEWARD_TELEMETRY_SOURCE": "simulated"}, True),
        ({"GPUSTEWARD_TELEMETRY_SOURCE": "none"}, False),
        ({"GPUSTEWARD_TELEMETRY_SOURCE": "nvml", "GPUSTEWARD_TELEMETRY_SIMULATE": "1"}, False),
    ],
)
def test_simulation_has_to_be_asked_for(environ: dict[str, str], want: bool) -> None:
    settings = load_settings(TelemetrySettings, "telemetry", environ)

    kinds = [kind for kind, _ in candidates(settings, Holdings())]

    assert (Source.SIMULATED in kinds) is want


@pytest.mark.parametrize("text", [None, "devices = 3"])
def test_a_fleet_that_cannot_be_used_stops_the_start(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "fleet.toml"
    if text is not None:
        path.write_text(text)

    with pytest.raises(SettingsError, match=r"fleet\.toml"):
        select_source(TelemetrySettings(fleet=str(path)), Holdings())


def test_an_unknown_source_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="GPUSTEWARD_TELEMETRY_SOURCE"):
        load_settings(TelemetrySettings, "telemetry", {"GPUSTEWARD_TELEMETRY_SOURCE": "magic"})


def test_dcgm_is_read_only_where_named() -> None:
    with pytest.raises(SettingsError, match="GPUSTEWARD_TELEMETRY_DCGM_URL"):
        select_source(TelemetrySettings(source="dcgm"), Holdings())
    with pytest.raises(SettingsError, match="GPUSTEWARD_TELEMETRY_DCGM_URL"):
        load_settings(TelemetrySettings, "telemetry", {"GPUSTEWARD_TELEMETRY_DCGM_URL": "gpu:9400"})

    named = TelemetrySettings(source="dcgm", dcgm_url="http://127.0.0.1:9400/metrics")
    assert select_source(named, Holdings()).source is Source.DCGM


async def test_amd_devices_precede_a_made_up_fleet(
    tmp_path: Path,
) -> None:
    amd = FakeAmd(tmp_path)
    settings = TelemetrySettings(
        simulate=True,
        smi_path=str(tmp_path / "nvidia-smi"),
        amd_smi_path=amd.amd_smi_path,
        rocm_smi_path=amd.rocm_smi_path,
    )
    selection = select_source(settings, Holdings())

    source = await selection.open()
    await source.close()

    assert selection.source is Source.AMD
