"""`backup`: a platform's database, credentials and settings in one file, and back."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from schemas.errors import ErrorCode
from services.cli.display.bench_results import CLEAR_LINE
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import print_json, print_table, table_options
from services.cli.extras import require_extra
from services.cli.failures import CommandFailed
from services.cli.options import data_dir_option
from shared.errors import RefusedError
from shared.paths import DataDirectory, default_data_dir

if TYPE_CHECKING:
    from shared.local_platform.backup.archive import Manifest
    from shared.local_platform.backup.create import OnProgress
    from shared.local_platform.backup.restore import Restored

QUIET_SECONDS: Final = 2.0  # what takes no longer says nothing meanwhile
EVERY_SECONDS: Final = 1.0
json_option = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
archive_argument = click.argument(
    "path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
EXTERNAL: Final = """\
this platform's Postgres is a server of your own, which only its own tools back up to any moment:
  pg_basebackup with continuous archiving (archive_command, or pg_receivewal) restores to a point in
  time; Patroni and CloudNativePG do both, with their own commands
keep of the rest: installation_id, tokens.json, admin_token, secrets.key and nats/users/ of {root},
  or the directory that agent-credentials made, and the settings with which the services run
after a restore to an earlier time, before any service runs: `gpusteward backup fence`"""


@click.group()
def backup() -> None:
    """Back up a platform with its own Postgres, and restore it into an empty directory."""


@backup.command()
@click.option(
    "--to",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to [default: by the time, in backups/ of the data directory].",
)
@data_dir_option
@json_option
def create(target: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Back up the platform that runs here, while it runs: database, credentials, settings.

    The file is readable by you alone, and whole or not there. It holds credentials.
    """
    require_extra("server")
    from services.cli import interruption
    from shared.local_platform.backup.create import ExternalPostgres, create_backup

    directory = _directory(data_dir)
    start_seconds = time.monotonic()
    try:
        with _progress() as on_progress:
            created = interruption.run(create_backup(directory, target, on_progress))
    except ExternalPostgres as error:
        text = EXTERNAL.format(root=directory.root)
        raise CommandFailed(ErrorCode.UNSUPPORTED, text) from error
    seconds = time.monotonic() - start_seconds
    if as_json:
        print_json(
            {
                "path": str(created.path),
                "size_bytes": created.size_bytes,
                "seconds": round(seconds, 3),
                "manifest": created.manifest,
            }
        )
        return
    click.echo(f"{created.path}: {_size(created.size_bytes)}, written in {seconds:.1f} s")
    for schema, version in sorted(created.manifest.schemas.items()):
        if version == 0:
            click.echo(
                f"not in it: {schema}, which has a Postgres of its own; back that up as well"
            )
    click.echo("it holds credentials; keep a copy on another machine")
    click.echo(f"to restore: gpusteward backup restore {created.path} --data-dir NEW")


@backup.command("list")
@click.option("--check", "checks", is_flag=True, help="Read each as a whole: is it what it was?")
@click.option(
    "--directory",
    "place",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to look [default: backups/ of the data directory].",
)
@data_dir_option
@json_option
@table_options
def list_backups(checks: bool, place: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """List backups, the newest first."""
    from shared.local_platform.backup.create import backups_directory

    place = place or backups_directory(_directory(data_dir))
    with _progress() as on_progress:
        rows = [_row(path, checks, on_progress) for path in sorted(place.glob("*.zip"))]
    rows.sort(key=lambda row: str(row["created_at"] or ""), reverse=True)
    if as_json:
        print_json({"backups": rows})
        return
    if not rows:
        click.echo(f"no backups in {place}")
        return
    print_table(
        Table(
            ["file", "taken", "release", "size", "installation", "state"],
            [
                [
                    Path(row["path"]).name,
                    _time(row["created_at"]),
                    row["release"] or UNKNOWN,
                    _size(row["size_bytes"]),
                    row["installation_id"] or UNKNOWN,
                    row["problem"] or ("whole" if checks else "readable"),
                ]
                for row in rows
            ],
            wrapped=frozenset({"state"}),
        )
    )


@backup.command()
@archive_argument
@data_dir_option
@json_option
def restore(path: Path, data_dir: Path | None, as_json: bool) -> None:
    """Restore a backup into an empty data directory; `gpusteward up` on it goes on from there.

    What held GPUs is ended, and GPUs are given out again once their nodes have reported what runs
    there. Never run the platform that the backup is of beside the restored one.
    """
    require_extra("server")
    from services.cli import interruption
    from shared.local_platform.backup.archive import open_backup
    from shared.local_platform.backup.restore import restore_backup

    directory = _directory(data_dir)
    with open_backup(path) as reader, _progress() as on_progress:
        restored = interruption.run(restore_backup(reader, directory, on_progress))
    if as_json:
        print_json({"data_dir": str(directory.root), **_counts(restored)})
        return
    _print_restored(restored, directory)


@backup.command()
@click.option(
    "--postgres",
    "postgres_dsn",
    metavar="DSN",
    envvar="GPUSTEWARD_POSTGRES_DSN",
    show_envvar=True,
    required=True,
    help="The database that was restored, with the right to act as each service.",
)
@click.option(
    "--restored-to",
    "backup_at",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S"]),
    required=True,
    metavar="TIME",
    help="The time that the database is of, in UTC: 2026-11-28T09:30:00.",
)
@json_option
def fence(postgres_dsn: str, backup_at: datetime, as_json: bool) -> None:
    """Make a Postgres of your own safe after a restore to an earlier time, as `restore` does.

    Before any service runs on it: refused while a scheduler decides there.
    """
    require_extra("server")
    from datetime import UTC

    from services.cli import interruption
    from shared.local_platform.backup.restore import set_all_right

    _require_tables(postgres_dsn)
    counts = interruption.run(set_all_right(postgres_dsn, backup_at.replace(tzinfo=UTC)))
    if as_json:
        print_json(counts)
        return
    click.echo(_fence_text(counts))


def _require_tables(postgres_dsn: str) -> None:
    """Raises CommandFailed for a database that cannot be read, or that no platform has used."""
    from services.cli import interruption
    from shared.postgres.connecting import LASTING
    from shared.postgres.outages import OUTSIDE_DOWN
    from shared.postgres.pending_migrations import read_pending
    from shared.settings import SettingsError, check_addresses

    try:
        check_addresses({"--postgres": postgres_dsn})
        pending, _ = interruption.run(read_pending(postgres_dsn))
    except SettingsError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    except (*OUTSIDE_DOWN, *LASTING) as error:
        message = f"the database cannot be read: {error}"
        raise CommandFailed(ErrorCode.UNAVAILABLE, message) from error
    if not any(schema.version for schema in pending if schema.schema == "scheduler"):
        message = "expected a database of a platform, found one without the scheduler's tables"
        raise CommandFailed(ErrorCode.CONFLICT, message)


def _directory(data_dir: Path | None) -> DataDirectory:
    return DataDirectory((data_dir or default_data_dir()).resolve())


def _row(path: Path, checks: bool, on_progress: "OnProgress") -> dict[str, Any]:
    from shared.local_platform.backup.archive import open_backup

    manifest: Manifest | None = None
    problem = None
    try:
        with open_backup(path) as reader:
            manifest = reader.manifest
            if checks:
                reader.check(lambda size: on_progress(f"checking {path.name}", size))
    except (RefusedError, OSError) as error:
        problem = str(error)
    return {
        "path": str(path),
        "size_bytes": path.stat().st_size,
        "created_at": manifest.created_at if manifest is not None else None,
        "release": manifest.release if manifest is not None else None,
        "installation_id": str(manifest.installation_id) if manifest is not None else None,
        "problem": problem,
    }


def _counts(restored: "Restored") -> dict[str, Any]:
    place = restored.settings_directory
    return {
        "created_at": restored.manifest.created_at,
        "release": restored.manifest.release,
        **restored.set_right,
        "settings_directory": str(place) if place is not None else None,
    }


def _print_restored(restored: "Restored", directory: DataDirectory) -> None:
    click.echo(f"restored: the platform as of {_time(restored.manifest.created_at)} UTC")
    click.echo(_fence_text(restored.set_right))
    click.echo("tokens that were revoked since then work again: revoke them anew")
    if restored.settings_directory is not None:
        words = " ".join(restored.settings.arguments) or "up"
        click.echo(f"it ran as `gpusteward {words}`; settings: {restored.settings_directory}")
    click.echo(f"to start it: gpusteward up --data-dir {directory.root}")


def _fence_text(counts: dict[str, int]) -> str:
    fence_count, device_count = counts["reservations_fenced"], counts["devices_awaited"]
    return (
        f"{fence_count} reservations that held GPUs are ended as lost; "
        f"{device_count} GPUs wait until their nodes have reported"
    )


@contextmanager
def _progress() -> "Iterator[OnProgress]":
    """Tell on stderr what is done so far, once that takes longer than people like to wait."""
    start_seconds, shown_seconds, total, last_step = time.monotonic(), 0.0, 0, ""
    is_terminal = sys.stderr.isatty()

    def on_progress(step: str, size: int) -> None:
        nonlocal shown_seconds, total, last_step
        now = time.monotonic()
        total = total + size if step == last_step else size
        last_step = step
        if now - start_seconds < QUIET_SECONDS or now - shown_seconds < EVERY_SECONDS:
            return
        shown_seconds = now
        click.echo(
            f"{CLEAR_LINE * is_terminal}{step}: {_size(total)}", err=True, nl=not is_terminal
        )

    try:
        yield on_progress
    finally:
        if shown_seconds and is_terminal:
            click.echo(CLEAR_LINE, err=True, nl=False)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at is not None else UNKNOWN
