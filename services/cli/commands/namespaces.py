"""What namespaces may hold of the GPUs, and what they hold."""

from typing import TYPE_CHECKING

import click

from schemas.scheduler_namespaces import NamespaceList
from services.cli.display.columns import Table
from services.cli.display.output import print_json, print_table, wide_option
from services.cli.options import Target, reading, with_target
from services.cli.request_options import NumberRange

if TYPE_CHECKING:
    from shared.client.http import StewardClient


@click.group()
def namespace() -> None:
    """What each namespace may hold."""


@namespace.command("set")
@click.argument("name", metavar="NAMESPACE")
@click.option(
    "--gpu-limit",
    type=NumberRange(min=0),
    metavar="GPUS",
    help="The most GPUs that it may hold at once, shares by their size.",
)
@click.option("--no-gpu-limit", is_flag=True, help="Take the limit away.")
@with_target
def set_namespace(target: Target, name: str, gpu_limit: float | None, no_gpu_limit: bool) -> None:
    """Set what a namespace may hold. What it holds above a new limit stays held."""
    if no_gpu_limit == (gpu_limit is not None):
        raise click.UsageError("expected --gpu-limit or --no-gpu-limit")

    async def ask(client: "StewardClient") -> None:
        await client.set_namespace(name, gpu_limit=gpu_limit)

    target.ask(ask)
    may = "any number of GPUs" if gpu_limit is None else f"at most {gpu_limit:g} GPUs at once"
    click.echo(f"{name} may hold {may}")


@namespace.command("list")
@reading
@wide_option
def list_namespaces(target: Target) -> None:
    """List namespaces that have a limit, hold GPUs or wait for some."""
    found = target.ask(lambda client: client.namespaces())
    if target.as_json:
        print_json(found)
    elif found.namespaces:
        print_table(namespaces_table(found))
    else:
        click.echo("no namespace has a limit, holds a GPU or waits for one")


def namespaces_table(found: NamespaceList) -> Table:
    """One row per namespace."""
    headings = ["namespace", "GPUs held", "limit", "requests waiting"]
    rows = [
        [
            each.namespace,
            f"{each.gpus:g}",
            "none" if each.gpu_limit is None else f"{each.gpu_limit:g}",
            str(each.queued),
        ]
        for each in found.namespaces
    ]
    return Table(headings, rows, numeric=frozenset(headings[1:]))
