"""Commands about one node: watch its GPUs, cap their power and clocks, label it."""

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import click

from schemas.errors import ErrorCode
from schemas.gateway.views import GpuView
from schemas.scheduler.views import DeviceAllocation
from schemas.telemetry.monitoring import MonitoringView
from services.cli.completion import complete_nodes
from services.cli.display.columns import Table
from services.cli.display.output import print_json, print_table, wide_option
from services.cli.display.tables import labels_text, short
from services.cli.display.task_results import gpu_cells
from services.cli.failures import CommandFailed
from services.cli.lookup import find_reservation, unknown_gpu
from services.cli.option_types import NumberRange, SecondsRange
from services.cli.options import Target, node_name, reading, with_target
from shared.client.devices import node_of_indices

if TYPE_CHECKING:
    from shared.client.http import StewardClient


HELD_SHOWN: Final = 3


def _label_changes(
    _context: click.Context, _argument: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals and key.endswith("-") and len(key) > 1:
            changes[key[:-1]] = None
        elif equals and key and value:
            changes[key] = value
        else:
            raise click.BadParameter(f"expected KEY=VALUE, or KEY- to take one away, got {text!r}")
    return changes


@click.command()
@click.argument("place", metavar="[NODE/]GPU")
@click.argument("watts", type=NumberRange(min=1), required=False)
@click.option(
    "--sm-clock",
    type=click.IntRange(min=1),
    metavar="MHZ",
    help="Lock its clock, with or without WATTS.",
)
@click.option("--restore", is_flag=True, help="Remove power limit and clock lock.")
@click.option(
    "--reservation",
    metavar="ID",
    help="Limit it for this reservation, until it ends; without one it takes an admin.",
)
@with_target
def power(
    target: Target,
    place: str,
    watts: float | None,
    sm_clock: int | None,
    restore: bool,
    reservation: str | None,
) -> None:
    """Limit a GPU's power, lock its clock, or take both back.

    GPU is its index on the node, or its UUID. Everything is taken back when the node's agent stops,
    whatever stops it.
    """
    limits = [f"at most {watts:g} W"] if watts is not None else []
    limits += [f"locked to {sm_clock} MHz"] if sm_clock is not None else []
    if restore == bool(limits):
        raise click.UsageError("expected WATTS, --sm-clock, or --restore")

    async def ask(client: "StewardClient") -> GpuView:
        gpu = choose_gpu((await client.gpus()).gpus, place)
        held_reservation = (
            None if reservation is None else await find_reservation(client, reservation)
        )
        await client.set_power_limit(
            gpu.node_id,
            gpu.uuid,
            watts,
            reservation_id=held_reservation.reservation_id
            if held_reservation is not None
            else None,
            sm_clock_mhz=sm_clock,
        )
        return gpu

    gpu = target.ask(ask)
    gpu_text = f"{gpu.node_id}/{gpu.index} {gpu.name}"
    if not limits:
        click.echo(f"{gpu_text}: limit and clock are taken back")
    else:
        until = "the reservation ends" if reservation else f"`gpusteward power {place} --restore`"
        click.echo(f"{gpu_text}: {', '.join(limits)} until {until}")


@click.command()
@click.argument("node_id", metavar="[NODE]", required=False)
@click.option(
    "--seconds",
    type=SecondsRange(0.1, 86_400),
    default=10.0,
    show_default=True,
    help="Duration; Ctrl-C ends it earlier.",
)
@click.option(
    "--interval",
    type=SecondsRange(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two readings.",
)
@reading
@wide_option
def monitor(target: Target, node_id: str | None, seconds: float, interval: float) -> None:
    """Watch a node's GPUs for a while; print minimum, mean and maximum of what was read."""

    async def ask(client: "StewardClient") -> MonitoringView:
        node = node_id or _only_node([n.node_id for n in (await client.nodes()).nodes])
        started = await client.start_monitoring(
            node, interval_seconds=interval, max_seconds=seconds
        )
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            # Ctrl-C: what was seen so far is what was asked for.
            _uncancel()
        return await client.stop_monitoring(node, started.monitoring_id)

    view = target.ask(ask)
    if target.as_json:
        print_json(view)
        return
    print_table(monitoring_table(view))
    click.echo(
        f"{view.sample_count} readings in {view.monitoring_duration_seconds:.1f} s"
        + (f", {view.missed_count} missed" if view.missed_count else "")
    )


@click.group()
def node() -> None:
    """Change what is known of a node."""


@node.command("admit")
@click.argument(
    "node_ids",
    metavar="NODE...",
    nargs=-1,
    required=True,
    callback=node_name,
    shell_complete=complete_nodes,
)
@with_target
def admit_node(target: Target, node_ids: tuple[str, ...]) -> None:
    """Have new nodes granted on; `gpusteward nodes` lists those that wait for it.

    A node is admitted once, until it is removed. On a platform of this machine alone every node is
    admitted by itself.
    """

    async def ask(client: "StewardClient") -> None:
        for node_id in node_ids:
            await client.admit_node(node_id)
            click.echo(f"{node_id} is admitted")

    target.ask(ask)


@node.command("invite")
@click.argument("node_id", metavar="NODE", callback=node_name)
@reading
def invite_node(target: Target, node_id: str) -> None:
    """Print the one line to type on a new GPU server NODE: it installs, joins and starts.

    It counts once, within an hour. Then the server waits until `node admit`.
    """
    from urllib.parse import urlsplit

    from shared.host_header import is_loopback

    url = target.address().url.rstrip("/")
    invitation = target.ask(lambda client: client.invite_node(node_id, url))
    if target.as_json:
        print_json(invitation)
        return
    click.echo(invitation.command)
    until = f"{invitation.ends_at:%H:%M} UTC"
    click.echo(f"to type on {node_id}: once, until {until}; nobody else is to see it", err=True)
    if is_loopback(urlsplit(url).hostname or ""):
        message = (
            f"only this machine reaches {url}: start the platform with `gpusteward up --host "
            "ADDRESS --nats-listen ADDRESS:4222`, or put an address that it reaches in its place"
        )
        click.echo(message, err=True)
    click.echo(f"then, here: gpusteward node admit {node_id}", err=True)


@node.command("label", context_settings={"ignore_unknown_options": True})
@click.argument("node_id", metavar="NODE", callback=node_name, shell_complete=complete_nodes)
@click.argument("changes", metavar="[KEY=VALUE|KEY-]...", nargs=-1, callback=_label_changes)
@reading
def label_node(target: Target, node_id: str, changes: dict[str, str | None]) -> None:
    """Set labels of a node, or take them away (KEY-); without any, print those it has.

    They win over the labels of the agent's settings. `--require label:KEY=VALUE` selects by them.
    """

    async def ask(client: "StewardClient") -> dict[str, str]:
        if changes:
            await client.label_node(node_id, changes)
        (allocation,) = (await client.allocation_map(node_id)).nodes
        return allocation.labels

    labels = target.ask(ask)
    if target.as_json:
        print_json({"labels": labels})
    else:
        click.echo(f"{node_id}: {labels_text(labels) or 'no labels'}")


@node.command("remove")
@click.argument("node_id", metavar="NODE", callback=node_name, shell_complete=complete_nodes)
@click.option("--yes", is_flag=True, help="Do not ask, even if GPUs are held there.")
@click.option("--reason", default="", help="Free-text reason.")
@with_target
def remove_node(target: Target, node_id: str, yes: bool, reason: str) -> None:
    """Forget a node that has left, with its GPUs; one that reports again is new.

    If something is held there, its reservations end as lost, and you vouch that nothing of them
    runs there any more: this is asked first.
    """

    async def find_held(client: "StewardClient") -> list[DeviceAllocation]:
        (allocation,) = (await client.allocation_map(node_id)).nodes
        return [device for device in allocation.devices if device.reservation_id is not None]

    held_devices = target.ask(find_held)
    if held_devices and not yes:
        for device in held_devices[:HELD_SHOWN]:
            holder = device.holder or f"reservation {short(device.reservation_id)}"
            click.echo(f"GPU {device.index} is {device.state.value}: {holder}", err=True)
        if len(held_devices) > HELD_SHOWN:
            more = len(held_devices) - HELD_SHOWN
            click.echo(f"and {more} more; `gpusteward map {node_id}` lists them", err=True)
        question = f"End this, on your word that nothing of it runs on {node_id} any more?"
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"{len(held_devices)} GPUs of {node_id} are held; --yes ends this"
            )
        click.confirm(question, abort=True, err=True)
    target.ask(
        lambda client: client.remove_node(
            node_id, end_held=yes or bool(held_devices), reason=reason
        )
    )
    click.echo(f"{node_id} is removed; if its agent starts again, it is a new node")


def monitoring_table(view: MonitoringView) -> Table:
    """Return a table with a row for each GPU."""
    headings = ["GPU", "name", "util %", "memory MB", "temp C", "power W", "samples"]
    rows = [[index, stats.name, *gpu_cells(stats)] for index, stats in view.gpu_stats.items()]
    numeric = frozenset(headings) - {"name"}
    return Table(headings, rows, title=f"{view.node_id}, min/mean/max", numeric=numeric)


def choose_gpu(gpus: tuple[GpuView, ...], place: str) -> GpuView:
    """The GPU that `place` names. Raises CommandFailed."""
    node_id, _, gpu_name = place.rpartition("/")
    if not node_id and any(gpu.uuid == gpu_name for gpu in gpus):
        return next(gpu for gpu in gpus if gpu.uuid == gpu_name)
    node = node_id or _only_node(sorted({gpu.node_id for gpu in gpus}))
    for gpu in gpus:
        if gpu.node_id == node and gpu_name in {str(gpu.index), gpu.uuid}:
            return gpu
    raise unknown_gpu(node, gpu_name, gpus)


def _only_node(nodes: list[str]) -> str:
    try:
        node = node_of_indices(nodes)
    except ValueError as error:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"several nodes: {error}") from error
    if node is None:
        raise CommandFailed(ErrorCode.NOT_FOUND, "no node reports anything")
    return node


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
