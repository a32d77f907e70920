"""Postgres over TLS: what a DSN says of it reaches a real server, and what is wrong a person."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from shared.postgres.connecting import connect
from shared.postgres.database import Database
from shared.settings import SettingsError
from shared.tls.authority import Authority
from tests.support.ports import free_port
from tests.support.postgres.encrypted import encrypted_postgres, needs_postgres_with_tls
from tests.support.tls_relay import tls_relay

pytestmark = [pytest.mark.long, needs_postgres_with_tls]  # a server of its own for each test

IS_ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "tls")
    made.create()
    made.issue("postgres", ["127.0.0.1", "localhost"])
    made.issue("client", ["postgres"], also_client=True)
    return made


@pytest.fixture
async def port(authority: Authority) -> AsyncIterator[int]:
    async with encrypted_postgres(authority.files_of("postgres")) as port:
        yield port


def dsn_of(port: int, parameters: str, host: str = "127.0.0.1") -> str:
    return f"postgresql://postgres@{host}:{port}/postgres?{parameters}"


async def test_verified_connection_passes_nothing_in_plain_text(
    port: int, authority: Authority
) -> None:
    async with tls_relay(port, is_postgres=True) as relay:
        full = f"sslmode=verify-full&sslrootcert={authority.certificate_path}"
        connection = await connect(dsn_of(relay.port, full))
        assert await connection.fetchval(IS_ENCRYPTED)
        await connection.close()


async def test_several_hosts_are_each_verified(port: int, authority: Authority) -> None:
    hosts = f"127.0.0.1:{free_port()},localhost:{port}"
    full = f"sslmode=verify-full&sslrootcert={authority.certificate_path}"

    connection = await connect(f"postgresql://postgres@{hosts}/postgres?{full}")

    assert await connection.fetchval(IS_ENCRYPTED)
    await connection.close()


async def test_client_certificate_of_the_dsn_is_shown(port: int, authority: Authority) -> None:
    files = authority.files_of("client")
    pair = f"sslmode=require&sslcert={files.certificate}&sslkey={files.key}"

    connection = await connect(dsn_of(port, pair))

    assert await connection.fetchval(IS_ENCRYPTED)
    await connection.close()


async def test_foreign_authority_ends_a_start_with_a_sentence(port: int, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")
    foreign.create()
    full = f"sslmode=verify-full&sslrootcert={foreign.certificate_path}"

    with pytest.raises(SettingsError, match="its certificate is not trusted") as refused:
        await Database(dsn_of(port, full), "results", ()).open()

    assert "sslrootcert in the DSN" in str(refused.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "No such file"), ("nothing", "holds no certificate of an authority")],
)
async def test_unusable_authority_ends_a_start_with_a_sentence(
    content: str | None, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    dsn = f"postgresql://postgres@127.0.0.1:{free_port()}/x?sslmode=verify-ca&sslrootcert={path}"

    with pytest.raises(SettingsError, match=sentence):
        await Database(dsn, "results", ()).open()


async def test_server_without_tls_ends_a_start_with_a_sentence() -> None:
    async with encrypted_postgres(None) as port:
        with pytest.raises(SettingsError, match="speaks no TLS"):
            await Database(dsn_of(port, "sslmode=require"), "results", ()).open()


async def test_wrong_host_name_is_not_trusted(authority: Authority) -> None:
    authority.issue("elsewhere", ["elsewhere.example.org"])
    full = f"sslmode=verify-full&sslrootcert={authority.certificate_path}"
    async with encrypted_postgres(authority.files_of("elsewhere")) as port:
        with pytest.raises(asyncpg.ClientConfigurationError, match="one of its names"):
            await connect(dsn_of(port, full))
