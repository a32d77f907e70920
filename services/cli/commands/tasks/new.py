"""A first task file."""

from pathlib import Path
from typing import Final

import click

from schemas.errors import ErrorCode
from schemas.task.task_file import DeploymentMode
from services.cli.failures import CommandFailed
from services.cli.task_templates import endpoint_template, task_template
from shared.engines.table import PROFILES

DEFAULT_ENGINE: Final = "vllm"
STARTED: Final = tuple(mode for mode in DeploymentMode if mode is not DeploymentMode.ENDPOINT)


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--engine",
    type=click.Choice(list(PROFILES)),
    help="The inference server to tune [default: vllm].",
)
@click.option("--model", metavar="ID|PATH", help="Model to serve [default: a small common one].")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in STARTED]),
    help="Runtime [default: docker; llamacpp and simulated: process].",
)
@click.option("--name", help="The task's name [default: of model and engine].")
@click.option(
    "--endpoint",
    "url",
    metavar="URL",
    help="Measure the server that runs at this address; none is started.",
)
def new(
    file: Path | None,
    engine: str | None,
    model: str | None,
    mode: str | None,
    name: str | None,
    url: str | None,
) -> None:
    """Write a first task, with comments, to FILE or the screen.

    It is YAML; `gpusteward validate FILE` says what it would become. A file that is there stays.
    """
    if url is not None:
        if mode is not None:
            raise click.UsageError("expected --endpoint or --mode: a server that runs has its own")
        text = endpoint_template(url, engine, model, name)
    else:
        text = task_template(engine or DEFAULT_ENGINE, model, mode, name)
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
