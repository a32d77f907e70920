"""Commands for operators of the GPUs: out of service, back, and what does not add up."""

from typing import TYPE_CHECKING, Final

import click

from schemas.gateway.views import GpuView
from schemas.scheduler.drifts import DriftAction, DriftKind
from schemas.scheduler.reservations import HOLDING_STATES
from schemas.scheduler.views import Drift
from services.cli.completion import complete_nodes
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import age, print_json, print_table, table_options
from services.cli.display.tables import short
from services.cli.endings import (
    confirm_ending,
    reservations_ending,
    yes_option,
)
from services.cli.lookup import unknown_gpu
from services.cli.options import Target, node_name, node_option, reading, with_target
from services.cli.request_options import user_name

if TYPE_CHECKING:
    from shared.client.http import StewardClient

MEANINGS: Final = {
    DriftKind.GHOST_RESERVATION: "GPUs are reserved, nothing runs under the reservation",
    DriftKind.ORPHAN_WORKLOAD: "something runs under a reservation that is over or not here",
    DriftKind.SQUATTER: "something uses a GPU under no reservation",
    DriftKind.UNDERUSE: "GPUs are held and hardly used",
    DriftKind.STALE_AGENT: "the node's telemetry agent is silent, its readings are too old",
    DriftKind.CLOCK_SKEW: "the node's clock is minutes off the scheduler's",
}
DONE: Final = {
    DriftAction.NONE: "nothing",
    DriftAction.RELEASE: "the reservation is released",
    DriftAction.FENCE: "the node is asked to stop it",
    DriftAction.AVOID: "the GPU is not granted",
    DriftAction.STOP_GRANTING: "nothing new is granted there",
}
NEXT: Final = {
    DriftKind.GHOST_RESERVATION: "none; the GPUs are free once the node confirms the stop",
    DriftKind.ORPHAN_WORKLOAD: "if it lasts, look at its processes on the node",
    DriftKind.SQUATTER: "end it, or start it again by `gpusteward exec`",
    DriftKind.UNDERUSE: "ask its holder, or `gpusteward release` it",
    DriftKind.STALE_AGENT: (
        "look at the agent on the node; granting resumes by itself; `gpusteward node remove` "
        "forgets a node that left for good"
    ),
    DriftKind.CLOCK_SKEW: "set the clock of the node, or the scheduler's, by NTP (`timedatectl`)",
}


def _parse_place(context: click.Context, option: click.Parameter, place: str) -> str:
    """NODE or NODE/GPU; a GPU left empty is never taken for the whole node."""
    node_id, slash, gpu = place.partition("/")
    if slash and not gpu:
        raise click.BadParameter(
            f"expected NODE or NODE/GPU, got {place!r} without the GPU's index or UUID"
        )
    node_name(context, option, node_id)
    return place


_place = click.argument("place", metavar="NODE[/GPU]", callback=_parse_place)
_reason = click.option("--reason", default="", help="Free-text reason.")


@click.command()
@_place
@_reason
@with_target
def cordon(target: Target, place: str, reason: str) -> None:
    """Grant nothing new on a node or one of its GPUs; what runs goes on.

    GPU is its index on the node, or its UUID.
    """

    async def ask(client: "StewardClient") -> None:
        node_id, device_uuid = await _find(client, place)
        await client.cordon(node_id, device_uuid, reason=reason, set_by=user_name())

    target.ask(ask)
    click.echo(f"{place} is cordoned; `gpusteward uncordon {place}` takes it back into service")


@click.command()
@_place
@click.option(
    "--confirm-stopped",
    is_flag=True,
    help="Confirm that no quarantined workload runs there any more, and free its GPUs.",
)
@_reason
@with_target
def uncordon(target: Target, place: str, confirm_stopped: bool, reason: str) -> None:
    """Take a node or one of its GPUs back into service.

    What is quarantined stays so until its node confirms the stop; for a node that never comes back,
    --confirm-stopped does, on your word.
    """

    async def ask(client: "StewardClient") -> None:
        node_id, device_uuid = await _find(client, place)
        await client.uncordon(node_id, device_uuid, confirm_stopped=confirm_stopped, reason=reason)

    target.ask(ask)
    click.echo(f"{place} is in service")


@click.command()
@click.argument("node_id", metavar="NODE", callback=node_name, shell_complete=complete_nodes)
@yes_option
@_reason
@with_target
def drain(target: Target, node_id: str, yes: bool, reason: str) -> None:
    """Cordon a node and end what is reserved there, having said what and asked."""
    if not yes:
        holding = target.ask(
            lambda client: client.reservations(states=HOLDING_STATES, node_id=node_id)
        )
        confirm_ending(f"Draining {node_id}", reservations_ending(holding), yes=yes)
    target.ask(lambda client: client.drain(node_id, reason=reason, set_by=user_name()))
    click.echo(f"{node_id} is drained; `gpusteward uncordon {node_id}` takes it back into service")


@click.command()
@node_option
@click.option("--ended", is_flag=True, help="Also list drifts that ended within a day.")
@reading
@table_options
def drift(target: Target, node_id: str | None, ended: bool) -> None:
    """List where what is reserved, what runs and what is used disagree."""
    view = target.ask(lambda client: client.drifts(node_id, ended=ended))
    if target.as_json:
        print_json(view)
    elif view.drifts:
        print_table(drift_table(view.drifts))
        for kind in dict.fromkeys(drift.drift for drift in view.drifts):
            action = next(drift.action for drift in view.drifts if drift.drift is kind)
            click.echo(
                f"{kind.value}: {MEANINGS[kind]}\n  done: {DONE[action]}\n  next: {NEXT[kind]}"
            )
    else:
        click.echo("no drift: what is reserved, what runs and what is used agree")


def drift_table(drifts: tuple[Drift, ...]) -> Table:
    """Drifts as they come."""
    rows = [
        [
            drift.drift.value,
            drift.node_id if drift.device_uuid is None else f"{drift.node_id}/{drift.device_uuid}",
            age(drift.since_at),
            short(drift.reservation_id) if drift.reservation_id is not None else UNKNOWN,
            ",".join(map(str, drift.pids)) or UNKNOWN,
            drift.detail
            if drift.ended_at is None
            else f"ended {age(drift.ended_at)} ago: {drift.detail}",
        ]
        for drift in drifts
    ]
    return Table(
        ["kind", "where", "age", "reservation", "pids", "what"],
        rows,
        important=("where", "what", "age"),
        wrapped=frozenset({"what"}),
    )


async def _find(client: "StewardClient", place: str) -> tuple[str, str | None]:
    """The node and the GPU's UUID, None for the whole node."""
    node_id, _, gpu = place.partition("/")
    if not gpu:
        return node_id, None
    gpus = (await client.gpus()).gpus
    for view in gpus:
        if view.node_id == node_id and _is_named(view, gpu):
            return node_id, view.uuid
    if not gpu.isdigit():
        return node_id, gpu  # the ledger may know a device that no agent reports any more
    raise unknown_gpu(node_id, gpu, gpus)


def _is_named(view: GpuView, gpu: str) -> bool:
    return gpu in {str(view.index), view.uuid}
