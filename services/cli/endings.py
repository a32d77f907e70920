"""What a command would end of people's work, and the question that it asks first."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ExperimentView
from schemas.scheduler.reservations import HOLDING_STATES, holder_name
from schemas.scheduler.views import ReservationView
from services.cli.display.output import count_text, first_of
from services.cli.display.tables import short
from services.cli.options import confirm
from services.cli.request_options import user_name

if TYPE_CHECKING:
    from shared.client.http import StewardClient

RUNNING_STATES: Final = (ExperimentState.STARTING, ExperimentState.RUNNING)
NAMES_SHOWN: Final = 3


def yes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--yes`; the command gets `yes`."""
    return click.option(
        "--yes", is_flag=True, help="Do not ask first, even if workloads would end."
    )(command)


def confirm_ending(action: str, ending: str, *, yes: bool) -> None:
    """Ask whether `ending` may end; an empty one, or `yes`, asks nothing.

    Raises UsageError without a terminal, Abort on any answer but yes.
    """
    if ending and not yes:
        confirm(f"{action} ends {ending}. Go on?")


def reservations_ending(views: Sequence[ReservationView]) -> str:
    """Return how many reservations hold GPUs, and the first of them; empty if none does."""
    holding = [view for view in views if view.state in HOLDING_STATES]
    if not holding:
        return ""
    gpus = {(device.node_id, device.uuid) for view in holding for device in view.devices}
    on_gpus = f" on {count_text(len(gpus), 'GPU')}" if gpus else ""
    names = [_holder(view, len(holding) > 1) for view in holding]
    return f"{count_text(len(holding), 'reservation')}{on_gpus}: {first_of(names, NAMES_SHOWN)}"


def experiments_ending(views: Sequence[ExperimentView]) -> str:
    """Return how many experiments run, and the first of them; empty if none does."""
    running = [view for view in views if view.state in RUNNING_STATES]
    if not running:
        return ""
    names = [f"#{view.ordinal}" for view in sorted(running, key=lambda view: view.ordinal)]
    return f"{count_text(len(running), 'running experiment')}: {first_of(names, NAMES_SHOWN)}"


async def own_person(client: "StewardClient") -> str:
    """Return the person who types, as the platform knows them; empty if it knows none."""
    return (await client.me()).person


def is_own(view: ReservationView, person: str) -> bool:
    """Return whether it was requested by `person`, who types; never what holds for an experiment.

    Where one of both is not known its holder tells: `exec/USER`, `USER: training`.
    """
    if "#" in view.holder:
        return False
    if person and view.requester:
        return view.requester == person
    words = re.split(r"[^\w.-]+", holder_name(view.holder).casefold())
    return user_name().casefold() in words


def _holder(view: ReservationView, has_others: bool) -> str:
    name = holder_name(view.holder) or f"reservation {short(view.reservation_id)}"
    if view.requester and view.requester not in name:
        name += f" of {view.requester}"
    return (
        f"{name} ({count_text(len(view.devices), 'GPU')})" if has_others and view.devices else name
    )
