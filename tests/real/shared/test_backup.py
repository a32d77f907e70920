"""A backup of a real Postgres that is written to, and its restore into an empty directory."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from schemas.errors import ErrorCode
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.local_platform.backup.archive import open_backup
from shared.local_platform.backup.create import ExternalPostgres, create_backup
from shared.local_platform.backup.restore import Restored, restore_backup
from shared.local_platform.bus_users import BusUsers
from shared.local_platform.embedded import EmbeddedPostgres
from shared.local_platform.platform import (
    POSTGRES_SERVICES,
    PlatformOptions,
    RestoreUnfinished,
    run_platform,
)
from shared.local_platform.supervisor.supervisor import ChildState, State
from shared.paths import DataDirectory, Endpoint
from shared.postgres.database import Database
from shared.postgres.pending_migrations import migrations_of
from shared.testing import short_directory
from shared.waiting import cancel_and_wait
from tests.support.disks.small_disk import small_disk

DEAD_LETTER = "dead_letter (subject, body, error) VALUES ('s', '', '')"


def embedded(directory: DataDirectory) -> EmbeddedPostgres:
    return EmbeddedPostgres(
        directory.postgres,
        log_path=directory.log_path("postgres"),
        schemas=sorted(POSTGRES_SERVICES),
        settings={"fsync": "off"},
    )


@dataclass
class Source:
    """A data directory as a running `up` leaves it, with a database that is written to."""

    root: Path
    directory: DataDirectory
    dsn: str

    async def back_up(self, name: str) -> Path:
        created = await create_backup(self.directory, self.root / name, lambda *_: None)
        return created.path

    async def write_for_ever(self) -> None:
        """Pairs of rows, one transaction each: a backup has both or none."""
        connection = await asyncpg.connect(self.dsn)
        try:
            while True:
                async with connection.transaction():
                    for schema in ("scheduler", "gateway"):
                        await connection.execute(f"INSERT INTO {schema}.{DEAD_LETTER}")
        finally:
            await connection.close()


def say_running(directory: DataDirectory, postgres_dsn: str, *children: str) -> None:
    """Write what a supervisor writes for others on its host."""
    directory.write_endpoint(Endpoint(pid=os.getpid(), postgres_dsn=postgres_dsn))
    states = [ChildState(name=name, state=State.READY, changed_at=utcnow()) for name in children]
    directory.state_path.write_bytes(msgspec.json.encode(states))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def source() -> AsyncIterator[Source]:
    with short_directory() as root:
        directory = DataDirectory(root / "data")
        directory.prepare()
        directory.installation_id()
        BusUsers(directory.nats / "users").create(["node_alpha"])
        (directory.nats / "port").write_text("4777")
        postgres = embedded(directory)
        dsn = await postgres.start()
        for schema in sorted(POSTGRES_SERVICES):
            database = Database(postgres.login_of(schema), schema, migrations_of(schema))
            await database.open()
            await database.close()
        say_running(directory, dsn, "postgres")
        try:
            yield Source(root, directory, dsn)
        finally:
            await postgres.stop()


async def restored(path: Path, target: DataDirectory) -> Restored:
    with open_backup(path) as reader:
        return await restore_backup(reader, target, lambda *_: None)


async def fetch(directory: DataDirectory, query: str) -> Any:
    """A value of a restored database."""
    postgres = embedded(directory)
    connection = await asyncpg.connect(await postgres.start())
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()
        await postgres.stop()


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="module")
async def test_backup_under_load_is_one_moment(source: Source) -> None:
    writers = [asyncio.create_task(source.write_for_ever()) for _ in range(2)]
    await asyncio.sleep(0.3)

    first, second = await asyncio.gather(source.back_up("a.zip"), source.back_up("b.zip"))

    await cancel_and_wait(*writers)
    for number, path in enumerate((first, second)):
        target = DataDirectory(source.root / f"restored-{number}")
        await restored(path, target)
        assert await fetch(
            target,
            "SELECT (SELECT count(*) FROM scheduler.dead_letter) > 0 AND"
            " (SELECT count(*) FROM scheduler.dead_letter) ="
            " (SELECT count(*) FROM gateway.dead_letter)",
        )
        # The same platform to its nodes, by the same credentials at the same port.
        assert target.installation_id() == source.directory.installation_id()
        assert (target.nats / "port").read_text() == "4777"
        users = [BusUsers(d.nats / "users").read("node_alpha") for d in (target, source.directory)]
        assert users[0] == users[1]
        assert (target.nats / "users" / "node_alpha.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio(loop_scope="module")
async def test_services_log_in_to_the_restored_database(source: Source) -> None:
    target = DataDirectory(source.root / "logins")
    await restored(await source.back_up("logins.zip"), target)

    postgres = embedded(target)
    await postgres.start()
    try:
        for schema in sorted(POSTGRES_SERVICES):
            database = Database(postgres.login_of(schema), schema, migrations_of(schema))
            await database.open()
            await database.pool.execute(f"INSERT INTO {DEAD_LETTER}")
            await database.close()
    finally:
        await postgres.stop()


@pytest.mark.asyncio(loop_scope="module")
async def test_restore_over_a_platform_is_refused(source: Source) -> None:
    path = await source.back_up("over.zip")
    target = DataDirectory(source.root / "full")
    target.prepare()
    (target.root / "tokens.json").write_text("[]")

    with pytest.raises(RefusedError, match=r"expected an empty data directory, found tokens\.json"):
        await restored(path, target)

    assert (target.root / "tokens.json").read_text() == "[]"


@pytest.mark.asyncio(loop_scope="module")
async def test_cut_off_restore_is_begun_anew(source: Source) -> None:
    path = await source.back_up("cut.zip")
    target = DataDirectory(source.root / "cut")
    target.prepare()
    (target.postgres / "cluster").mkdir(parents=True)
    target.restoring_path.touch()

    with pytest.raises(RestoreUnfinished, match="was cut off"):
        await run_platform(PlatformOptions(data_dir=target.root, services=()))
    done = await restored(path, target)

    assert done.set_right == {"reservations_fenced": 0, "devices_awaited": 0, "logins_ended": 0}
    assert not target.restoring_path.exists()


@pytest.mark.asyncio(loop_scope="module")
async def test_failed_restore_leaves_the_directory_empty(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await source.back_up("fails.zip")
    target = DataDirectory(source.root / "fails")
    monkeypatch.setattr("shared.local_platform.backup.restore.SET_RIGHT", ("nobody",))

    with pytest.raises(UnavailableError, match=r"nobody was not set right: .*No module"):
        await restored(path, target)

    assert {p.name for p in target.root.iterdir()} <= {"lock", "logs", "run"}


@pytest.mark.asyncio(loop_scope="module")
async def test_full_disk_leaves_no_backup(source: Source) -> None:
    with small_disk(source.root / "disk", 1) as disk:
        (disk / "filler").write_bytes(bytes(1 << 20)[: (1 << 20) - 8192])

        with pytest.raises(OSError, match="No space left"):
            await create_backup(source.directory, disk / "b.zip", lambda *_: None)

        assert [p.name for p in disk.iterdir()] == ["filler"]


@pytest.mark.asyncio(loop_scope="module")
async def test_existing_file_is_not_replaced(source: Source) -> None:
    path = await source.back_up("twice.zip")
    content = path.read_bytes()

    with pytest.raises(RefusedError, match="expected a name that is free"):
        await source.back_up("twice.zip")

    assert path.read_bytes() == content


async def test_postgres_of_ones_own_is_not_dumped(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    say_running(directory, "postgresql://db/gpusteward", "scheduler")

    with pytest.raises(ExternalPostgres):
        await create_backup(directory, None, lambda *_: None)


async def test_nothing_that_runs_is_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no platform runs") as raised:
        await create_backup(DataDirectory(tmp_path), None, lambda *_: None)

    assert raised.value.code is ErrorCode.UNAVAILABLE
