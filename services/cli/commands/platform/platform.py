"""`up` and `agent`: the platform, or the part of it that belongs on every GPU server."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

import click

from schemas.base import NODE_PREFIX
from schemas.errors import ErrorCode
from services.cli import interruption
from services.cli.extras import require_extra
from services.cli.failures import CommandFailed
from services.cli.local_platform.options import (
    cause_of,
    check_pair,
    check_port,
    claim_port,
    cluster_of,
    default_fleet,
    has_gpu_devices,
    host_and_port,
    tokens_file,
)
from services.cli.local_platform.other_users import other_users
from services.cli.local_platform.status_lines import StatusLines
from services.cli.options import data_dir_option, insecure_option, nats_addresses
from shared.optional_imports import import_without
from shared.paths import DEFAULT_HTTP_PORT, DataDirectory, default_data_dir

if TYPE_CHECKING:
    from shared.local_platform.platform import PlatformOptions

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@data_dir_option
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="GPUSTEWARD_HOST",
    show_envvar=True,
    help="Address of the API.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API [default: 8470].")
@click.option(
    "--local-token",
    "loopback_asks",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    envvar="GPUSTEWARD_LOCAL_TOKEN",
    show_envvar=True,
    help="Whether a loopback address asks for a token; auto: where other people have accounts."
    " With `always` your own is made at every address.",
)
@click.option(
    "--nats",
    "nats_url",
    metavar="URL[,URL...]",
    callback=nats_addresses,
    help="Use this NATS server, or those of a cluster.",
)
@click.option(
    "--nats-credentials",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Its users: a directory that agent-credentials made, or one user's JSON file for all.",
)
@click.option(
    "--postgres",
    "postgres_dsn",
    metavar="DSN",
    envvar="GPUSTEWARD_POSTGRES_DSN",
    show_envvar=True,
    help="Use this Postgres. Others on the host read arguments: give passwords by the variable.",
)
@click.option(
    "--nats-listen", metavar="HOST:PORT", help="Where the embedded NATS server listens for agents."
)
@click.option(
    "--tls-cert",
    "tls_certificate",
    type=FILE,
    envvar="GPUSTEWARD_GATEWAY_TLS_CERT",
    show_envvar=True,
    help="Certificate of the API in PEM [default: one of its own beyond a loopback address].",
)
@click.option(
    "--tls-key",
    type=FILE,
    envvar="GPUSTEWARD_GATEWAY_TLS_KEY",
    show_envvar=True,
    help="Its key, where that is not in the same file.",
)
@click.option(
    "--tls-name",
    "tls_names",
    multiple=True,
    metavar="NAME",
    help="Further name or address of this host, for the certificates that it makes itself.",
)
@insecure_option
@click.option("--simulate", is_flag=True, help="Simulate a fleet if this host has no GPU.")
@click.option("--fleet", type=FILE, help="Simulate the fleet that this TOML file describes.")
@click.option("--node-id", metavar="ID", help="Name of this host [default: its host name].")
@click.option(
    "--standby",
    is_flag=True,
    help="Run each platform service twice, so that one may end while another goes on.",
)
@click.option(
    "--compact",
    is_flag=True,
    help="Run most services in one process: less memory, and they restart together.",
)
@click.option(
    "--cluster",
    "context",
    is_flag=False,
    flag_value="",
    metavar="[CONTEXT]",
    help="Also use this Kubernetes cluster, by default kubectl's current one.",
)
@click.option(
    "--cluster-id", metavar="ID", help="Name of the cluster here [default: the context's]."
)
def up(
    data_dir: Path | None,
    host: str,
    port: int | None,
    loopback_asks: str,
    nats_url: str | None,
    nats_credentials: Path | None,
    postgres_dsn: str | None,
    nats_listen: str | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    tls_names: tuple[str, ...],
    is_insecure: bool,
    simulate: bool,
    fleet: Path | None,
    node_id: str | None,
    standby: bool,
    compact: bool,
    context: str | None,
    cluster_id: str | None,
) -> None:
    """Run the platform on this machine until Ctrl-C."""
    if standby and compact:
        raise click.UsageError("--compact runs less, --standby runs more: give one of them")
    require_extra("server")
    if context is not None:
        require_extra("cluster")
    import_without("structlog", "rich")  # it is for tracebacks in colour, and 6 MiB
    from shared.local_platform.platform import PlatformOptions

    data_dir = data_dir or default_data_dir()
    cluster = cluster_of(context, cluster_id, os.environ)
    other_names = other_users() if loopback_asks == "auto" else []
    asks_always = loopback_asks == "always"
    tokens = tokens_file(
        host, data_dir, os.environ, on_loopback=bool(other_names), anywhere=asks_always
    )
    _print_token_notice(DataDirectory(data_dir.resolve()), tokens, other_names)
    check_pair(tls_certificate, tls_key)
    if nats_url is not None:
        _check_bus(nats_url, nats_credentials)
    nats_host, nats_port = host_and_port(nats_listen) if nats_listen else ("127.0.0.1", None)
    if simulate and fleet is None and not has_gpu_devices():
        fleet = default_fleet()
    claim = None
    if port is None:
        port, claim = claim_port(DEFAULT_HTTP_PORT, host)
    else:
        check_port(port, host)
    with claim or nullcontext():
        run_until_stopped(
            PlatformOptions(
                data_dir=data_dir,
                nats_url=nats_url,
                nats_credentials_path=nats_credentials,
                nats_host=nats_host,
                nats_port=nats_port,
                postgres_dsn=postgres_dsn,
                http_host=host,
                http_port=port,
                tokens_file=tokens,
                node_id=node_id,
                fleet=fleet,
                simulate=fleet is not None,
                cluster=cluster,
                standby=standby,
                compact=compact,
                tls_certificate=tls_certificate,
                tls_key=tls_key,
                tls_names=tls_names,
                is_insecure=is_insecure,
            )
        )


def _check_bus(url: str, credentials: Path | None) -> None:
    """Raise CommandFailed where waiting would not help: services would end again and again."""
    from services.cli.local_platform.bus_check import bus_trouble
    from shared.local_platform.bus_users import BusUsers

    if credentials is not None and credentials.is_dir():
        credentials = BusUsers(credentials).path_of("orchestrator")
    trouble = interruption.run(bus_trouble(url, credentials, needs_jetstream=True))
    if trouble is not None and trouble.is_lasting:
        raise CommandFailed(ErrorCode.UNAVAILABLE, trouble.sentence)
    if trouble is not None:
        click.echo(f"{trouble.sentence}\nthe services wait for it")


def _print_token_notice(
    directory: DataDirectory, tokens: Path | None, other_names: Sequence[str]
) -> None:
    if tokens is None or directory.read_admin_token() is None:
        return
    if other_names:
        more = f" and {len(other_names) - 2} more" if len(other_names) > 2 else ""
        click.echo(f"other people have accounts on this host: {', '.join(other_names[:2])}{more}")
    click.echo("so the API asks for a token" if other_names else "the API asks for a token")
    click.echo(f"gpusteward finds yours by itself in {directory.admin_token_path}")


@click.command()
@data_dir_option
@click.option(
    "--nats",
    "nats_url",
    metavar="URL[,URL...]",
    required=True,
    callback=nats_addresses,
    help="NATS server to join, or those of its cluster.",
)
@click.option(
    "--credentials",
    type=FILE,
    required=True,
    help="This node's file, which agent-credentials made on the platform's host.",
)
@click.option("--node-id", metavar="ID", help="Name of this host [default: the credentials'].")
@insecure_option
@click.option("--simulate", is_flag=True, help="Simulate GPUs if this host has none.")
@click.option("--fleet", type=FILE, help="Simulate the GPUs that this TOML file describes.")
@click.option(
    "--cluster",
    "context",
    is_flag=False,
    flag_value="",
    metavar="[CONTEXT]",
    help="Join this Kubernetes cluster instead, by default kubectl's current one.",
)
def agent(
    data_dir: Path | None,
    nats_url: str,
    credentials: Path,
    node_id: str | None,
    is_insecure: bool,
    simulate: bool,
    fleet: Path | None,
    context: str | None,
) -> None:
    """Join this machine's GPUs to a platform that runs elsewhere, until Ctrl-C."""
    require_extra("agent")
    import_without("structlog", "rich")
    from services.cli.local_platform.bus_check import wait_for_bus
    from shared.local_platform.platform import AGENT_SERVICES, PlatformOptions

    node_id = _node_of(credentials, node_id)
    cluster = cluster_of(context, node_id, os.environ) if context is not None else None
    if simulate and fleet is None and not has_gpu_devices():
        fleet = default_fleet()
    interruption.run(wait_for_bus(nats_url, credentials, click.echo))
    run_until_stopped(
        PlatformOptions(
            data_dir=data_dir or default_data_dir(),
            nats_url=nats_url,
            nats_credentials_path=credentials,
            node_id=node_id,
            services=AGENT_SERVICES if cluster is None else (),
            fleet=fleet,
            simulate=fleet is not None,
            cluster=cluster,
            is_insecure=is_insecure,
        )
    )


def _node_of(credentials: Path, node_id: str | None) -> str | None:
    """The node whose credentials these are; nothing receives what another one publishes."""
    import json

    try:
        user = str(json.loads(credentials.read_text())["user"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"expected credentials in {credentials}, found none: {error!r}"
        raise CommandFailed(ErrorCode.BAD_REQUEST, message) from error
    if not user.startswith(NODE_PREFIX):
        return node_id
    own_id = user.removeprefix(NODE_PREFIX)
    if node_id not in {None, own_id}:
        made_by = f"`gpusteward agent-credentials {node_id}`"
        message = f"{credentials} are {own_id}'s; {made_by} makes those of {node_id}"
        raise CommandFailed(ErrorCode.BAD_REQUEST, message)
    return own_id


def run_until_stopped(options: "PlatformOptions") -> None:
    """Run the platform in this process, its own log in the data directory."""
    from shared.lifecycle import DataDirectoryBusy
    from shared.local_platform.platform import run_platform
    from shared.processes.child_process import NotReady
    from shared.settings import SettingsError

    directory = DataDirectory(options.data_dir.resolve())
    directory.prepare()
    _log_to(directory.log_path("supervisor"))
    lines = StatusLines(options)
    try:
        interruption.run(
            run_platform(
                options,
                on_change=lines.on_change,
                on_started=lines.on_started,
                on_disk=lines.on_disk,
            )
        )
    except SettingsError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"{error}\nnothing was started") from error
    except DataDirectoryBusy as error:
        raise CommandFailed(ErrorCode.CONFLICT, str(error)) from error
    except NotReady as error:
        why = cause_of(error.log_path)
        message = f"{error.name} {error.reason}{f': {why}' if why else ''}; see {error.log_path}"
        raise CommandFailed(ErrorCode.INTERNAL, message) from error


def _log_to(path: Path) -> None:
    import structlog

    from shared.logging import LossyStream

    stream = cast(TextIO, LossyStream(path.open("a", encoding="utf-8")))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=stream),
    )
