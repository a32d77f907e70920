"""From what a person typed to the task, experiment or reservation that is meant."""

import asyncio
from collections.abc import Awaitable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.orchestrator import ExperimentView, TaskView
from schemas.scheduler_views import ReservationView
from services.cli.display.tables import short
from services.cli.failures import CommandFailed
from shared.client.errors import ApiError

if TYPE_CHECKING:
    from shared.client.http import StewardClient

V = TypeVar("V")
Found = TaskView | ExperimentView | ReservationView


class Sort(StrEnum):
    """What an id can name."""

    TASK = "task"
    EXPERIMENT = "experiment"
    RESERVATION = "reservation"


class Named(NamedTuple):
    """An id and what it names."""

    sort: Sort
    identifier: UUID


async def find(client: "StewardClient", text: str, *sorts: Sort) -> Found:
    """The one thing of these sorts (none given: of any) that `text` names.

    `text` is a whole id, or its beginning or end if only one has it; else CommandFailed is raised.
    """
    wanted = sorts or tuple(Sort)
    try:
        identifier = UUID(text)
    except ValueError:
        chosen = choose(text, await _known(client, wanted))
        return await _fetch(client, chosen)
    found = await asyncio.gather(
        *(_if_there(_fetch(client, Named(sort, identifier))) for sort in wanted)
    )
    for view in found:
        if view is not None:
            return view
    raise _nothing(text, wanted)


async def find_reservation(client: "StewardClient", text: str) -> ReservationView:
    """As `find`, of reservations alone."""
    found = await find(client, text, Sort.RESERVATION)
    if not isinstance(found, ReservationView):
        raise TypeError(f"expected a reservation, found {found}")
    return found


def choose(text: str, known: Iterable[Named], wanted: Iterable[Sort] = tuple(Sort)) -> Named:
    """The only known id that begins or ends with `text`."""
    typed = text.lower().removeprefix("…")
    matching = [
        named for named in known if str(named.identifier).startswith(typed) or _ends(named, typed)
    ]
    if not matching or not typed:
        raise _nothing(text, wanted)
    if len(matching) > 1:
        some = ", ".join(f"{n.sort.value} {short(n.identifier)}" for n in matching[:5])
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"{text!r} names {len(matching)} things, among them {some}"
        )
    return matching[0]


def _ends(named: Named, typed: str) -> bool:
    return str(named.identifier).endswith(typed)


def _nothing(text: str, wanted: Iterable[Sort]) -> CommandFailed:
    sorts = " or ".join(sort.value for sort in wanted)
    return CommandFailed(ErrorCode.NOT_FOUND, f"no {sorts} has an id like {text!r}")


async def _known(client: "StewardClient", wanted: Iterable[Sort]) -> list[Named]:
    known: list[Named] = []
    for sort in wanted:
        match sort:
            case Sort.TASK:
                tasks = await client.tasks(archived=True)
                known += [Named(sort, task.task_id) for task in tasks]
            case Sort.EXPERIMENT:
                experiments = await client.experiments(archived=True, monitoring=False)
                known += [Named(sort, each.experiment_id) for each in experiments]
            case Sort.RESERVATION:
                reservations = await client.reservations()
                known += [Named(sort, each.reservation_id) for each in reservations]
    return known


async def _fetch(client: "StewardClient", named: Named) -> Found:
    match named.sort:
        case Sort.TASK:
            return await client.task(named.identifier)
        case Sort.EXPERIMENT:
            return await client.experiment(named.identifier)
        case Sort.RESERVATION:
            return await client.reservation(named.identifier)


async def _if_there(question: Awaitable[V]) -> V | None:
    try:
        return await question
    except ApiError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise
