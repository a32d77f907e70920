"""Directories with which docker-compose runs the platform, or a further node of it."""

import shlex
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import click

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed
from services.cli.options import nats_addresses, node_name
from shared.ids import host_node_id
from shared.paths import SOURCE_ROOT

if TYPE_CHECKING:
    from services.cli.local_platform.compose import ComposeDirectory


@click.group()
def compose() -> None:
    """The platform in containers, by docker-compose or `docker compose`."""


@compose.command()
@click.argument(
    "directory", type=click.Path(file_okay=False, path_type=Path), default=Path("gpusteward")
)
@click.option(
    "--node-id",
    metavar="ID",
    callback=node_name,
    help="Name of this host as a node [default: its host name].",
)
@click.option(
    "--ha",
    "is_highly_available",
    is_flag=True,
    help="Also three NATS servers, Postgres with a standby, two of every service, a balancer.",
)
@click.option(
    "--tls-name",
    "tls_names",
    multiple=True,
    metavar="NAME",
    help="Further name or address of this host, for the certificates.",
)
def init(
    directory: Path, node_id: str | None, is_highly_available: bool, tls_names: tuple[str, ...]
) -> None:
    """Make DIRECTORY with compose.yaml, all credentials, certificates and a .env, readable by its
    owner alone.

    Files that are there already are kept as they are, passwords with them; certificates that end
    within months are renewed. As root it is given to
    the image's user, id 10001; as anybody else the containers run as who calls this.
    """
    from services.cli.local_platform.compose import ComposeDirectory, NotOurs
    from services.cli.local_platform.image import is_installed_from_wheel, write_image_directory

    made = ComposeDirectory(directory.resolve())
    try:
        made.make_platform(
            node_id or host_node_id(), is_highly_available=is_highly_available, tls_names=tls_names
        )
    except NotOurs as error:
        raise CommandFailed(ErrorCode.CONFLICT, str(error)) from error
    _report(made)
    place, settings = shlex.quote(str(made.root)), made.environment
    image = shlex.quote(settings["STEWARD_IMAGE"])
    build = f"make -C {shlex.quote(str(SOURCE_ROOT))} image IMAGE={image} TARGET=slim"
    if is_installed_from_wheel():
        write_image_directory(made.root / "image")
        build = f"docker build --tag {image} --target slim {place}/image"
    address = f"{settings['STEWARD_API_ADDRESS']}:{settings['STEWARD_API_PORT']}"
    click.echo(f"""\
next:
  {build}
  cd {place}
  docker-compose --profile gpu up -d            # or --profile simulated, or none
  export GPUSTEWARD_URL=https://{address} GPUSTEWARD_CA={place}/tls/ca.pem
  export GPUSTEWARD_TOKEN=$(cat {place}/admin_token)
  gpusteward nodes""")


def _address(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else str(ip_address(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@compose.command(name="add-node")
@click.argument("node", callback=node_name)
@click.option(
    "--nats",
    "nats_url",
    metavar="URL[,URL...]",
    required=True,
    callback=nats_addresses,
    help="Where that node reaches the bus of this platform, nats://HOST:PORT, or its servers.",
)
@click.option(
    "--metrics",
    "metrics_address",
    metavar="ADDRESS",
    callback=_address,
    help="An IP address of that node at which this platform's Prometheus reads its metrics,"
    " and whoever else reaches it [default: they stay on its loopback address].",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("gpusteward"),
    show_default=True,
    help="Directory made by `compose init`.",
)
def add_node(node: str, nats_url: str, metrics_address: str | None, directory: Path) -> None:
    """Make a directory in DIRECTORY/nodes with which the machine NODE joins, to be copied there."""
    from services.cli.local_platform.compose import ComposeDirectory, NotOurs

    platform = ComposeDirectory(directory.resolve())
    if not platform.environment_path.exists():
        message = f"{platform.root} has no .env; `gpusteward compose init` makes one"
        raise CommandFailed(ErrorCode.NOT_FOUND, message)
    try:
        made = platform.make_node(node, nats_url, metrics_address)
    except NotOurs as error:
        raise CommandFailed(ErrorCode.CONFLICT, str(error)) from error
    _report(made)
    click.echo(f"""\
next:
  cd {shlex.quote(str(platform.root))}
  docker-compose exec -T nats nats-server --signal reload=1
  copy {shlex.quote(str(made.root))} to {node}; there, set in its .env
    STEWARD_UID and STEWARD_GID to the owner of the copy,
    STEWARD_DOCKER_GID to the group of the Docker socket, and
  docker-compose up -d
  gpusteward node admit {node}             # here, once it has reported""")


def _report(made: "ComposeDirectory") -> None:
    if made.made:
        click.echo(f"made {len(made.made)} files in {made.root}")
    if made.kept:
        click.echo(f"kept {len(made.kept)} files that were there, and their passwords")
    for path in made.differs:
        click.echo(f"{path} is not this version's: kept. Move it away and call this again for that")
