"""A dcgm-exporter as a source, over real HTTP."""

from collections.abc import AsyncIterator

import pytest

from schemas.telemetry.readings import HealthKind, HealthState, Source
from services.telemetry.app import create_service
from services.telemetry.settings import TelemetrySettings
from services.telemetry.sources.dcgm.source import DcgmSource
from services.telemetry.sources.dcgm.sticky_xids import StickyXids
from services.telemetry.sources.source import ProbeHungError, SourceAbsentError, SourceFailedError
from shared.testing import eventually
from tests.support.fakes.dcgm import FakeDcgm, make_lines
from tests.support.worlds.telemetry_client import NODE, watching


@pytest.fixture
async def dcgm() -> AsyncIterator[FakeDcgm]:
    async with FakeDcgm().serving() as fake:
        yield fake


def source_of(dcgm: FakeDcgm) -> DcgmSource:
    return DcgmSource(dcgm.url, StickyXids(), deadline_seconds=0.5)


async def test_exporter_that_hangs_and_returns_is_followed(nats_url: str) -> None:
    dcgm = FakeDcgm()
    async with watching(nats_url) as watcher, dcgm.serving():
        settings = TelemetrySettings(
            source="dcgm",
            dcgm_url=dcgm.url,
            nats_url=nats_url,
            node_id=NODE,
            interval_seconds=0.1,
            probe_deadline_seconds=0.2,
            metrics=False,
        )
        async with create_service(settings).running():
            await watcher.samples_beyond(2)
            dcgm.page = make_lines(0, "GPU-aaaa", DCGM_FI_DEV_XID_ERRORS=31)
            await eventually(lambda: HealthKind.XID in watcher.changes, what="the XID")
            await eventually(lambda: HealthKind.GPU_LOST in watcher.changes, what="the loss")
            dcgm.delay_seconds = 30
            await eventually(lambda: HealthKind.PROBE_HUNG in watcher.changes, what="a hang")
            dcgm.delay_seconds = 0
            await eventually(lambda: HealthKind.PROBE_RECOVERED in watcher.changes, what="recovery")
            dcgm.status = "503 Service Unavailable"
            await eventually(lambda: HealthKind.SOURCE_FAILED in watcher.changes, what="a failure")
            await eventually(
                lambda: watcher.inventories[-1].devices[0].health is HealthState.LOST,
                what="the state",
            )
            dcgm.status = "200 OK"
            await eventually(
                lambda: HealthKind.SOURCE_RECOVERED in watcher.changes, what="recovery"
            )
            await watcher.samples_beyond(1)

    assert watcher.changes.count(HealthKind.XID) == 1
    assert {event.device_uuid for event in watcher.health if event.xid == 31} == {"GPU-aaaa"}
    assert watcher.samples[-1].source is Source.DCGM
    assert [gpu.uuid for gpu in watcher.samples[-1].gpus] == ["GPU-aaaa"]


async def test_cut_page_is_a_failure_and_no_loss(dcgm: FakeDcgm) -> None:
    dcgm.cut_at = len(dcgm.page) // 2

    with pytest.raises(SourceFailedError, match="broke off"):
        await source_of(dcgm).read()


async def test_endless_page_is_a_failure(dcgm: FakeDcgm) -> None:
    dcgm.endless = True
    source = DcgmSource(dcgm.url, StickyXids(), deadline_seconds=20)

    with pytest.raises(SourceFailedError, match="without end"):
        await source.read()


async def test_a_slow_exporter_is_a_hung_probe(dcgm: FakeDcgm) -> None:
    dcgm.delay_seconds = 30

    with pytest.raises(ProbeHungError, match=r"within 0\.5 s"):
        await source_of(dcgm).read()


@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error", "200OK"])
async def test_another_answer_than_a_page_is_a_failure(dcgm: FakeDcgm, status: str) -> None:
    dcgm.status = status

    with pytest.raises(SourceFailedError, match="answered"):
        await source_of(dcgm).open()


async def test_nobody_listening_is_a_failure() -> None:
    source = DcgmSource("http://127.0.0.1:1/metrics", StickyXids(), deadline_seconds=0.5)

    with pytest.raises(SourceFailedError, match="cannot be reached"):
        await source.open()


async def test_an_exporter_without_gpus_is_absent(dcgm: FakeDcgm) -> None:
    dcgm.page = "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"

    with pytest.raises(SourceAbsentError):
        await source_of(dcgm).open()


async def test_other_exporter_is_not_taken_for_dcgm(dcgm: FakeDcgm) -> None:
    dcgm.page = "node_load1 0.5\n"

    with pytest.raises(SourceFailedError, match="no values of DCGM"):
        await source_of(dcgm).open()


async def test_own_exporter_page_is_refused(dcgm: FakeDcgm) -> None:
    dcgm.page = make_lines(0, "GPU-aaaa") + "gpusteward_telemetry_ticks_total 7\n"

    with pytest.raises(SourceFailedError, match="is an agent"):
        await source_of(dcgm).open()
