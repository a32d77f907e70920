"""Credentials of the bus: for nodes, and for people's own NATS clients."""

from pathlib import Path

import click

from schemas.base import NAMESPACE_PATTERN, node_speaker
from schemas.errors import ErrorCode
from schemas.gateway.tokens import Role
from services.cli.failures import CommandFailed
from services.cli.options import data_dir_option, role_options
from shared.ids import node_token
from shared.paths import DataDirectory, default_data_dir

directory_option = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the users of a NATS server of your own here [default: the platform's].",
)
authority_option = click.option(
    "--ca",
    "authority",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Authority of that server's certificate: it goes into every file. With --directory.",
)
rotate_option = click.option("--rotate", is_flag=True, help="Replace the password.")
revoke_option = click.option(
    "--revoke", is_flag=True, help="Disconnect the node and delete its credentials."
)


@click.command(name="agent-credentials")
@click.argument("node")
@data_dir_option
@directory_option
@authority_option
@rotate_option
@revoke_option
def agent_credentials(
    node: str,
    data_dir: Path | None,
    directory: Path | None,
    authority: Path | None,
    rotate: bool,
    revoke: bool,
) -> None:
    """Make the file with which NODE joins, a host or a node of Kubernetes, and print where it is.

    What to do next is printed beside it, on standard error.

    Whoever has it speaks for that node alone. With --directory also the services' files, for `up
    --nats-credentials DIRECTORY`, and authorization.conf, which a server's configuration includes.
    """
    from services.cli.local_platform.joining import next_steps

    if (node_id := node_token(node)) != node:
        message = (
            f"expected a node's id, of letters, digits, - and _, got {node!r}: a machine of that "
            f"name is the node {node_id}"
        )
        raise CommandFailed(ErrorCode.BAD_REQUEST, message)
    _set_authority(directory, authority)
    path = _change(node_speaker(node), data_dir, directory, rotate=rotate, revoke=revoke)
    if revoke or rotate:
        return
    endpoint = DataDirectory((data_dir or default_data_dir()).resolve()).read_endpoint()
    nats_url = endpoint.nats_url if endpoint is not None and directory is None else None
    click.echo("\n".join(["next:", *next_steps(node, path, nats_url)]), err=True)


@click.command(name="client-credentials")
@click.argument("name")
@data_dir_option
@directory_option
@authority_option
@role_options(Role.VIEWER)
@rotate_option
@revoke_option
def client_credentials(
    name: str,
    data_dir: Path | None,
    directory: Path | None,
    authority: Path | None,
    role: str,
    namespace: str,
    rotate: bool,
    revoke: bool,
) -> None:
    """Make the file with which NAME's NATS client logs in, and print where it is."""
    import re

    if not re.fullmatch(NAMESPACE_PATTERN, namespace):
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"expected a namespace, got {namespace!r}")
    _set_authority(directory, authority)
    scope = f"{namespace}_" if role == Role.SUBMITTER else ""
    _change(f"{role}_{scope}{name}", data_dir, directory, rotate=rotate, revoke=revoke)


def _set_authority(directory: Path | None, authority: Path | None) -> None:
    if authority is None:
        return
    if directory is None:
        message = "--ca needs --directory: `up` gives its own authority to its users by itself"
        raise CommandFailed(ErrorCode.BAD_REQUEST, message)
    from shared.local_platform.bus_users import BusUsers
    from shared.tls.contexts import CertificateUnusable, make_client_context

    try:
        make_client_context(authority)
    except CertificateUnusable as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"--ca: {error}") from error
    BusUsers(directory.resolve()).set_authority(authority.read_text())


def _change(
    user: str, data_dir: Path | None, directory: Path | None, *, rotate: bool, revoke: bool
) -> Path:
    from shared.local_platform.bus_users import BusUsers, NoSuchUser
    from shared.local_platform.embedded import EmbeddedNats

    server = EmbeddedNats(DataDirectory((data_dir or default_data_dir()).resolve()).nats)
    users = server.users if directory is None else BusUsers(directory.resolve())
    try:
        if revoke:
            users.revoke(user)
        elif rotate:
            users.rotate(user)
        else:
            users.create([user])
    except NoSuchUser as error:
        raise CommandFailed(ErrorCode.NOT_FOUND, str(error)) from error
    except ValueError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    if not revoke:
        click.echo(users.path_of(user))
    if directory is not None:
        click.echo(
            f"Include {users.configuration_path} in the server's configuration, and have it loaded"
            " again: nats-server --signal reload",
            err=True,
        )
    elif not server.reload():
        click.echo("No NATS server of this platform runs; it holds from its next start.", err=True)
    return users.path_of(user)
