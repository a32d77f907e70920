"""`dataset`: prompts and traces that are uploaded once, for tasks on any node."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from schemas.gateway.datasets import DatasetView
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import age, print_json, print_list, table_options
from services.cli.options import Target, confirm, reading, with_target

in_namespace: Final = click.option(
    "--namespace", metavar="NAME", help="Namespace of the dataset [default: the token's]."
)
NAME: Final = click.argument("name", metavar="NAME")


@click.group()
def dataset() -> None:
    """Datasets and traces that are uploaded, which tasks name (`benchmark.dataset.upload`)."""


@dataset.command()
@click.argument(
    "file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--name", metavar="NAME", help="What tasks call it [default: the file's name].")
@in_namespace
@reading
def add(target: Target, file: Path, name: str | None, namespace: str | None) -> None:
    """Upload a file, and say what it holds. A name that is there means the new file from now on.

    Tasks that were submitted go on with the file that they were given.
    """
    view = target.ask(lambda client: client.add_dataset(file, name, namespace=namespace))
    if target.as_json:
        print_json(view)
        return
    click.echo(f"{view.name}: {view.contents.text}")
    click.echo(f"{view.size_bytes:,} bytes, SHA-256 {view.sha256}")
    click.echo(f"a task uses it by `benchmark.{view.contents.kind.value}: {{upload: {view.name}}}`")


@dataset.command("list")
@in_namespace
@reading
@table_options
def list_datasets(target: Target, namespace: str | None) -> None:
    """List uploaded datasets and traces: what they hold, who added them, when."""
    datasets = target.ask(lambda client: client.datasets(namespace))
    none = "there is no dataset here yet; `gpusteward dataset add FILE` uploads one"
    print_list({"datasets": datasets}, datasets_table(datasets), none, as_json=target.as_json)


@dataset.command()
@NAME
@in_namespace
@reading
def show(target: Target, name: str, namespace: str | None) -> None:
    """Show what a dataset holds, and which unfinished tasks use it."""
    view = target.ask(lambda client: client.dataset(name, namespace=namespace))
    if target.as_json:
        print_json(view)
        return
    click.echo(f"{view.name} of namespace {view.namespace}: {view.contents.text}")
    click.echo(f"{view.size_bytes:,} bytes, SHA-256 {view.sha256}")
    click.echo(f"added {view.added_at:%Y-%m-%d %H:%M} UTC by {view.added_by or UNKNOWN}")
    click.echo(f"used by unfinished tasks: {', '.join(view.used_by) or 'none'}")


@dataset.command()
@NAME
@click.option("--force", is_flag=True, help="Also one that unfinished tasks use: they fail then.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@in_namespace
@with_target
def remove(target: Target, name: str, force: bool, yes: bool, namespace: str | None) -> None:
    """Forget a dataset. One that unfinished tasks use is refused, with their names."""
    if not yes:
        confirm(f"Remove dataset {name}?")
    target.ask(lambda client: client.remove_dataset(name, namespace=namespace, force=force))
    click.echo(f"dataset {name} removed")


def datasets_table(datasets: Sequence[DatasetView]) -> Table:
    """Return a table with a row for each file."""
    headings = ["dataset", "namespace", "kind", "MB", "added by", "age", "holds"]
    rows = [
        [
            view.name,
            view.namespace,
            view.contents.kind.value,
            f"{view.size_bytes / (1 << 20):.1f}",
            view.added_by or UNKNOWN,
            age(view.added_at),
            view.contents.text,
        ]
        for view in datasets
    ]
    return Table(
        headings,
        rows,
        numeric=frozenset({"MB", "age"}),
        important=headings[:4],
        wrapped=frozenset({"holds"}),
    )
