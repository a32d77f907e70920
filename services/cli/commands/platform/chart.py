"""The command that hands out the Helm chart of this version."""

import shlex
import shutil
from importlib.resources import as_file
from pathlib import Path

import click

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed


@click.command()
@click.argument(
    "directory", type=click.Path(file_okay=False, path_type=Path), default=Path("gpusteward-chart")
)
def chart(directory: Path) -> None:
    """Write this version's Helm chart into the new DIRECTORY, and print how to install it."""
    from services.cli.local_platform.compose import TEMPLATES

    try:
        with as_file(TEMPLATES / "helm" / "gpusteward") as source:
            shutil.copytree(source, directory)
    except FileExistsError as error:
        message = f"expected a directory that is not there yet, got {directory}: name another"
        raise CommandFailed(ErrorCode.CONFLICT, message) from error
    place = shlex.quote(str(directory))
    click.echo(f"""\
next:
  write what is to differ from {place}/values.yaml into a FILE, as in {place}/examples
  helm upgrade --install gpusteward {place} --values FILE \\
    --namespace gpusteward --create-namespace""")
