"""The command line: its commands, and how they end."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence

import click

from services.cli.commands import listing
from services.cli.commands.bench import bench
from services.cli.commands.completion import completion
from services.cli.commands.gpus.check import check
from services.cli.commands.gpus.check_cluster import check_cluster
from services.cli.commands.gpus.devices import devices
from services.cli.commands.gpus.exec import exec_command
from services.cli.commands.gpus.idle import idle
from services.cli.commands.gpus.insight import (
    availability,
    cluster,
    estimate,
    replay,
    select_node,
    why,
)
from services.cli.commands.gpus.reservations import release, renew, reserve
from services.cli.commands.gpus.top import top
from services.cli.commands.gpus.what_if import what_if
from services.cli.commands.operations.credentials import agent_credentials, client_credentials
from services.cli.commands.operations.maintenance import cordon, drain, drift, uncordon
from services.cli.commands.operations.namespaces import namespace
from services.cli.commands.operations.nodes import monitor, node, power
from services.cli.commands.operations.token import audit, token
from services.cli.commands.platform.compose import compose
from services.cli.commands.platform.demo import demo
from services.cli.commands.platform.mcp import mcp
from services.cli.commands.platform.platform import agent, up
from services.cli.commands.report import report as report_group
from services.cli.commands.tasks.archives import export, import_command
from services.cli.commands.tasks.logs import logs
from services.cli.commands.tasks.presets import preset
from services.cli.commands.tasks.task_life import clone, pause, rerun, resume
from services.cli.commands.tasks.tasks import cancel, delete, run, submit, validate
from services.cli.commands.tasks.watch import watch
from services.cli.doctor.command import doctor
from services.cli.failures import report
from shared.errors import StewardError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpusteward")
def cli() -> None:
    """Reserve GPUs for LLM-inference tuning, run the experiments, see what the GPUs did."""


for command in (
    *(up, agent, run, demo, submit, validate, clone, rerun, pause, resume, cancel, delete),
    *(listing.tasks, listing.experiments, listing.show, watch, logs),
    *(listing.gpus, listing.nodes, listing.map_command, listing.reservations, top),
    *(reserve, renew, release, exec_command),
    *(why, what_if, availability, estimate, cluster, select_node, replay),
    *(cordon, uncordon, drain, drift, idle, node),
    *(namespace, preset, monitor, power),
    *(report_group, export, import_command),
    *(doctor, check, devices, bench, token, audit, agent_credentials, client_credentials),
    *(compose, mcp, completion),
):
    cli.add_command(command)


check.add_command(check_cluster)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; expected errors end as a sentence and an exit code, never a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # A click.Exit comes back as its code.
        code = cli.main(given, prog_name="gpusteward", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt, asyncio.CancelledError):
        _drop_unwritten()
        code = 130
    except BrokenPipeError:
        _drop_unwritten()
        code = 141
    except (StewardError, OSError) as error:
        code = report(error, given)
    sys.exit(code or 0)


def _drop_unwritten() -> None:
    """Its reader is gone or slow: the interpreter must not try again at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
