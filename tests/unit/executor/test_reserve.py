"""A full disk takes what ends an attempt."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.executor.journal import Journal
from services.executor.reserve import RESERVE_BYTES, Reserve

DISK_MB = 48


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that a test may fill."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a disk to fill is mounted")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", place], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("needs to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> Path:
    """Leave no byte of it free."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        block = b"\0" * (1 << 20)
        while block:
            try:
                file.write(block)
            except OSError:
                block = block[: len(block) // 2]
    return filler


async def write(journal: Journal, rows: int) -> None:
    def insert(connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO event (body, staged_at) VALUES (?, 0)", [(b"x" * 1000,)] * rows
        )

    await journal.transact(insert)


async def test_a_full_disk_takes_one_more_transaction_from_the_reserve(small_disk: Path) -> None:
    journal = await Journal(small_disk / "executor" / "journal.db").open()
    try:
        kept_before = journal.reserve.is_there()
        filler = fill(small_disk)
        await write(journal, 500)
        kept_when_full = journal.reserve.is_there()
        await journal.take_reserve()
        kept_while_full = journal.reserve.is_there()
        filler.unlink()
        await journal.take_reserve()
        kept_after = journal.reserve.is_there()
        rows = await journal.transact(lambda c: c.execute("SELECT count(*) FROM event").fetchone())
    finally:
        journal.close_nowait()

    assert kept_before
    assert not kept_when_full
    assert not kept_while_full
    assert kept_after
    assert rows[0] == 500


async def test_without_a_reserve_a_full_disk_is_an_error_and_changes_nothing(
    small_disk: Path,
) -> None:
    journal = await Journal(small_disk / "executor" / "journal.db").open()
    try:
        journal.reserve.give_up()
        filler = fill(small_disk)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await write(journal, 5000)
        filler.unlink()
        rows = await journal.transact(lambda c: c.execute("SELECT count(*) FROM event").fetchone())
    finally:
        journal.close_nowait()

    assert rows[0] == 0


def test_a_reserve_is_not_taken_from_a_disk_that_has_little(small_disk: Path) -> None:
    (small_disk / "much").write_bytes(b"x" * ((DISK_MB - 12) << 20))
    reserve = Reserve(small_disk / "reserve")

    reserve.take()

    assert not reserve.is_there()
    assert RESERVE_BYTES < 12 << 20
