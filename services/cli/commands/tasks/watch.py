"""The command that follows something to its end without touching it."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

import click

from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.scheduler.reason_groups import digest
from schemas.scheduler.reservations import OPEN_STATES, ReservationState
from schemas.scheduler.views import ReservationView
from services.cli.completion import complete_ids
from services.cli.display.tables import short
from services.cli.failures import leave
from services.cli.lookup import find
from services.cli.options import Target, with_target
from shared.errors import StewardError

if TYPE_CHECKING:
    from shared.client.http import StewardClient

RECONNECT_SECONDS: Final = 0.5


@click.command()
@click.argument("identifier", metavar="ID", shell_complete=complete_ids)
@with_target
def watch(target: Target, identifier: str) -> None:
    """Watch a task or a reservation until it is over; an experiment's is its task's.

    Ctrl-C ends the watching, and nothing else; `gpusteward run` cancels its task instead.
    """

    async def ask(client: "StewardClient") -> int:
        view = await find(client, identifier)
        if isinstance(view, TaskView | ExperimentView):
            from services.cli.follow import watch_to_end

            return await watch_to_end(client, view.task_id)
        return await _watch_reservation(client, view.reservation_id)

    leave(target.ask(ask))


async def _watch_reservation(client: "StewardClient", reservation_id: UUID) -> int:
    """A line for each state; 0 once it was released."""
    last: ReservationState | None = None

    async def is_over() -> bool:
        nonlocal last
        view = await client.reservation(reservation_id)
        if view.state is not last:
            last = view.state
            click.echo(state_line(view))
        return view.state not in OPEN_STATES

    while not await is_over():  # raises where the platform answers no more
        with suppress(StewardError):
            async with client.events(reservation_id=reservation_id) as events:
                if await is_over():
                    break
                async for _ in events:
                    if await is_over():
                        break
        await asyncio.sleep(RECONNECT_SECONDS)
    return 0 if last is ReservationState.RELEASED else 1


def state_line(view: ReservationView) -> str:
    """Return one line on its state, where it holds GPUs or stands in the queue, and why."""
    parts = [f"reservation {short(view.reservation_id)}  {view.state.value}"]
    if view.queue_position is not None:
        parts.append(f"position {view.queue_position}")
    devices = [f"{device.node_id}/{device.index}" for device in view.devices]
    if view.state in OPEN_STATES and devices:
        parts.append(" ".join(devices))
    if why := view.reason or view.summary or digest(view.reasons):
        parts.append(why)
    return "  ".join(parts)
