"""Tokens of the API."""

import os
from pathlib import Path

import click
import msgspec

from schemas.errors import ErrorCode
from schemas.tokens import Role
from services.cli.failures import CommandFailed
from services.cli.options import data_dir_option, role_options
from shared.paths import DataDirectory, default_data_dir
from shared.settings import SettingsError


@click.group()
def token() -> None:
    """Tokens, which the API asks for where other machines reach it."""


@token.command()
@data_dir_option
@role_options(Role.ADMIN)
def create(data_dir: Path | None, role: str, namespace: str) -> None:
    """Make a token, add its hash to the platform's file of tokens, and print it.

    The file is the one that GPUSTEWARD_GATEWAY_TOKENS_FILE names, else tokens.json in the data
    directory. A platform reads it at its start.
    """
    from shared.local_platform.tokens import create_token, tokens_path

    directory = DataDirectory((data_dir or default_data_dir()).resolve())
    directory.prepare()
    path = tokens_path(directory, os.environ)
    try:
        made = create_token(path, Role(role), namespace)
    except (SettingsError, msgspec.ValidationError) as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    click.echo(made)
    click.echo(
        f"This token is not shown again; {path} has its hash, and a platform reads it at its next"
        " start. Give it to clients as GPUSTEWARD_TOKEN or --token.",
        err=True,
    )
