"""Brings a backup back into an empty data directory, so that the next `up` is that platform."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from datetime import datetime
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
from msgspec import Struct

from schemas.errors import ErrorCode
from shared.errors import RefusedError, UnavailableError
from shared.lifecycle import DataDirectoryLock
from shared.local_platform.backup.archive import (
    DATABASE,
    FILES,
    BackupReader,
    Manifest,
    RanSettings,
)
from shared.local_platform.backup.create import OnProgress, end_program, program
from shared.local_platform.embedded import EmbeddedPostgres
from shared.local_platform.platform import POSTGRES_SERVICES, POSTGRES_VARIABLE
from shared.paths import DataDirectory, make_directory, python_path, write_atomically
from shared.postgres.pending_migrations import migrations_of
from shared.waiting import within

SET_RIGHT: Final = ("scheduler", "gateway")  # whose `after_restore` runs
SET_RIGHT_SECONDS: Final = 300.0
RESTORED_SETTINGS: Final = "restored-settings"
# What an empty directory may hold: backups, and what a platform leaves that never started.
_HARMLESS: Final = frozenset({"backups", "lock", "logs", "run", "tls"})
_ADDED: Final = (
    *("postgres", "nats", "installation_id", "admin_token", "tokens.json", "secrets.key", "tls"),
)


class Restored(Struct, frozen=True, kw_only=True):
    """What a restore did. `set_right` counts by name; `settings_directory` has how it was run."""

    manifest: Manifest
    set_right: dict[str, int]
    settings: RanSettings
    settings_directory: Path | None


async def restore_backup(
    backup: BackupReader, directory: DataDirectory, on_progress: OnProgress
) -> Restored:
    """Check the backup, then make the directory the platform that it is of, with nothing running.

    Raises RefusedError where the directory holds anything or the backup may not be restored here,
    UnavailableError or OSError where that fails; the directory is empty again then.
    """
    check_release(backup)
    backup.check(lambda size: on_progress("checking", size))
    _refuse_wrong_user(directory)
    directory.prepare()
    with DataDirectoryLock(directory):
        if directory.restoring_path.exists():
            remove_added(directory)  # of a restore that was cut off
        _refuse_full(directory)
        with _undone_on_failure(directory):
            _write_files(backup, directory)
            done = await _restore_database(backup, directory, on_progress)
            settings = backup.settings()
            settings_directory = _write_settings(backup, settings, directory)
        directory.restoring_path.unlink()
    return Restored(
        manifest=backup.manifest,
        set_right=done,
        settings=settings,
        settings_directory=settings_directory,
    )


def check_release(backup: BackupReader) -> None:
    """Raises RefusedError for a database that a later release has written."""
    for schema, version in sorted(backup.manifest.schemas.items()):
        release_version = len(migrations_of(schema)) if schema in POSTGRES_SERVICES else 0
        if version > release_version:
            raise RefusedError(
                ErrorCode.UNSUPPORTED,
                f"{backup.path} was written by a later release, {backup.manifest.release}: its "
                f"schema {schema} has version {version}, release {metadata.version('gpusteward')} "
                f"knows up to {release_version}; restore it with that release",
            )


def remove_added(directory: DataDirectory) -> None:
    """Remove what a restore adds to a directory, and nothing else."""
    place = EmbeddedPostgres(directory.postgres).place.root
    if place != directory.postgres:
        shutil.rmtree(place.parent)
    for name in (*_ADDED, RESTORED_SETTINGS):
        path = directory.root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    directory.restoring_path.unlink(missing_ok=True)


def _refuse_wrong_user(directory: DataDirectory) -> None:
    """Raises RefusedError where the platform's own user could not read what root would write."""
    if os.geteuid() == 0 and directory.root.exists() and directory.root.stat().st_uid != 0:
        owner = directory.root.owner()
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"{directory.root} belongs to {owner}, as whom the platform runs: restore as that user,"
            f" `sudo -u {owner} gpusteward backup restore ...`",
        )


def _refuse_full(directory: DataDirectory) -> None:
    names = sorted(path.name for path in directory.root.iterdir() if path.name not in _HARMLESS)
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"expected an empty data directory, found {', '.join(names[:3])}{more} in "
            f"{directory.root}: a backup is not restored over a platform; move that away, or name "
            "another directory by --data-dir",
        )


@contextlib.contextmanager
def _undone_on_failure(directory: DataDirectory) -> Iterator[None]:
    directory.restoring_path.touch(mode=0o600)
    try:
        yield
    except BaseException:
        remove_added(directory)
        raise


def _write_files(backup: BackupReader, directory: DataDirectory) -> None:
    for name in backup.manifest.parts:
        if name.startswith(FILES):
            _write_below(directory.root, name.removeprefix(FILES), backup.read(name))


def _write_below(root: Path, name: str, content: bytes) -> None:
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"the backup has a part that lies outside: {name}"
        )
    path = root / relative
    make_directory(path.parent, 0o700)
    write_atomically(path, content)


def _write_settings(
    backup: BackupReader, settings: RanSettings, directory: DataDirectory
) -> Path | None:
    """Put how it was run where people find it: nobody but they can start it so again."""
    if not settings.arguments and not settings.variables:
        return None
    place = directory.root / RESTORED_SETTINGS
    lines = [f"{name}={value}\n" for name, value in sorted(settings.variables.items())]
    _write_below(place, "environment", "".join(lines).encode())
    _write_below(place, "arguments.json", msgspec.json.encode(settings.arguments) + b"\n")
    for part in settings.files:
        _write_below(place, PurePosixPath(part).name, backup.read(part))
    return place


async def _restore_database(
    backup: BackupReader, directory: DataDirectory, on_progress: OnProgress
) -> dict[str, int]:
    postgres = EmbeddedPostgres(
        directory.postgres,
        log_path=directory.log_path("postgres"),
        schemas=sorted(POSTGRES_SERVICES),
    )
    dsn = await postgres.start()
    try:
        await _load(backup, dsn, on_progress)
        return await set_all_right(dsn, backup.manifest.created_at)
    finally:
        await postgres.stop()


async def _load(backup: BackupReader, dsn: str, on_progress: OnProgress) -> None:
    arguments = ["--clean", "--if-exists", "--exit-on-error", "--no-password"]
    async with program("pg_restore", arguments, dsn) as (process, _, source):
        # What it says as it ends tells more than a pipe that is closed.
        with contextlib.suppress(ConnectionError):
            for chunk in backup.chunks(DATABASE):
                source.write(chunk)
                await source.drain()
                on_progress("the database", len(chunk))
        await end_program(process, "pg_restore")


async def set_all_right(dsn: str, backup_at: datetime) -> dict[str, int]:
    """Have each service set right what only it knows of its tables, of which `backup_at` is the
    time; what was done, counted. Raises UnavailableError with the reason.
    """
    counts: dict[str, int] = {}
    for schema in SET_RIGHT:
        counts |= await _set_right(schema, dsn, backup_at)
    return counts


async def _set_right(schema: str, dsn: str, backup_at: datetime) -> dict[str, int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"services.{schema}.after_restore", backup_at.isoformat()),
        env={**os.environ, "PYTHONPATH": python_path(), POSTGRES_VARIABLE: dsn},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with within(SET_RIGHT_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        raise UnavailableError(
            f"{schema} was not set right within {SET_RIGHT_SECONDS:g} s"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        error_lines = err.decode(errors="replace").strip().splitlines()
        raise UnavailableError(
            f"{schema} was not set right: {error_lines[-1] if error_lines else 'it ended'}"
        )
    lines = out.decode().splitlines()  # its log comes before
    return msgspec.json.decode(lines[-1], type=dict[str, int])
