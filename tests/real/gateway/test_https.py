"""A gateway that speaks https: its certificate changes while it serves, clients verify it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from schemas.gateway import endpoints
from services.gateway.app import create_service
from services.gateway.settings import GatewaySettings
from shared.client import StewardClient
from shared.client.discovery import AUTHORITY_VARIABLE, Address
from shared.client.errors import PlatformUnreachable
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.settings import SettingsError
from shared.testing import eventually
from shared.tls import reloading
from shared.tls.authority import LEAF_LIFE, Authority
from tests.support.tls_relay import tls_relay
from tests.support.worlds.gateway import Api, gateway

HOSTS = ["127.0.0.1"]


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "LOOK_SECONDS", 0.05)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "tls")
    made.create()
    made.issue("gateway", HOSTS)
    return made


def settings_of(authority: Authority) -> dict[str, str]:
    files = authority.files_of("gateway")
    return {
        "tls_cert": str(files.certificate),
        "tls_key": str(files.key),
        "tls_ca": str(authority.certificate_path),
    }


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str, authority: Authority) -> AsyncIterator[Api]:
    async with gateway(nats_url, postgres_dsn, **settings_of(authority)) as running:
        running.url = running.url.replace("http://", "https://")
        yield running


def address_of(api: Api, authority: Authority) -> Address:
    return Address(api.url, ca=str(authority.certificate_path))


async def serial_of(api: Api, context: ssl.SSLContext) -> str:
    """Of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(api), ssl=context)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["serialNumber"])


def port_of(api: Api) -> int:
    return int(api.url.rpartition(":")[2])


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.certificate_path)


async def test_nothing_but_tls_passes_to_a_client(api: Api, authority: Authority) -> None:
    async with tls_relay(port_of(api)) as relay:
        address = Address(f"https://127.0.0.1:{relay.port}", ca=str(authority.certificate_path))
        async with StewardClient(address) as client:
            assert await client.is_alive()


async def test_socket_stays_open_as_certificate_changes(api: Api, authority: Authority) -> None:
    context = trusting(authority)
    before = await serial_of(api, context)
    async with api.session.ws_connect(f"{api.url}/ws/metrics", ssl=context) as socket:
        authority.issue("gateway", [*HOSTS, "gpus.example.org"])

        async def is_new() -> bool:
            return await serial_of(api, context) != before

        await eventually(is_new, what="the new certificate")
        await socket.ping()
        with pytest.raises(TimeoutError):
            await socket.receive(timeout=0.2)
        assert not socket.closed


async def test_unusable_files_leave_the_former_in_place(api: Api, authority: Authority) -> None:
    context = trusting(authority)
    before = await serial_of(api, context)
    authority.files_of("gateway").key.write_text("nothing")
    await asyncio.sleep(0.3)

    assert await serial_of(api, context) == before


async def test_untrusted_certificate_is_a_sentence(api: Api) -> None:
    async with StewardClient(Address(api.url)) as client:
        with pytest.raises(PlatformUnreachable, match="is not trusted here") as refused:
            await client.call(endpoints.SHOW_ME)

    assert AUTHORITY_VARIABLE in str(refused.value)


async def test_certificate_for_another_name_is_a_sentence(api: Api, authority: Authority) -> None:
    address = Address(api.url.replace("127.0.0.1", "localhost"), ca=str(authority.certificate_path))
    async with StewardClient(address) as client:
        with pytest.raises(PlatformUnreachable, match="for another name"):
            await client.call(endpoints.SHOW_ME)


async def test_authority_of_the_environment_is_taken(
    api: Api, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(AUTHORITY_VARIABLE, str(authority.certificate_path))
    async with StewardClient(Address(api.url)) as client:
        assert (await client.call(endpoints.SHOW_ME)).asks_for_tokens is False

    monkeypatch.setenv(AUTHORITY_VARIABLE, str(tmp_path / "nowhere.pem"))
    with pytest.raises(RefusedError, match="GPUSTEWARD_CA: the authority's file"):
        await StewardClient(Address(api.url)).__aenter__()


async def test_plain_http_is_told_of_https(api: Api) -> None:
    async with StewardClient(Address(api.url.replace("https://", "http://"))) as client:
        with pytest.raises(PlatformUnreachable, match="try https"):
            await client.call(endpoints.SHOW_ME)


async def test_certificate_that_ends_soon_is_told(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "tls")
    authority.create()
    authority.issue("gateway", HOSTS, now=utcnow() - LEAF_LIFE + timedelta(days=10))
    async with gateway(nats_url, postgres_dsn, **settings_of(authority)) as api:
        url, context = api.url.replace("http://", "https://"), trusting(authority)
        async with api.session.get(f"{url}/metrics", ssl=context) as response:
            text = await response.text()

    (line,) = [line for line in text.splitlines() if 'certificate="gateway"' in line]
    days_left = (float(line.rpartition(" ")[2]) - utcnow().timestamp()) / 86400
    assert 9 < days_left < 11
    assert 'certificate="gateway_authority"' in text


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])  # noqa: S104  # refused
async def test_plain_text_beyond_loopback_is_refused(
    host: str, nats_url: str, postgres_dsn: str
) -> None:
    with pytest.raises(SettingsError, match="GPUSTEWARD_INSECURE_PLAINTEXT=true"):
        GatewaySettings(nats_url=nats_url, postgres_dsn=postgres_dsn, host=host)

    GatewaySettings(
        nats_url=nats_url, postgres_dsn=postgres_dsn, host=host, insecure_plaintext=True
    )


async def test_unusable_certificate_ends_a_start_with_a_sentence(
    nats_url: str, postgres_dsn: str, authority: Authority, tmp_path: Path
) -> None:
    authority.issue("other", HOSTS)
    settings = {**settings_of(authority), "tls_key": str(authority.files_of("other").key)}
    with pytest.raises(SettingsError, match="the key is another certificate's"):
        create_service(GatewaySettings(nats_url=nats_url, postgres_dsn=postgres_dsn, **settings))  # type: ignore[arg-type]  # fields by name


async def test_invitation_carries_the_authority(
    nats_url: str, postgres_dsn: str, authority: Authority, tmp_path: Path
) -> None:
    settings = {
        **settings_of(authority),
        "nats_home": str(tmp_path / "nats"),
        "node_nats_url": "tls://10.0.0.1:4222",
    }
    async with gateway(nats_url, postgres_dsn, **settings) as api:
        url, context = api.url.replace("http://", "https://"), trusting(authority)
        body = {"api_url": "https://10.0.0.1:8470"}
        async with api.session.post(
            f"{url}/api/v1/nodes/alpha/invite", json=body, ssl=context
        ) as response:
            invitation = json.loads(await response.read())

    assert "GPUSTEWARD_JOIN_CA=MII" in invitation["command"]
    assert "join https://10.0.0.1:8470 alpha" in invitation["command"]
