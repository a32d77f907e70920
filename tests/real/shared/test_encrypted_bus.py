"""The bus over TLS, with a real nats-server that says nothing before it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import nats.errors
import pytest

from schemas.scheduler.views import ListReservations, ReservationList
from services.cli.local_platform.bus_check import bus_trouble
from shared.errors import UnavailableError
from shared.local_platform.embedded import EmbeddedNats
from shared.messaging.bus import Bus
from shared.settings import SettingsError
from shared.testing import eventually
from shared.tls.authority import Authority
from shared.tls.nats import NatsSecurity
from tests.support.tls_relay import tls_relay

HOSTS = ["127.0.0.1", "localhost"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "tls")
    made.create()
    made.issue("nats", HOSTS)
    return made


@pytest.fixture
async def server(tmp_path: Path, authority: Authority) -> AsyncIterator[EmbeddedNats]:
    server = EmbeddedNats(
        tmp_path / "nats",
        tls=authority.files_of("nats"),
        authority=authority.certificate_path,
        users=["node_alpha"],
    )
    async with server:
        yield server


def bus_of(server: EmbeddedNats, url: str | None = None, user: str = "gateway") -> Bus:
    return Bus("test", url or server.url, str(server.users.path_of(user)))


async def test_credentials_are_all_that_a_client_needs(server: EmbeddedNats) -> None:
    async with tls_relay(server.port) as relay:
        bus = bus_of(server, f"tls://127.0.0.1:{relay.port}")
        await bus.open()
        with pytest.raises(UnavailableError, match="does not answer"):
            await bus.query(ListReservations(limit=1), ReservationList, timeout_seconds=0.2)
        assert bus.encryption is not None
        await bus.close()


async def test_address_of_nats_is_encrypted_with_an_authority(server: EmbeddedNats) -> None:
    bus = bus_of(server, server.url.replace("tls://", "nats://"))

    await bus.open()

    assert bus.encryption is not None
    await bus.close()


async def test_foreign_authority_is_refused_with_a_sentence(
    server: EmbeddedNats, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path / "foreign")
    foreign.create()
    login = json.loads(server.users.path_of("node_alpha").read_text())
    path = tmp_path / "node.json"
    path.write_text(json.dumps({**login, "ca": foreign.certificate_path.read_text()}))

    trouble = await bus_trouble(server.url, path, needs_jetstream=False)

    assert trouble is not None
    assert trouble.is_lasting
    assert "is not trusted here" in trouble.sentence
    assert "GPUSTEWARD_NATS_CA" in trouble.sentence


async def test_credentials_without_the_authority_say_so(
    server: EmbeddedNats, tmp_path: Path
) -> None:
    login = json.loads(server.users.path_of("node_alpha").read_text())
    del login["ca"]
    path = tmp_path / "node.json"
    path.write_text(json.dumps(login))

    plain = await bus_trouble(server.url.replace("tls://", "nats://"), path, needs_jetstream=False)
    encrypted = await bus_trouble(server.url, path, needs_jetstream=False)

    assert plain is not None
    assert "says nothing" in plain.sentence
    assert encrypted is not None
    assert "is not trusted here" in encrypted.sentence


async def test_right_credentials_are_no_trouble(server: EmbeddedNats) -> None:
    path = server.users.path_of("node_alpha")

    assert await bus_trouble(server.url, path, needs_jetstream=False) is None


async def test_server_without_tls_is_told_of(tmp_path: Path, authority: Authority) -> None:
    async with EmbeddedNats(tmp_path / "plain", users=["node_alpha"]) as plain:
        login = json.loads(plain.users.path_of("node_alpha").read_text())
        path = tmp_path / "node.json"
        path.write_text(json.dumps({**login, "ca": authority.certificate_path.read_text()}))

        trouble = await bus_trouble(plain.url, path, needs_jetstream=False)

    assert trouble is not None
    assert "does not begin with TLS" in trouble.sentence
    assert "handshake_first" in trouble.sentence


async def test_renewed_certificate_is_shown_after_a_reload(
    server: EmbeddedNats, authority: Authority
) -> None:
    former = bus_of(server)
    await former.open()
    first = former.encryption
    assert first is not None
    authority.issue("nats", [*HOSTS, "gpus.example.org"])

    assert server.reload()

    async def is_new() -> bool:
        bus = bus_of(server)
        try:
            await bus.open()
        except nats.errors.Error:
            return False  # while it loads, the server knows no user for a moment
        connection = bus.encryption
        await bus.close()
        assert connection is not None
        return "gpus.example.org" in str(connection.getpeercert())

    await eventually(is_new, what="the new certificate")
    assert former.is_connected
    await former.close()


async def test_client_certificate_is_shown_where_asked_for(
    server: EmbeddedNats, authority: Authority, tmp_path: Path
) -> None:
    configuration = server.home / "nats.conf"
    verify = f'verify: true\n  ca_file: "{authority.certificate_path}"\n  min_version'
    configuration.write_text(configuration.read_text().replace("min_version", verify))
    assert server.reload()
    authority.issue("client", ["client"], also_client=True)
    files = authority.files_of("client")
    security = NatsSecurity(
        ca=str(authority.certificate_path),
        certificate=str(files.certificate),
        key=str(files.key),
    )
    path = str(server.users.path_of("gateway"))

    async def is_asked_for() -> bool:
        trouble = await bus_trouble(server.url, Path(path), needs_jetstream=False)
        return trouble is not None

    await eventually(is_asked_for, what="a client without a certificate to be refused")
    bus = Bus("test", server.url, path, security=security)
    await bus.open()

    assert bus.is_connected
    await bus.close()


def test_unusable_authority_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("nothing")

    with pytest.raises(SettingsError, match="holds no certificate of an authority"):
        Bus("test", "tls://127.0.0.1:4222", security=NatsSecurity(ca=str(path)))
