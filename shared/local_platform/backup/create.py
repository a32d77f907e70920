"""Takes a backup of a platform that runs, whatever it does meanwhile."""

import asyncio
import contextlib
import os
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from schemas.errors import ErrorCode
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.local_platform.backup.archive import (
    BACKUP_FORMAT,
    BACKUP_MANIFEST,
    CHUNK_BYTES,
    DATABASE,
    FILES,
    SETTINGS,
    BackupWriter,
    Manifest,
    new_file,
)
from shared.local_platform.backup.contents import (
    SECRETS_KEY,
    has_embedded_postgres,
    read_files,
    read_keys,
    read_settings,
)
from shared.local_platform.embedded.postgres_home import INSTALL_DIRECTORY, find_package
from shared.local_platform.platform import POSTGRES_SERVICES
from shared.local_platform.secrets_key import join_keys
from shared.paths import DataDirectory, Endpoint, make_directory
from shared.postgres.connecting import LASTING
from shared.postgres.outages import OUTSIDE_DOWN
from shared.postgres.pending_migrations import read_pending

OnProgress = Callable[[str, int], None]
Running = tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]
MESSAGE_CHARACTERS: Final = 400


class ExternalPostgres(RefusedError):
    """The platform's database is a server of the operator's, who backs it up as such."""


@dataclass(frozen=True, slots=True)
class Created:
    """A backup that was written."""

    path: Path
    manifest: Manifest
    size_bytes: int


def default_path(directory: DataDirectory) -> Path:
    return backups_directory(directory) / f"gpusteward-{utcnow():%Y%m%dT%H%M%SZ}.zip"


def backups_directory(directory: DataDirectory) -> Path:
    return directory.root / "backups"


async def create_backup(
    directory: DataDirectory, target: Path | None, on_progress: OnProgress
) -> Created:
    """Write a backup of the platform that runs on a data directory, by default below `backups/`.

    `on_progress` is told what is being written, and how many bytes of it are. Raises RefusedError
    where there is nothing to back up here or `target` exists, UnavailableError and OSError where it
    cannot be read or written; nothing is left then.
    """
    endpoint = directory.read_endpoint()
    if endpoint is None or endpoint.postgres_dsn is None:
        raise RefusedError(
            ErrorCode.UNAVAILABLE,
            f"no platform runs on {directory.root}: start it, or copy the directory as it is",
        )
    if not has_embedded_postgres(directory):
        raise ExternalPostgres(ErrorCode.UNSUPPORTED, "its Postgres is a server of your own")
    if target is None:
        target = default_path(directory)
        make_directory(target.parent, 0o700)
    if target.exists():
        raise RefusedError(ErrorCode.CONFLICT, f"{target} exists: expected a name that is free")
    with new_file(target) as file, zipfile.ZipFile(file, "w") as archive:
        manifest = await _write(archive, directory, endpoint, endpoint.postgres_dsn, on_progress)
    return Created(path=target, manifest=manifest, size_bytes=target.stat().st_size)


async def _write(
    archive: zipfile.ZipFile,
    directory: DataDirectory,
    endpoint: Endpoint,
    dsn: str,
    on_progress: OnProgress,
) -> Manifest:
    step = ["the database"]
    writer = BackupWriter(archive, lambda size: on_progress(step[0], size))
    created_at = utcnow()  # before the dump's snapshot: what is fenced is what was held by then
    schemas = await _read_schemas(dsn)
    keys_before = read_keys(directory)
    await _dump(writer, dsn)
    step[0] = "credentials and settings"
    settings, settings_files = read_settings(endpoint.pid)
    files = read_files(directory, settings.variables)
    if keys := [*read_keys(directory), *keys_before]:
        # Those before the dump as well: a rotation may have put others in their place meanwhile.
        files[f"{FILES}{SECRETS_KEY}"] = join_keys(keys).encode()
    for name, content in files.items():
        writer.add(name, content)
    for name, content in settings_files.items():
        writer.add(name, content)
    writer.add(SETTINGS, msgspec.json.encode(settings))
    manifest = Manifest(
        format=BACKUP_FORMAT,
        release=metadata.version("gpusteward"),
        created_at=created_at,
        installation_id=directory.installation_id(),
        schemas=schemas,
        parts=dict(writer.parts),
    )
    writer.add(BACKUP_MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    return manifest


async def _read_schemas(dsn: str) -> dict[str, int]:
    try:
        pending, _ = await read_pending(dsn)
    except (*OUTSIDE_DOWN, *LASTING) as error:
        raise UnavailableError(f"the database cannot be read: {error}") from error
    return {schema.schema: schema.version for schema in pending}


async def _dump(writer: BackupWriter, dsn: str) -> None:
    """Have pg_dump write the schemas as they are in one snapshot."""
    schemas = [f"--schema={schema}" for schema in sorted(POSTGRES_SERVICES)]
    arguments = ["--format=custom", "--compress=gzip:1", "--no-password", *schemas]
    async with program("pg_dump", arguments, dsn) as (process, output, _):
        with writer.open_part(DATABASE) as append:
            while chunk := await output.read(CHUNK_BYTES):
                append(chunk)
        await end_program(process, "pg_dump")


@contextlib.asynccontextmanager
async def program(name: str, arguments: Iterable[str], dsn: str) -> AsyncIterator[Running]:
    """Run one of the embedded Postgres's programs, and kill it at the end of the block.

    Others on the host see no password of it.
    """
    parts = urlsplit(dsn)
    user, _, host = parts.netloc.rpartition("@")
    address = urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}"))
    process = await asyncio.create_subprocess_exec(
        find_package() / INSTALL_DIRECTORY / "bin" / name,
        *arguments,
        f"--dbname={address}",
        env={"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": unquote(parts.password or "")},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a program without its pipes")
    try:
        yield process, process.stdout, process.stdin
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def end_program(process: asyncio.subprocess.Process, name: str) -> None:
    """Wait for its end. Raises UnavailableError with what it message, unless it succeeded."""
    _, error_bytes = await process.communicate()
    message = " ".join(error_bytes.decode(errors="replace").split())
    if process.returncode != 0:
        raise UnavailableError(f"{name} failed: {message[-MESSAGE_CHARACTERS:]}")
