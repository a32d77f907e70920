"""Certificates for servers of one's own, by the platform's authority."""

from pathlib import Path

import click

from schemas.base import TOKEN_PATTERN
from schemas.errors import ErrorCode
from services.cli.extras import require_extra
from services.cli.failures import CommandFailed
from services.cli.options import data_dir_option
from shared.paths import DataDirectory, default_data_dir


@click.command()
@click.argument("name")
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
@data_dir_option
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep an authority of its own here [default: tls in the platform's data directory].",
)
def certificate(
    name: str, hosts: tuple[str, ...], data_dir: Path | None, directory: Path | None
) -> None:
    """Make a certificate for the server NAME, reached by each HOST, a name or an address.

    It is for a NATS server, a Postgres, an agent's metrics or a gateway beside `up`. Clients verify
    it by ca.pem in the same directory. Called again it is renewed where it ends within months.
    """
    import re

    require_extra("server")
    from shared.tls.authority import Authority
    from shared.tls.contexts import CertificateUnusable

    if not re.fullmatch(TOKEN_PATTERN, name):
        message = f"expected a name of letters, digits, - and _, got {name!r}"
        raise CommandFailed(ErrorCode.BAD_REQUEST, message)
    of_platform = DataDirectory((data_dir or default_data_dir()).resolve()).tls
    authority = Authority(directory.resolve() if directory is not None else of_platform)
    try:
        authority.create()
        is_new = authority.issue(name, hosts, also_client=True)
    except (CertificateUnusable, ValueError) as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    files = authority.files_of(name)
    click.echo(f"{files.certificate}\n{files.key}\n{authority.certificate_path}")
    if not is_new:
        click.echo("It is for these hosts already, and lasts for months.", err=True)
