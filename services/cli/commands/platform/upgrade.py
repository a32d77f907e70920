"""`upgrade --check`: what a start of this release would change, said before it is started."""

import os
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from schemas.errors import EXIT_CODE, ErrorCode
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import print_json, print_table
from services.cli.extras import require_extra
from services.cli.failures import CommandFailed, leave
from services.cli.options import data_dir_option
from shared.paths import DataDirectory, default_data_dir
from shared.releases import is_neighbour

if TYPE_CHECKING:
    from shared.postgres.pending_migrations import Pending, Step

REFUSED_EXIT_CODE = EXIT_CODE[ErrorCode.CONFLICT]

RESULTS_VARIABLE: Final = "GPUSTEWARD_RESULTS_DSN"


@click.command()
@click.option(
    "--check", is_flag=True, required=True, expose_value=False, help="Look, and change nothing."
)
@click.option(
    "--postgres",
    "postgres_dsn",
    metavar="DSN",
    envvar="GPUSTEWARD_POSTGRES_DSN",
    show_envvar=True,
    help="The platform's Postgres [default: that of the platform that runs here].",
)
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def upgrade(postgres_dsn: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Say what this release would change in the database of a platform, and for whom it is too new.

    To be asked by the new release while the former one runs. Exit code 0 if nothing stands against
    the upgrade.
    """
    require_extra("server")
    from services.cli import interruption
    from shared.postgres.connecting import LASTING
    from shared.postgres.outages import OUTSIDE_DOWN
    from shared.postgres.pending_migrations import read_pending
    from shared.settings import SettingsError, check_addresses

    directory = DataDirectory((data_dir or default_data_dir()).resolve())
    endpoint = directory.read_endpoint()
    dsn = postgres_dsn or (endpoint.postgres_dsn if endpoint is not None else None)
    if dsn is None:
        message = (
            f"no platform runs on {directory.root}: start it by its own release, or name its "
            "database by --postgres or GPUSTEWARD_POSTGRES_DSN"
        )
        raise CommandFailed(ErrorCode.UNAVAILABLE, message)
    try:
        own_dsn = os.environ.get(RESULTS_VARIABLE)
        check_addresses({"--postgres": dsn, **({RESULTS_VARIABLE: own_dsn} if own_dsn else {})})
        pending, releases = interruption.run(read_pending(dsn, results_dsn=own_dsn))
    except SettingsError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, str(error)) from error
    except (*OUTSIDE_DOWN, *LASTING) as error:
        message = f"the database cannot be read: {error}"
        raise CommandFailed(ErrorCode.UNAVAILABLE, message) from error
    release = metadata.version("gpusteward")
    far_nodes = [
        node for node, other in releases.items() if not (other and is_neighbour(release, other))
    ]
    newer_schemas = [schema.schema for schema in pending if schema.is_newer]
    if as_json:
        print_json(
            {
                "release": release,
                "may_upgrade": not (far_nodes or newer_schemas),
                "schemas": pending,
                "agents": releases,
                "agents_too_far": far_nodes,
            }
        )
    else:
        _print(release, pending, releases, far_nodes)
    leave(REFUSED_EXIT_CODE if far_nodes or newer_schemas else 0)


def _print(
    release: str,
    pending: "list[Pending]",
    releases: dict[str, str | None],
    far_nodes: list[str],
) -> None:
    click.echo(f"this is release {release}")
    print_table(
        Table(
            ["schema", "version", "of this release", "while it is migrated"],
            [
                [
                    schema.schema,
                    str(schema.version),
                    str(schema.release_version),
                    "; ".join(map(_step_text, schema.steps)) or UNKNOWN,
                ]
                for schema in pending
            ],
            wrapped=frozenset({"while it is migrated"}),
        )
    )
    for schema in pending:
        if schema.is_newer:
            click.echo(f"schema {schema.schema} was written by a later release: it is refused")
    for node in far_nodes:
        click.echo(
            f"agent {node} runs {releases[node] or 'a release before 0.1.0'}: bring it to within "
            f"one minor release of {release} first"
        )
    if not far_nodes and not any(schema.is_newer for schema in pending):
        agents = "; agents may stay as they are" if releases else ""
        click.echo(f"nothing stands against the upgrade{agents}. Back up first")


def _step_text(step: "Step") -> str:
    size = f"{step.table_bytes / 1e6:.0f} MB"
    duration = f"about {step.seconds:.0f} s" if step.seconds >= 1 else "less than a second"
    return f"{step.waiting.value} of {step.table} ({size}) waits {duration}"
