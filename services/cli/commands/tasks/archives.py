"""Tasks and experiments as files, out of one platform and into another."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from schemas.errors import ErrorCode
from schemas.gateway.archives import MANIFEST, ArchiveKind
from schemas.orchestrator.views import ExperimentView, TaskView
from services.cli.display.output import print_json
from services.cli.failures import CommandFailed
from services.cli.lookup import Sort, find
from services.cli.options import Target, reading, with_target
from shared.archives.tar import file_in, pack_tar, read_archive

if TYPE_CHECKING:
    from shared.client.http import StewardClient

WHERE: Final = click.argument("where", metavar="DIR|FILE.tar", type=click.Path(path_type=Path))


@click.group()
def export() -> None:
    """Take a finished task or experiment with all that was measured out as files."""


@export.command("task")
@click.argument("identifier", metavar="TASK")
@WHERE
@with_target
def export_task(target: Target, identifier: str, where: Path) -> None:
    """Write a task, its experiments and samples into a new folder, or one tar file.

    Secrets of its parameters and what engines wrote are left out.
    """
    _export(target, identifier, where, Sort.TASK)


@export.command("experiment")
@click.argument("identifier", metavar="EXPERIMENT")
@WHERE
@with_target
def export_experiment(target: Target, identifier: str, where: Path) -> None:
    """Write one experiment and its samples into a new folder, or one tar file; as of a task."""
    _export(target, identifier, where, Sort.EXPERIMENT)


@click.command("import")
@click.argument(
    "where", metavar="DIR|FILE.tar", type=click.Path(exists=True, readable=True, path_type=Path)
)
@click.option("--namespace", metavar="NAME", help="Namespace of the imported task.")
@reading
def import_command(target: Target, where: Path, namespace: str | None) -> None:
    """Show a task or experiment that another platform exported.

    It counts in no report. The same export again changes nothing.
    """
    with _pack(where) as tar:
        view = target.ask(lambda client: client.import_archive(tar, namespace=namespace))
    if target.as_json:
        print_json(view)
        return
    click.echo(
        f"{view.kind.value} {view.subject_id}  {view.task_name}  {view.experiments} experiments"
    )
    click.echo(f"exported {view.exported_at:%Y-%m-%d %H:%M} UTC by {view.exported_by}")
    click.echo(f"see `gpusteward show {view.subject_id}`")


def _export(target: Target, identifier: str, where: Path, sort: Sort) -> None:
    if where.exists() and (where.is_file() or any(where.iterdir())):
        raise CommandFailed(ErrorCode.CONFLICT, f"{where} is there already")

    async def ask(client: "StewardClient") -> bytes:
        match await find(client, identifier, sort):
            case TaskView(task_id=task_id):
                return await client.export(ArchiveKind.TASK, task_id)
            case ExperimentView(experiment_id=experiment_id):
                return await client.export(ArchiveKind.EXPERIMENT, experiment_id)
            case found:
                raise TypeError(f"expected a task or an experiment, found {found}")

    tar = target.ask(ask)
    _, files = read_archive(tar)
    if where.suffix == ".tar":
        where.write_bytes(tar)
    else:
        for path, content in {**files, MANIFEST: file_in(tar, MANIFEST)}.items():
            (where / path).parent.mkdir(parents=True, exist_ok=True)
            (where / path).write_bytes(content)
    click.echo(f"{where}: {len(files)} files, {len(tar) / (1 << 20):.1f} MiB")


@contextmanager
def _pack(where: Path) -> Iterator[Path]:
    """Yield a tar file of a directory; a file is yielded as it is."""
    if not where.is_dir():
        yield where
        return
    paths = sorted(path for path in where.rglob("*") if path.is_file())
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.writelines(
            pack_tar((path.relative_to(where).as_posix(), path.read_bytes()) for path in paths)
        )
        file.flush()
        yield Path(file.name)
