"""A first task file."""

from pathlib import Path

import click

from schemas.errors import ErrorCode
from schemas.task.task_file import DeploymentMode
from services.cli.failures import CommandFailed
from services.cli.task_templates import task_template
from shared.engines.table import PROFILES


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--engine",
    type=click.Choice(list(PROFILES)),
    default="vllm",
    show_default=True,
    help="The inference server to tune.",
)
@click.option("--model", metavar="ID|PATH", help="Model to serve [default: a small common one].")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in DeploymentMode]),
    help="Runtime [default: docker; llamacpp and simulated: process].",
)
@click.option("--name", help="The task's name [default: of model and engine].")
def new(
    file: Path | None, engine: str, model: str | None, mode: str | None, name: str | None
) -> None:
    """Write a first task, with comments, to FILE or the screen.

    It is YAML; `gpusteward validate FILE` says what it would become. A file that is there stays.
    """
    text = task_template(engine, model, mode, name)
    if file is None:
        click.echo(text, nl=False)
        return
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise CommandFailed(
            ErrorCode.CONFLICT, f"{file} is there already: name another file, or move it away"
        ) from error
    click.echo(f"{file} written\nnext: gpusteward validate {file}, then gpusteward run {file}")
