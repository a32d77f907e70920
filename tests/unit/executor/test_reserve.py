"""A full disk takes what ends an attempt."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.executor.journal.disk_reserve import RESERVE_BYTES, Reserve
from services.executor.journal.journal import Journal, JournalFull
from tests.support.disks.small_disk import fill, small_disk

DISK_MB = 48


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_MB) as place:
        yield place


async def write(journal: Journal, rows: int) -> None:
    def insert(connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO event (body, staged_at) VALUES (?, 0)", [(b"x" * 1000,)] * rows
        )

    await journal.transact(insert)


async def test_full_disk_takes_one_commit_from_reserve(disk: Path) -> None:
    journal = await Journal(disk / "executor" / "journal.db").open()
    try:
        kept_before = journal.disk_reserve.is_there()
        filler = fill(disk)
        await write(journal, 500)
        kept_when_full = journal.disk_reserve.is_there()
        await journal.take_disk_reserve()
        kept_while_full = journal.disk_reserve.is_there()
        filler.unlink()
        await journal.take_disk_reserve()
        kept_after = journal.disk_reserve.is_there()
        rows = await journal.transact(lambda c: c.execute("SELECT count(*) FROM event").fetchone())
    finally:
        journal.close_nowait()

    assert kept_before
    assert not kept_when_full
    assert not kept_while_full
    assert kept_after
    assert rows[0] == 500


async def test_full_disk_without_reserve_changes_nothing(
    disk: Path,
) -> None:
    journal = await Journal(disk / "executor" / "journal.db").open()
    try:
        journal.disk_reserve.give_up()
        filler = fill(disk)
        with pytest.raises(JournalFull, match="full"):
            await write(journal, 5000)
        filler.unlink()
        rows = await journal.transact(lambda c: c.execute("SELECT count(*) FROM event").fetchone())
    finally:
        journal.close_nowait()

    assert rows[0] == 0


def test_reserve_is_not_taken_from_small_disk(disk: Path) -> None:
    (disk / "much").write_bytes(b"x" * ((DISK_MB - 12) << 20))
    reserve = Reserve(disk / "reserve")

    reserve.take()

    assert not reserve.is_there()
    assert RESERVE_BYTES < 12 << 20


async def test_full_journal_says_so_and_recovers(
    disk: Path,
) -> None:
    journal = await Journal(disk / "executor" / "journal.db").open()
    try:
        filler = fill(disk)
        journal.disk_reserve.give_up()
        fill(disk)
        with pytest.raises(JournalFull, match="the disk is full"):
            await write(journal, 500)
        waiting = asyncio.create_task(
            journal.transact_when_possible(
                lambda connection: (
                    connection.execute(
                        "INSERT INTO event (body, staged_at) VALUES (x'00', 0)"
                    ).rowcount
                )
            )
        )
        filler.unlink()
        written = await waiting
        events = await journal.transact(
            lambda connection: connection.execute("SELECT count(*) FROM event").fetchone()[0]
        )
    finally:
        journal.close_nowait()

    assert (written, events) == (1, 1)


async def test_a_journal_opens_on_a_full_disk(disk: Path) -> None:
    path = disk / "executor" / "journal.db"
    (await Journal(path).open()).close_nowait()
    fill(disk)
    journal = await Journal(path).open()
    try:
        await write(journal, 1)
    finally:
        journal.close_nowait()
