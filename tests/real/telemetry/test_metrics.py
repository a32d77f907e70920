"""An agent's metrics over HTTP, on simulated GPUs."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.telemetry.app import TelemetryService, create_service
from services.telemetry.settings import TelemetrySettings
from shared.ids import new_id
from shared.settings import SettingsError
from shared.testing import eventually
from shared.tls.authority import Authority
from tests.real.telemetry.test_telemetry import FIRST_DEVICE, make_granted
from tests.support.tls_relay import tls_relay
from tests.support.worlds.telemetry_client import NODE, watching

Rows = dict[str, list[tuple[dict[str, str], float]]]


@asynccontextmanager
async def an_agent(nats_url: str, **overrides: Any) -> AsyncIterator[TelemetryService]:
    values: dict[str, Any] = {
        "source": "simulated",
        "nats_url": nats_url,
        "node_id": NODE,
        "interval_seconds": 0.1,
        "metrics_port": 0,
        **overrides,
    }
    service = create_service(TelemetrySettings(**values))
    async with service.running():
        yield service


def port_of(service: TelemetryService) -> int | None:
    return None if service.metrics is None else service.metrics.bound_port


async def scrape(service: TelemetryService) -> str:
    await eventually(lambda: port_of(service) is not None, what="a port")
    url = f"http://127.0.0.1:{port_of(service)}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return await response.text()


def parsed(text: str) -> Rows:
    rows: Rows = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            rows.setdefault(sample.name, []).append((sample.labels, sample.value))
    return rows


async def test_a_scrape_tells_every_gpu_and_who_holds_it(nats_url: str) -> None:
    granted = make_granted(new_id())
    async with an_agent(nats_url) as service, watching(nats_url) as watcher:
        await watcher.samples_beyond(1)
        await watcher.bus.publish_event(granted)
        await eventually(lambda: watcher.used_mb() > 1000, what="the grant heard")
        text = await scrape(service)

    rows = parsed(text)
    held, free = (labels for labels, _ in rows["DCGM_FI_DEV_GPU_UTIL"])
    assert held["UUID"] == FIRST_DEVICE
    assert (held["reservation"], held["namespace"]) == (str(granted.reservation_id), "default")
    assert free["reservation"] == ""
    assert rows["DCGM_FI_DEV_FB_USED"][0][1] > 1000
    assert "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n" in text
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n" in text
    assert "DCGM_FI_DEV_XID_ERRORS" not in text
    ((_, taken),) = rows["gpusteward_telemetry_samples_total"]
    assert taken >= 1
    assert rows["gpusteward_telemetry_source_up"][0][1] == 1.0
    assert rows["gpusteward_telemetry_read_seconds_count"][0][1] >= taken
    [(owner, age)] = rows["gpusteward_outbox_age_seconds"]
    assert (owner, age >= 0) == ({"service": "telemetry", "node": NODE}, True)
    assert rows["process_resident_memory_bytes"][0][1] > 0


async def test_taken_port_is_told_and_agent_runs(
    nats_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    taken = server.sockets[0].getsockname()[1]
    async with (
        server,
        an_agent(nats_url, metrics_port=taken) as service,
        watching(nats_url) as watcher,
    ):
        await watcher.samples_beyond(2)

    assert port_of(service) is None
    assert "GPUSTEWARD_TELEMETRY_METRICS_PORT" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404", id="another path"),
        pytest.param(
            b"POST /metrics HTTP/1.1\r\nhost: [::1]:9400\r\n\r\n", b"405", id="another method"
        ),
        pytest.param(
            b"HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1:9400\r\n\r\n", b"200", id="no body wanted"
        ),
        pytest.param(
            b"GET /metrics HTTP/1.1\r\nHost: evil.example:9400\r\n\r\n", b"403", id="a rebound name"
        ),
        pytest.param(b"GET /metrics HTTP/1.1\r\n\r\n", b"403", id="no name"),
        pytest.param(b"\x16\x03\x01\x02\r\n\r\n", b"403", id="no HTTP at all"),
        pytest.param(b"GET /" + b"a" * 40_000, b"", id="without end"),
    ],
)
async def test_odd_requests_are_answered_or_cut_off(
    nats_url: str, request_text: bytes, status: bytes
) -> None:
    async with an_agent(nats_url) as service:
        await eventually(lambda: port_of(service) is not None, what="a port")
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(service))
        writer.write(request_text)
        answer = await reader.read()
        writer.close()

    assert answer[9:12] == status


async def test_scrape_over_tls_passes_nothing_in_plain_text(nats_url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    authority.create()
    authority.issue("agent", ["127.0.0.1"])
    files = authority.files_of("agent")
    shown = {"metrics_cert": str(files.certificate), "metrics_key": str(files.key)}
    context = ssl.create_default_context(cafile=authority.certificate_path)
    async with an_agent(nats_url, **shown) as service:
        await eventually(lambda: port_of(service) is not None, what="a port")
        port = port_of(service)
        assert port is not None
        async with tls_relay(port) as relay, aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{relay.port}/metrics"
            async with session.get(url, ssl=context) as response:
                text = await response.text()
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(url)

    assert "DCGM_FI_DEV_GPU_UTIL" in text


def test_metrics_beyond_loopback_need_a_certificate() -> None:
    beyond: dict[str, Any] = {"metrics_host": "10.0.0.1"}

    with pytest.raises(SettingsError, match="GPUSTEWARD_TELEMETRY_METRICS_CERT"):
        TelemetrySettings(**beyond)

    TelemetrySettings(**beyond, insecure_plaintext=True)
    TelemetrySettings(**beyond, metrics=False)
