"""Commands that take GPUs and give them back."""

import getpass
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from schemas.errors import ErrorCode
from schemas.gpu_request import GpuRequest, Placement
from schemas.scheduler import ReservationState
from schemas.scheduler_views import ReservationView
from services.cli.failures import CommandFailed
from services.cli.lookup import Sort, find
from services.cli.options import Target, reading, with_target
from services.cli.output import print_json, print_table
from services.cli.tables import reservation_table

if TYPE_CHECKING:
    from shared.client.http import StewardClient

DEFAULT_WAIT_SECONDS = 300.0
ANSWER_SECONDS = 15.0


def request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which GPUs are wanted."""
    options = (
        click.option("--gpus", type=click.IntRange(min=1), required=True, metavar="N"),
        click.option("--min-memory", "min_memory_mb", type=click.IntRange(min=0), metavar="MB"),
        click.option("--model", "gpu_models", multiple=True, help="GPU model; may be repeated."),
        click.option("--priority", type=click.IntRange(-1000, 1000), default=0, show_default=True),
        click.option(
            "--wait",
            "wait_seconds",
            type=click.FloatRange(min=0.1),
            default=DEFAULT_WAIT_SECONDS,
            show_default=True,
            metavar="SECONDS",
            help="How long to queue.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@request_options
@click.option("--node", "node_ids", multiple=True, metavar="ID", help="Only this node; repeatable.")
@click.option("--placement", type=click.Choice([each.value for each in Placement]), default="pack")
@click.option(
    "--ttl",
    "lease_ttl_seconds",
    type=click.FloatRange(3, 3600),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the grant lives without `gpusteward renew`.",
)
@click.option("--holder", help="What for, for people [default: reserve/USER].")
@reading
def reserve(
    target: Target,
    gpus: int,
    min_memory_mb: int | None,
    gpu_models: tuple[str, ...],
    priority: int,
    wait_seconds: float,
    node_ids: tuple[str, ...],
    placement: str,
    lease_ttl_seconds: float,
    holder: str | None,
) -> None:
    """Reserve GPUs and print which ones were granted.

    Nothing renews the lease: `gpusteward exec` does, for as long as a command runs.
    """
    request = GpuRequest(
        gpus=gpus,
        min_memory_mb=min_memory_mb,
        gpu_models=gpu_models,
        node_ids=node_ids,
        placement=Placement(placement),
        priority=priority,
        wait_timeout_seconds=wait_seconds,
        lease_ttl_seconds=lease_ttl_seconds,
    )

    async def ask(client: "StewardClient") -> ReservationView:
        reservation_id = await client.request_reservation(
            request, holder=holder or f"reserve/{user_name()}"
        )
        return granted(
            await client.await_reservation(
                reservation_id, timeout_seconds=wait_seconds + ANSWER_SECONDS
            )
        )

    view = target.ask(ask)
    if target.as_json:
        print_json(view)
        return
    print_table(reservation_table([view]))
    for device in view.devices:
        mark = "  simulated" if device.simulated else ""
        click.echo(f"{device.node_id}/{device.index}  {device.name}  {device.uuid}{mark}")
    click.echo(
        f"held for {lease_ttl_seconds:g} s; `gpusteward renew {view.reservation_id}` keeps it,"
        f" `gpusteward release {view.reservation_id}` gives it back"
    )


@click.command()
@click.argument("identifier", metavar="ID")
@with_target
def renew(target: Target, identifier: str) -> None:
    """Keep a reservation for another lease."""

    async def ask(client: "StewardClient") -> float | None:
        view = await _held(client, identifier)
        answer = await client.renew_reservation(view.reservation_id, _epoch(view), activate=True)
        return answer.lease_ttl_seconds

    ttl_seconds = target.ask(ask)
    click.echo("renewed" if ttl_seconds is None else f"held for another {ttl_seconds:g} s")


@click.command()
@click.argument("identifier", metavar="ID")
@with_target
def release(target: Target, identifier: str) -> None:
    """Give a reservation's GPUs back; nothing of it may run any more."""

    async def ask(client: "StewardClient") -> ReservationView:
        view = await _held(client, identifier)
        if view.epoch is None:
            await client.cancel_reservation(view.reservation_id)
        else:
            await client.release_reservation(view.reservation_id, view.epoch)
        return view

    click.echo(f"reservation {target.ask(ask).reservation_id} given back")


def granted(view: ReservationView) -> ReservationView:
    """The reservation, if its GPUs are held now. Raises CommandFailed with every reason."""
    if view.state in {ReservationState.GRANTED, ReservationState.ACTIVE}:
        return view
    codes = {
        ReservationState.REJECTED: ErrorCode.UNSATISFIABLE,
        ReservationState.TIMED_OUT: ErrorCode.TIMEOUT,
        ReservationState.QUEUED: ErrorCode.TIMEOUT,
    }
    reasons = "; ".join(dict.fromkeys(reason.message for reason in view.reasons)) or view.reason
    raise CommandFailed(
        codes.get(view.state, ErrorCode.CONFLICT),
        f"reservation {view.reservation_id} is {view.state.value.replace('_', ' ')}"
        + (f": {reasons}" if reasons else ""),
    )


def user_name() -> str:
    """Who asks, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


async def _held(client: "StewardClient", identifier: str) -> ReservationView:
    found = await find(client, identifier, Sort.RESERVATION)
    if not isinstance(found, ReservationView):
        raise TypeError(f"expected a reservation, found {found}")
    return found


def _epoch(view: ReservationView) -> int:
    if view.epoch is None:
        raise CommandFailed(
            ErrorCode.CONFLICT,
            f"reservation {view.reservation_id} is {view.state.value}; only a granted one is kept",
        )
    return view.epoch
