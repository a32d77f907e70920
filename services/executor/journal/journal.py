"""The executor's memory: an SQLite file whose every commit has reached the disk.

Room is kept beside it, so that a disk that is full takes what ends an attempt all the same.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from services.executor.journal.disk_reserve import Reserve
from shared.disk import NO_ROOM, is_full
from shared.errors import UnavailableError
from shared.logging import log
from shared.paths import make_directory
from shared.settings import SettingsError

T = TypeVar("T")

MIGRATIONS: Final[Sequence[str]] = (
    """
    CREATE TABLE command (
        command_id BLOB PRIMARY KEY,
        body_hash BLOB NOT NULL,
        reply BLOB NOT NULL,
        answered_at REAL NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE attempt (
        attempt_id BLOB PRIMARY KEY,
        experiment_id BLOB NOT NULL,
        reservation_id BLOB NOT NULL,
        command BLOB NOT NULL,
        accepted_at TEXT NOT NULL,
        started_at TEXT,
        phase TEXT NOT NULL,
        phase_started_at TEXT NOT NULL,
        timings BLOB NOT NULL,
        revision INTEGER NOT NULL DEFAULT 0,
        process BLOB,
        engine_port INTEGER,
        cancel_reason TEXT,
        outcome TEXT,
        failure BLOB,  -- why one rank of several ended, which no event of its own node reports
        pod BLOB,
        image_digest TEXT,
        finished_at TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX attempt_unfinished ON attempt (accepted_at) WHERE outcome IS NULL;
    CREATE INDEX attempt_reservation ON attempt (reservation_id);

    -- Epochs of parts of devices, which several attempts may have beside each other.
    CREATE TABLE cell_epoch (
        device_uuid TEXT NOT NULL,
        first_cell INTEGER NOT NULL,
        end_cell INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        PRIMARY KEY (device_uuid, first_cell, end_cell)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE fenced_reservation (
        reservation_id BLOB PRIMARY KEY,
        fenced_at REAL NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE cancelled_attempt (
        attempt_id BLOB PRIMARY KEY,
        cancelled_at REAL NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE event (
        event_no INTEGER PRIMARY KEY AUTOINCREMENT,
        body BLOB NOT NULL,
        staged_at REAL NOT NULL,
        sent_at REAL
    ) STRICT;
    CREATE INDEX event_unsent ON event (event_no) WHERE sent_at IS NULL;

    CREATE TABLE unsent_release (
        reservation_id BLOB PRIMARY KEY,
        body BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE node (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        largest_epoch INTEGER NOT NULL DEFAULT 0,
        reports INTEGER NOT NULL DEFAULT 0,
        stream_created_at TEXT
    ) STRICT;
    INSERT INTO node (only_row) VALUES (1);

    CREATE TABLE pod_cache (
        directory TEXT PRIMARY KEY,
        key TEXT NOT NULL,
        begun_at REAL NOT NULL,
        image_digest TEXT NOT NULL,
        left_at REAL NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX pod_cache_key ON pod_cache (key, left_at);
    """,
    # Engines that ended attempts left up, each with the release that is owed.
    """
    CREATE TABLE kept_engine (
        reservation_id BLOB PRIMARY KEY,
        attempt_id BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
)


RETRY_SECONDS: Final = 1.0


class JournalFull(UnavailableError):
    """Nothing can be recorded: the disk is full."""


class JournalTooNew(SettingsError):
    """The journal was written by a newer release."""


class Journal:
    """One connection in one thread; every access is a transaction there, in the order of the calls.

    A cancelled caller does not take back what it asked for: the transaction is made.
    Once it is closed, access raises UnavailableError: commands may still come, and are to be sent
    again to the executor's next life.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk_reserve = Reserve(path.with_name("reserve"))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self.on_change: Callable[[], None] = lambda: None
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        self._has_changed = False

    async def open(self) -> Self:
        """Make or migrate the file. Raises JournalTooNew, JournalFull, sqlite3.DatabaseError."""
        await self._run(lambda: self._with_room(self._open))
        return self

    def close_nowait(self) -> None:
        """Finish what was asked for and close the file, blocking the caller for that long."""
        self._is_closed = True
        self._thread.submit(self._close)
        self._thread.shutdown()

    async def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction, committed when it returns and rolled back when it raises.

        It runs once more where the disk was full and the reserve gave room. `on_change` is called
        after those that wrote something. Raises JournalFull.
        """
        result = await self._run(lambda: self._with_room(lambda: self._in_transaction(work)))
        if self._has_changed:
            self._has_changed = False
            self.on_change()
        return result

    async def transact_when_possible(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `transact`; while the disk is full try again, without limit."""
        while True:
            try:
                return await self.transact(work)
            except JournalFull as error:
                log.error("journal_full", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def take_disk_reserve(self) -> None:
        """Set the disk reserve aside again, if it was given up and the disk has room."""
        await self._run(self.disk_reserve.take)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._is_closed:
            raise UnavailableError("this executor is being stopped")
        # Shielded, or a cancellation would take back what the thread has not begun.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def _open(self) -> None:
        self._close()
        make_directory(self.path.parent, 0o700)
        self.disk_reserve.take()
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=10.0)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        self._connection = connection
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise JournalTooNew(
                f"the executor's journal {self.path} has version {version}, this release knows "
                f"versions up to {len(MIGRATIONS)}: a later release, or one before 0.1.0, has "
                "written it; start that release, or use another data directory"
            )
        for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
            connection.executescript(f"BEGIN; {migration} PRAGMA user_version = {number}; COMMIT;")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _with_room(self, work: Callable[[], T]) -> T:
        while True:
            try:
                return work()
            except (sqlite3.OperationalError, OSError) as error:
                if not self._lacks_room(error):
                    raise
                if not self.disk_reserve.give_up():
                    raise JournalFull(f"the disk is full, {self.path}: {error}") from error

    def _lacks_room(self, error: sqlite3.OperationalError | OSError) -> bool:
        if isinstance(error, OSError):
            return error.errno in NO_ROOM
        # With any other code a file beside the journal could not be made or made larger.
        return error.sqlite_errorcode == sqlite3.SQLITE_FULL or is_full(self.path.parent)

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            raise RuntimeError("the journal is not open")
        self._connection.execute("BEGIN IMMEDIATE")
        changes = self._connection.total_changes
        try:
            result = work(self._connection)
            self._connection.execute("COMMIT")
            self._has_changed |= self._connection.total_changes != changes
        except BaseException:
            # SQLite may have rolled back by itself, as it does when the disk is full.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result
