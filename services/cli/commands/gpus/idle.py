"""Reservations that nothing uses: which, what giving them up would free, and exemptions."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from schemas.results.reports import IdleView
from schemas.scheduler.reservations import HOLDING_STATES, holder_name
from schemas.scheduler.views import ReservationView
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import (
    age,
    number,
    print_answer,
    print_json,
    print_table,
    table_options,
    until,
)
from services.cli.display.tables import short
from services.cli.lookup import find_reservation
from services.cli.options import Target, TimeSpan, namespace_option, reading, with_target
from shared.clock import utcnow

if TYPE_CHECKING:
    from shared.client.http import StewardClient


@click.group(invoke_without_command=True)
@click.option(
    "--dry-run", is_flag=True, help="Show what releasing idle reservations would have freed so far."
)
@click.option("--since", type=TimeSpan(), default="7d", show_default=True, help="With --dry-run.")
@click.option(
    "--window",
    type=TimeSpan(),
    default="30m",
    show_default=True,
    help="With --dry-run: idle time before the warning.",
)
@click.option(
    "--grace",
    type=TimeSpan(),
    default="30m",
    show_default=True,
    help="With --dry-run: idle time after the warning.",
)
@namespace_option
@reading
@table_options
@click.pass_context
def idle(
    context: click.Context,
    target: Target,
    dry_run: bool,
    since: timedelta,
    window: timedelta,
    grace: timedelta,
    namespace: str | None,
) -> None:
    """List reservations that nothing uses, and those that are exempted."""
    if context.invoked_subcommand is not None:
        return
    if dry_run:
        end = utcnow()
        view = target.ask(
            lambda client: client.idle_report(
                start_at=end - since,
                end_at=end,
                namespace=namespace,
                window_seconds=window.total_seconds(),
                grace_seconds=grace.total_seconds(),
            )
        )
        _print_freed(view, as_json=target.as_json)
        return
    reservations = target.ask(
        lambda client: client.reservations(states=HOLDING_STATES, namespace=namespace)
    )
    idle_reservations = [
        reservation
        for reservation in reservations
        if reservation.idle is not None or _is_exempt(reservation)
    ]
    if target.as_json:
        print_json(idle_reservations)
    elif idle_reservations:
        print_table(idle_table(idle_reservations))
    else:
        click.echo("no reservation is idle or exempted")


@idle.command()
@click.argument("identifier", metavar="ID")
@click.option("--reason", required=True, help="Reason to keep it although it is idle.")
@click.option("--for", "length", type=TimeSpan(), default="24h", show_default=True)
@with_target
def exempt(target: Target, identifier: str, reason: str, length: timedelta) -> None:
    """Never find a reservation idle for so long, 30 days at most."""
    until_at = utcnow() + length

    async def ask(client: "StewardClient") -> ReservationView:
        view = await find_reservation(client, identifier)
        await client.exempt_reservation(view.reservation_id, until_at=until_at, reason=reason)
        return view

    view = target.ask(ask)
    click.echo(
        f"reservation {short(view.reservation_id)} is not idle before {until_at:%F %H:%M} UTC"
    )


def idle_table(reservations: Sequence[ReservationView]) -> Table:
    """Return a table with a row for each reservation that is idle or exempted."""
    return Table(
        headings=["reservation", "holder", "GPUs", "idle", "what follows", "namespace"],
        rows=[
            [
                short(reservation.reservation_id),
                holder_name(reservation.holder) or UNKNOWN,
                str(len(reservation.devices)),
                age(reservation.idle.since_at) if reservation.idle is not None else UNKNOWN,
                _following(reservation),
                reservation.namespace,
            ]
            for reservation in reservations
        ],
        numeric=frozenset({"GPUs", "idle"}),
        shortened=frozenset({"holder"}),
        wrapped=frozenset({"what follows"}),
    )


def idle_savings_table(view: IdleView) -> Table:
    """Return a table with a row for each namespace and holder."""
    headings = ["namespace", "holder", "reservations", "held GPU h", "freed GPU h", "used again"]
    return Table(
        headings=headings,
        rows=[
            [
                line.namespace,
                holder_name(line.holder) or UNKNOWN,
                str(line.reservations),
                number(line.held_gpu_hours, 2),
                number(line.freed_gpu_hours, 2),
                str(line.used_again),
            ]
            for line in view.lines
        ],
        numeric=frozenset(headings[2:]),
        shortened=frozenset({"holder"}),
    )


def _print_freed(view: IdleView, *, as_json: bool) -> None:
    if as_json or view.lines:
        print_answer(view, idle_savings_table(view), as_json=as_json)
    if not as_json:
        freed = sum(line.freed_gpu_hours for line in view.lines)
        click.echo(f"releasing idle reservations would have freed {freed:.2f} GPU hours")


def _following(view: ReservationView) -> str:
    if _is_exempt(view) and view.idle_exempt_until is not None:
        return f"exempted for {until(view.idle_exempt_until)}: {view.idle_exempt_reason}"
    if view.idle is None or (view.idle.acts_at is None and not view.idle.preemptible):
        return "nothing"
    if view.idle.preemptible or view.idle.acts_at is None:
        return "preemptible until it is used"
    return f"{view.idle.action.value} in {until(view.idle.acts_at)}"


def _is_exempt(view: ReservationView) -> bool:
    return view.idle_exempt_until is not None and view.idle_exempt_until > utcnow()
