"""Commands that take GPUs and give them back."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from schemas.base import NodeId
from schemas.errors import ErrorCode
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reason_groups import digest
from schemas.scheduler.reservations import HOLDING_STATES, ReservationState
from schemas.scheduler.views import ReservationView
from services.cli.completion import complete_ids
from services.cli.display.output import print_json, print_table, wide_option
from services.cli.display.placements import pod_lines
from services.cli.display.slow_reader import say
from services.cli.display.tables import print_devices, reservation_table, short
from services.cli.endings import confirm_ending, is_own, own_person, reservations_ending, yes_option
from services.cli.failures import CommandFailed
from services.cli.lookup import find_reservation
from services.cli.option_types import SecondsRange
from services.cli.options import Target, reading, with_target
from services.cli.request_options import request_options, user_name
from shared.accelerator_rules.compute_capability import is_amd
from shared.errors import StewardError
from shared.ids import new_id

if TYPE_CHECKING:
    from shared.client.http import StewardClient

ANSWER_TIMEOUT_SECONDS = 15.0


@click.command()
@request_options(whole_fleet=True)
@click.option(
    "--ttl",
    type=SecondsRange(3, 3600),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Lease of the grant without `gpusteward renew`.",
)
@click.option("--holder", help="Free-text purpose [default: reserve/USER].")
@click.option("--for", "requester", metavar="PERSON", help="Ask for somebody else, as an admin.")
@reading
@wide_option
def reserve(
    target: Target, request: GpuRequest, ttl: float, holder: str | None, requester: str | None
) -> None:
    """Reserve GPUs and print which ones were granted.

    Nothing renews the lease: `gpusteward exec` does, for as long as a command runs. Ctrl-C while it
    waits withdraws the request.
    """
    request = replace(request, lease_ttl_seconds=ttl)
    recorded_holder = holder or f"reserve/{requester or user_name()}"
    view = target.ask(lambda client: reserve_and_wait(client, request, recorded_holder, requester))
    if target.as_json:
        print_json(view)
        return
    print_table(reservation_table([view]))
    print_devices(view.devices)
    for line in (*closeness_lines(view), *pod_lines(view), *use_lines(view)):
        click.echo(line)
    is_mine = requester is None and is_own(view, view.requester)
    way_back = f"release {view.reservation_id}" + ("" if is_mine else " --yes")
    click.echo(
        f"held for {ttl:g} s; `gpusteward renew {view.reservation_id}` keeps it,"
        f" `gpusteward {way_back}` gives it back"
    )


async def reserve_and_wait(
    client: "StewardClient", request: GpuRequest, holder: str, requester: str | None = None
) -> ReservationView:
    """The granted reservation; withdrawn if this is cancelled. Raises CommandFailed."""
    reservation_id = new_id()
    try:
        await client.request_reservation(
            request, holder=holder, requester=requester, reservation_id=reservation_id
        )
        return require_grant(
            await client.await_reservation(
                reservation_id,
                timeout_seconds=request.wait_timeout_seconds + ANSWER_TIMEOUT_SECONDS,
            )
        )
    except asyncio.CancelledError:
        # Granted to a client that has left, it would keep others waiting for a whole lease.
        with contextlib.suppress(StewardError):
            await client.cancel_reservation(reservation_id)
            await say(f"gpusteward: reservation {reservation_id} withdrawn", err=True)
        raise


@click.command()
@click.argument("identifier", metavar="ID", shell_complete=complete_ids)
@with_target
def renew(target: Target, identifier: str) -> None:
    """Keep a reservation for another lease."""

    async def ask(client: "StewardClient") -> float | None:
        view = await find_reservation(client, identifier)
        answer = await client.renew_reservation(view.reservation_id, _epoch(view), activate=True)
        return answer.lease_ttl_seconds

    ttl_seconds = target.ask(ask)
    click.echo("renewed" if ttl_seconds is None else f"held for another {ttl_seconds:g} s")


@click.command()
@click.argument("identifier", metavar="ID", shell_complete=complete_ids)
@yes_option
@with_target
def release(target: Target, identifier: str, yes: bool) -> None:
    """Give a reservation's GPUs back; nothing of it may run any more.

    Asks first if somebody else requested it.
    """

    async def look(client: "StewardClient") -> tuple[ReservationView, str]:
        view = await find_reservation(client, identifier)
        is_mine = is_own(view, await own_person(client))
        return view, "" if is_mine else reservations_ending([view])

    view, ending = target.ask(look)
    confirm_ending("This", ending, yes=yes)

    async def ask(client: "StewardClient") -> None:
        if view.epoch is None:
            await client.cancel_reservation(view.reservation_id)
        else:
            await client.release_reservation(view.reservation_id, view.epoch)

    target.ask(ask)
    click.echo(f"reservation {view.reservation_id} given back")


def closeness_lines(view: ReservationView) -> list[str]:
    """Return lines on how near several GPUs are to each other, and how alike in free memory."""
    parts = []
    if view.nearness is not None:
        parts.append(f"joined by {view.nearness.value}")
    if view.memory_balance is not None:
        parts.append(f"memory balance {view.memory_balance:.2f}")
    return [", ".join(parts)] if parts else []


def use_lines(view: ReservationView) -> list[str]:
    """Return what a program of one's own is started with on each node; nothing for GPUs that are
    simulated, or AMD's, which have other numbers in HIP.
    """
    real = [d for d in view.devices if not d.simulated and not is_amd(d.name)]
    uuids: dict[NodeId, list[str]] = {}
    for device in real:
        uuids.setdefault(device.node_id, []).append(device.uuid)
    return [
        f"on {node_id}: CUDA_VISIBLE_DEVICES={','.join(node_uuids)}"
        for node_id, node_uuids in uuids.items()
    ]


def require_grant(view: ReservationView) -> ReservationView:
    """The reservation, if its GPUs are held now.

    Raises CommandFailed with every reason and who knows what would help.
    """
    if view.state in HOLDING_STATES:
        return view
    codes = {
        ReservationState.REJECTED: ErrorCode.UNSATISFIABLE,
        ReservationState.TIMED_OUT: ErrorCode.TIMEOUT,
        ReservationState.QUEUED: ErrorCode.TIMEOUT,
    }
    reasons = view.summary or digest(view.reasons) or view.reason
    raise CommandFailed(
        codes.get(view.state, ErrorCode.CONFLICT),
        f"reservation {view.reservation_id} is {view.state.value.replace('_', ' ')}"
        + (f": {reasons}" if reasons else "")
        + f"; `gpusteward why {short(view.reservation_id)}` says what would help",
    )


def _epoch(view: ReservationView) -> int:
    if view.epoch is None:
        raise CommandFailed(
            ErrorCode.CONFLICT,
            f"reservation {view.reservation_id} is {view.state.value}; only a granted one is kept",
        )
    return view.epoch
