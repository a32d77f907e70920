"""`join`: a new GPU server fetches its credentials by an admin's invitation, and starts."""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from schemas.base import node_speaker
from schemas.errors import ErrorCode
from schemas.gateway.joining import AUTHORITY_VARIABLE, CODE_VARIABLE, NodeCredentials
from services.cli import interruption
from services.cli.extras import require_extra
from services.cli.failures import CommandFailed
from services.cli.options import data_dir_option, node_name
from shared.client.discovery import Address
from shared.nats_addresses import with_host_for_wildcards
from shared.paths import DataDirectory, default_data_dir, write_atomically


@click.command()
@click.argument("url", metavar="URL")
@click.argument("node_id", metavar="NODE", callback=node_name)
@data_dir_option
@click.option("--simulate", is_flag=True, help="Simulate GPUs if this host has none.")
@click.option("--service", "as_unit", is_flag=True, help="Have systemd start it with the machine.")
def join(
    url: str,
    node_id: str,
    data_dir: Path | None,
    simulate: bool,
    as_unit: bool,
) -> None:
    """Join this machine's GPUs to the platform at URL, by an invitation of `node invite`.

    Its code is read from the variable GPUSTEWARD_JOIN_CODE, else from standard input, never from
    the command line, which everybody on this host may read.
    """
    require_extra("agent")
    from services.cli.commands.platform.platform import agent

    code = os.environ.pop(CODE_VARIABLE, "") or _read_code()
    authority = _read_authority(os.environ.pop(AUTHORITY_VARIABLE, ""))
    directory = DataDirectory((data_dir or default_data_dir()).resolve())
    directory.prepare()
    path = directory.root / f"{node_speaker(node_id)}.json"
    if path.exists():
        raise CommandFailed(
            ErrorCode.CONFLICT,
            f"{node_id} has its credentials here already: `gpusteward agent --nats URL "
            f"--credentials {path}` starts it",
        )
    write_atomically(path, b"")  # an invitation is not spent where nothing can be kept
    try:
        credentials = interruption.run(_fetch(url, node_id, code, authority))
        write_atomically(path, _file_of(credentials), is_durable=True)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    click.echo(f"{node_id} has its credentials in {path}")
    options = [
        *("--nats", reachable(credentials.nats_url, url), "--credentials", str(path)),
        *(["--simulate"] if simulate else []),
        *("--data-dir", str(directory.root)),
    ]
    if not as_unit:
        agent.main(options, prog_name="gpusteward agent", standalone_mode=False)
        return
    from services.cli.commands.platform.service import install_unit

    is_own = os.geteuid() != 0
    scope = ["--user"] if is_own else ["--run-as", "root"]
    install_unit.main(
        ["agent", *scope, "--", *options],
        prog_name="gpusteward service install",
        standalone_mode=False,
    )


def _read_code() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Code of the invitation", hide_input=True)).strip()
    if code := sys.stdin.readline().strip():
        return code
    message = f"expected the code of an invitation in {CODE_VARIABLE} or on standard input"
    raise CommandFailed(ErrorCode.BAD_REQUEST, message)


def _read_authority(text: str) -> str:
    import ssl
    from base64 import b64decode

    if not text:
        return ""
    try:
        return ssl.DER_cert_to_PEM_cert(b64decode(text, validate=True))
    except ValueError as error:
        message = f"{AUTHORITY_VARIABLE} is no certificate: copy the whole line of the invitation"
        raise CommandFailed(ErrorCode.BAD_REQUEST, message) from error


async def _fetch(url: str, node_id: str, code: str, authority: str) -> NodeCredentials:
    from shared.client.http import StewardClient

    async with StewardClient(Address(url.rstrip("/"), ca_text=authority)) as client:
        return await client.join(node_id, code)


def _file_of(credentials: NodeCredentials) -> bytes:
    import msgspec

    from shared.local_platform.bus_users import Credentials

    return msgspec.json.encode(
        Credentials(
            credentials.user, credentials.password, credentials.inbox_prefix, credentials.ca
        )
    )


def reachable(nats_url: str, api_url: str) -> str:
    """Return the bus's addresses, by the host of the API where they are wildcards."""
    return with_host_for_wildcards(nats_url, urlsplit(api_url).hostname or "")
