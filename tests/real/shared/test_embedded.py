"""The embedded servers: private, durable, back on the same address, gone when we are."""

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import nats
import pytest

from shared.local_platform.embedded import EmbeddedNats, EmbeddedPostgres
from shared.local_platform.embedded.postgres_home import PostgresUnavailable
from shared.postgres.database import Database
from shared.processes.child_process import NotReady
from shared.processes.users import Identity, can_reach
from shared.testing import (
    NatsServer,
    PostgresServer,
    database_of,
    eventually,
    forget_placed_elsewhere,
    short_directory,
)
from tests.support.paths import ROOT

NatsFactory = Callable[[], Awaitable[NatsServer]]
PostgresFactory = Callable[[], Awaitable[PostgresServer]]
NOBODY = Identity(uid=65534, gid=65534, name="nobody")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def start_python(script: str, argument: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, argument],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_nats_accepts_credentials_and_streams(
    nats_server_factory: NatsFactory,
) -> None:
    server = await nats_server_factory()

    client = await nats.connect(server.authenticated_url)
    streams = client.jetstream()
    await streams.add_stream(name="FACTS", subjects=["facts.>"])
    stored = await streams.publish("facts.one", b"1")
    await client.close()

    assert stored.seq == 1
    assert client.max_payload == 1024 * 1024


async def test_nats_refuses_a_client_without_credentials(nats_server: NatsServer) -> None:
    reader, writer = await asyncio.open_connection(nats_server.host, nats_server.port)
    await reader.readline()

    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()

    assert answer == b"-ERR 'Authorization Violation'\r\n"


async def test_nats_keeps_its_secrets_in_private_files(nats_server: NatsServer) -> None:
    users = nats_server.users
    credentials = json.loads(users.path_of("scheduler").read_text())

    assert set(credentials) == {"user", "password", "inbox_prefix"}
    assert len(credentials["password"]) >= 32
    for path in (users.path_of("scheduler"), users.configuration_path):
        assert mode_of(path) == 0o600
    assert mode_of(nats_server.home / "nats.conf") == 0o600
    assert mode_of(users.directory) == mode_of(nats_server.home) == 0o700


async def test_nats_keeps_port_and_streams_after_sigkill(
    nats_server_factory: NatsFactory,
) -> None:
    server = await nats_server_factory()
    url = server.url
    client = await server.connect()
    await client.jetstream().add_stream(name="FACTS", subjects=["facts.>"])
    await client.close()

    await server.crash()
    assert await server.start() == url

    client = await server.connect()
    names = [info.config.name for info in await client.jetstream().streams_info()]
    await client.close()
    assert names == ["FACTS"]


async def test_nats_without_its_store_returns_empty(
    nats_server_factory: NatsFactory,
) -> None:
    server = await nats_server_factory()
    url = server.url
    client = await server.connect()
    await client.jetstream().add_stream(name="FACTS", subjects=["facts.>"])
    await client.close()

    await server.crash_and_lose_store()
    assert await server.start() == url

    client = await server.connect()
    assert await client.jetstream().streams_info() == []
    await client.close()


async def test_nats_reuses_port_and_credentials(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats") as first:
        url = first.authenticated_url

    async with NatsServer(tmp_path / "nats") as second:
        assert second.authenticated_url == url


async def test_nats_moves_when_its_port_is_taken(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats") as first:
        port = first.port
    squatter = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)

    async with squatter, NatsServer(tmp_path / "nats") as second:
        assert second.port != port
        client = await nats.connect(second.authenticated_url)
        await client.close()


async def test_failed_nats_shows_the_end_of_its_log(tmp_path: Path) -> None:
    squatter = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = squatter.sockets[0].getsockname()[1]

    async with squatter:
        with pytest.raises(NotReady, match="address already in use"):
            await EmbeddedNats(tmp_path / "nats", port=port).start()


async def test_postgres_is_durable_and_private(
    tmp_path: Path,
) -> None:
    with short_directory() as directory:
        async with EmbeddedPostgres(directory / "postgres") as server:
            connection = await asyncpg.connect(server.dsn)
            settings = {
                name: await connection.fetchval("SELECT current_setting($1)", name)
                for name in ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses")
            }
            locale = await connection.fetchval(
                "SELECT pg_encoding_to_char(encoding) || ' ' || datlocale FROM pg_database "
                "WHERE datname = current_database()"
            )
            await connection.close()

            assert settings == {
                "fsync": "on",
                "synchronous_commit": "on",
                "full_page_writes": "on",
                "listen_addresses": "",
            }
            assert locale == "UTF8 C.UTF-8"
            assert mode_of(server.place.socket_dir) == 0o700
            assert mode_of(server.place.cluster) == 0o700


@pytest.mark.long
async def test_postgres_keeps_rows_through_sigkill(
    postgres_server_factory: PostgresFactory,
) -> None:
    server = await postgres_server_factory()
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
    pid = server.pid
    assert pid is not None

    os.kill(pid, signal.SIGKILL)
    await server.wait()
    assert server.place.pid_path.exists()
    await eventually_starts(server)

    connection = await asyncpg.connect(server.dsn)
    assert await connection.fetchval("SELECT n FROM kept") == 1
    await connection.close()


async def eventually_starts(server: PostgresServer) -> None:
    """Workers of a killed postmaster need a moment to notice; until then the next one refuses."""
    for _ in range(50):
        try:
            await server.start()
        except NotReady:
            await asyncio.sleep(0.05)
        else:
            return
    await server.start()


async def test_postgres_hands_every_test_an_empty_database(postgres_server: PostgresServer) -> None:
    first = await postgres_server.take_database()
    second = await postgres_server.take_database()

    connection = await asyncpg.connect(first)
    await connection.execute(
        "CREATE TABLE mine (n int); CREATE SCHEMA more; CREATE VIEW more.v AS TABLE mine"
    )

    other = await asyncpg.connect(second)
    assert await other.fetchval("SELECT to_regclass('mine')") is None
    await other.close()
    await postgres_server.give_back_database(second)
    await postgres_server.give_back_database(first)
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await connection.fetchval("SELECT count(*) FROM mine")

    async with database_of(postgres_server) as third:
        connection = await asyncpg.connect(third)
        assert await connection.fetchval("SELECT to_regclass('mine')") is None
        assert await connection.fetchval("SELECT to_regnamespace('more')") is None
        await connection.execute("CREATE TABLE public.mine (n int)")
        await connection.close()
    # Who still has an old address, because it was left behind, finds nobody there.
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(first)


async def test_postgres_ends_statement_of_killed_client(postgres_dsn: str) -> None:
    script = (
        "import asyncio, asyncpg, sys\n"
        "async def main():\n"
        "    c = await asyncpg.connect(sys.argv[1])\n"
        "    await c.execute('SELECT pg_advisory_lock(1)')\n"
        "    print('held', flush=True)\n"
        "    await c.execute('SELECT pg_sleep(60)')\n"
        "asyncio.run(main())\n"
    )
    client = start_python(script, postgres_dsn)
    assert client.stdout is not None
    assert client.stdout.readline() == b"held\n"

    client.kill()
    client.communicate()

    connection = await asyncpg.connect(postgres_dsn)

    async def is_free() -> bool:
        return bool(await connection.fetchval("SELECT pg_try_advisory_lock(1)"))

    await eventually(is_free, what="the killed client's lock to be free")
    await connection.close()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to give the database to another user")
async def test_root_postgres_moves_below_closed_directory(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    home = closed / "data" / "postgres"
    try:
        async with EmbeddedPostgres(home) as server:
            connection = await asyncpg.connect(server.dsn)
            assert await connection.fetchval("SELECT 1") == 1
            await connection.close()

            assert (home / "MOVED").read_text().strip().endswith(str(server.place.root))
            assert server.place.cluster.stat().st_uid != 0
            assert mode_of(closed) == 0o700

        async with EmbeddedPostgres(home) as again:
            assert again.place.root == server.place.root
        forget_placed_elsewhere(home)
        with pytest.raises(PostgresUnavailable, match="bring that directory back"):
            await EmbeddedPostgres(home).start()

        shutil.rmtree(home)
        async with EmbeddedPostgres(home) as anew:
            assert anew.place.root != server.place.root
    finally:
        forget_placed_elsewhere(home)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to give the database to another user")
async def test_unreachable_postgres_is_not_begun_anew() -> None:
    with short_directory() as directory:
        home = directory / "data" / "postgres"
        async with EmbeddedPostgres(home):
            pass
        directory.chmod(0o700)

        with pytest.raises(PostgresUnavailable, match="can no longer reach the database"):
            await EmbeddedPostgres(home).start()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root copies the programs for another user")
async def test_postgres_runs_from_copy_when_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "shared.local_platform.embedded.postgres_home.can_reach", lambda _path, _identity: False
    )
    with short_directory() as directory:
        async with EmbeddedPostgres(directory / "postgres") as server:
            programs = server.place.programs

            assert programs.is_relative_to(directory)
            assert can_reach(programs / "postgres", NOBODY)
            connection = await asyncpg.connect(server.dsn)
            assert await connection.fetchval("SELECT 'A' ILIKE 'a'")
            await connection.close()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_postgres_of_user_runs_from_the_package() -> None:
    script = (
        "import asyncio, os, sys\n"
        "import asyncpg\n"
        "from pathlib import Path\n"
        "from shared.local_platform.embedded import EmbeddedPostgres\n"
        "async def main():\n"
        "    async with EmbeddedPostgres(Path(sys.argv[1]) / 'data' / 'postgres') as server:\n"
        "        c = await asyncpg.connect(server.dsn)\n"
        "        assert await c.fetchval('SELECT 1') == 1\n"
        "        await c.close()\n"
        "        assert server.place.run_as is None\n"
        "        print(server.place.cluster.stat().st_uid, flush=True)\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); os.environ['HOME'] = sys.argv[1]\n"
        "asyncio.run(main())\n"
    )
    with short_directory() as directory:
        os.chown(directory, NOBODY.uid, NOBODY.gid)
        user = start_python(script, str(directory))
        printed, _ = user.communicate(timeout=45)

    assert printed == b"65534\n"
    assert user.returncode == 0


@pytest.mark.long
async def test_postgres_with_long_path_moves_its_socket() -> None:
    with short_directory() as directory:
        home = directory / ("long" * 25) / "postgres"
        async with EmbeddedPostgres(home) as server:
            socket_dir = server.place.socket_dir
            connection = await asyncpg.connect(server.dsn)
            await connection.close()

            assert mode_of(socket_dir) == 0o700
            assert not socket_dir.is_relative_to(home)
        shutil.rmtree(socket_dir)


async def test_other_postgres_version_is_refused() -> None:
    with short_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        server.place.cluster.mkdir()
        (server.place.cluster / "PG_VERSION").write_text("15\n")

        with pytest.raises(PostgresUnavailable, match=r"expected .* Postgres 18, found 15"):
            await server.start()


@pytest.mark.long
async def test_an_interrupted_initdb_is_begun_again() -> None:
    with short_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        unfinished = server.place.root / "cluster.new"
        unfinished.mkdir()
        (unfinished / "PG_VERSION").write_text("18\n")

        async with server:
            connection = await asyncpg.connect(server.dsn)
            await connection.close()

        assert not unfinished.exists()


@pytest.mark.long
async def test_servers_die_with_their_starter() -> None:
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from shared.local_platform.embedded import EmbeddedNats, EmbeddedPostgres\n"
        "async def main():\n"
        "    home = Path(sys.argv[1])\n"
        "    nats, postgres = EmbeddedNats(home / 'nats'), EmbeddedPostgres(home / 'postgres')\n"
        "    await nats.start(); await postgres.start()\n"
        "    print(nats.pid, postgres.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with short_directory() as directory:
        owner = start_python(script, str(directory))
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 2
        workers = children_of(pids[1])
        assert workers

        owner.kill()
        owner.communicate()

        def are_gone() -> bool:
            return not any(is_alive(pid) for pid in (*pids, *workers))

        await eventually(are_gone, what="both servers and the workers of Postgres to be gone")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.long
async def test_each_service_sees_its_own_schema_alone() -> None:
    with short_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres", schemas=("scheduler", "results"))
        await server.start()
        try:
            owner = Database(server.login_of("scheduler"), "scheduler", ("CREATE TABLE held ()",))
            await owner.open()
            await owner.close()
            await server.stop()
            await server.start()
            other = await asyncpg.connect(server.login_of("results"))
            for forbidden in (
                "SELECT * FROM scheduler.held",
                "SELECT * FROM scheduler.outbox",
                "CREATE TABLE scheduler.mine ()",
                "CREATE SCHEMA mine",
                "CREATE TABLE public.mine ()",
                "SET ROLE gpusteward_scheduler",
                "SET ROLE postgres",
                "CREATE ROLE mine",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await other.execute(forbidden)
            own = await other.fetchval("SELECT has_schema_privilege('results', 'CREATE')")
            await other.close()
            for role in ("postgres", "gpusteward_scheduler"):
                with pytest.raises(asyncpg.InvalidPasswordError):
                    await asyncpg.connect(server.login_of("results"), user=role)

            assert own
            assert mode_of(directory / "postgres" / "passwords.json") == 0o600
        finally:
            await server.stop()


@pytest.mark.long
async def test_older_database_gets_logins_at_next_start() -> None:
    with short_directory() as directory:
        before = EmbeddedPostgres(directory / "postgres")
        await before.start()
        table = ("CREATE TABLE held (a int); INSERT INTO held VALUES (7)",)
        shared = Database(before.dsn, "scheduler", table)
        await shared.open()
        await shared.close()
        await before.stop()
        server = EmbeddedPostgres(directory / "postgres", schemas=("scheduler", "results"))
        await server.start()
        try:
            own = Database(server.login_of("scheduler"), "scheduler", table)
            await own.open()
            async with own.transaction() as connection:
                found = await connection.fetchval("SELECT a FROM held")
            await own.close()
        finally:
            await server.stop()

    assert found == 7
