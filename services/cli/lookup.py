"""From what a person typed to the task, experiment or reservation that is meant."""

from collections.abc import Awaitable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.gateway.views import GpuView
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES
from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.scheduler.reservations import OPEN_STATES, holder_name
from schemas.scheduler.views import ReservationView
from services.cli.display.tables import short
from services.cli.failures import CommandFailed
from shared.client.errors import ApiError

if TYPE_CHECKING:
    from shared.client.http import StewardClient

V = TypeVar("V")
Found = TaskView | ExperimentView | ReservationView
CANDIDATES_SHOWN: Final = 5


class Sort(StrEnum):
    """What an id or a name can mean."""

    TASK = "task"
    EXPERIMENT = "experiment"
    RESERVATION = "reservation"


def unknown_gpu(node_id: str, named: str, gpus: Iterable[GpuView]) -> CommandFailed:
    """Return the error about a GPU that a node does not report, with those that it does."""
    indices = sorted(gpu.index for gpu in gpus if gpu.node_id == node_id)
    there = f"its GPUs are {', '.join(map(str, indices))}" if indices else "it reports none"
    message = f"{node_id} reports no GPU {named}; {there} (`gpusteward gpus --node {node_id}`)"
    return CommandFailed(ErrorCode.NOT_FOUND, message)


class Named(NamedTuple):
    """An id, what it is of, and what people call that.

    A `part_of` is a name of something larger, that means this where the larger is not asked for.
    What `has_ended` gives way to what has not.
    """

    sort: Sort
    identifier: UUID
    name: str = ""
    state: str = ""
    part_of: str = ""
    has_ended: bool = False


async def find(client: "StewardClient", text: str, *sorts: Sort) -> Found:
    """The one thing of these sorts (none given: of any) that `text` names.

    `text` is a name, a whole id, or its beginning or end if only one has it; else CommandFailed is
    raised.
    """
    wanted = sorts or tuple(Sort)
    try:
        identifier = UUID(text)
    except ValueError:
        chosen = choose(text, await _known(client, wanted), wanted)
        return await _fetch(client, chosen)
    import asyncio

    found = await asyncio.gather(
        *(_if_there(_fetch(client, Named(sort, identifier))) for sort in wanted)
    )
    for view in found:
        if view is not None:
            return view
    raise _nothing(text, wanted)


async def find_task(client: "StewardClient", text: str) -> TaskView:
    """As `find`, of tasks alone."""
    found = await find(client, text, Sort.TASK)
    if not isinstance(found, TaskView):
        raise TypeError(f"expected a task, found {found}")
    return found


async def find_experiment(client: "StewardClient", text: str) -> ExperimentView:
    """As `find`, of experiments alone."""
    found = await find(client, text, Sort.EXPERIMENT)
    if not isinstance(found, ExperimentView):
        raise TypeError(f"expected an experiment, found {found}")
    return found


async def find_reservation(client: "StewardClient", text: str) -> ReservationView:
    """As `find`, of reservations alone."""
    found = await find(client, text, Sort.RESERVATION)
    if not isinstance(found, ReservationView):
        raise TypeError(f"expected a reservation, found {found}")
    return found


def choose(text: str, known: Sequence[Named], wanted: Iterable[Sort] = tuple(Sort)) -> Named:
    """What is called `text`; else what is part of that; else the only id that begins or ends so."""
    typed = text.lower().removeprefix("…")
    matching = [each for each in known if each.name == text] or [
        each for each in known if each.part_of == text
    ]
    if len(matching) > 1:
        matching = [each for each in matching if not each.has_ended] or matching
    if not matching and typed:
        matching = [each for each in known if _has_id_like(each, typed)]
    if not matching or not text:
        raise _not_of_task(text, known) or _nothing(text, wanted)
    if len(matching) > 1:
        some = ", ".join(map(_described, matching[:CANDIDATES_SHOWN]))
        among = "among them " if len(matching) > CANDIDATES_SHOWN else ""
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"{text!r} names {len(matching)} things: {among}{some}"
        )
    return matching[0]


def _has_id_like(each: Named, typed: str) -> bool:
    identifier = str(each.identifier)
    return identifier.startswith(typed) or identifier.endswith(typed)


def _described(each: Named) -> str:
    known = ", ".join(filter(None, (each.name or each.part_of, each.state)))
    return f"{each.sort.value} {short(each.identifier)}" + (f" ({known})" if known else "")


def _not_of_task(text: str, known: Sequence[Named]) -> CommandFailed | None:
    """Return what a task has instead of the experiment `text`; None if there is no such task."""
    task_name, sign, _ = text.rpartition("#")
    names = [each.name for each in known if sign and each.part_of == task_name]
    ordinals = sorted(int(name.rpartition("#")[2]) for name in names)
    is_task = any(each.sort is Sort.TASK and each.name == task_name for each in known)
    if not sign or not (ordinals or is_task):
        return None
    has = f"experiments {ordinals[0]} to {ordinals[-1]}" if ordinals else "no experiment yet"
    if len(ordinals) == 1:
        has = f"experiment {ordinals[0]} alone"
    message = f"task {task_name} has {has}, found {text!r}; `gpusteward show {task_name}`"
    return CommandFailed(ErrorCode.NOT_FOUND, message)


def _nothing(text: str, wanted: Iterable[Sort]) -> CommandFailed:
    sorts = " or ".join(sort.value for sort in wanted)
    return CommandFailed(ErrorCode.NOT_FOUND, f"no {sorts} has a name or an id like {text!r}")


async def _known(client: "StewardClient", wanted: Iterable[Sort]) -> list[Named]:
    known: list[Named] = []
    for sort in wanted:
        match sort:
            case Sort.TASK:
                known += map(named, await client.tasks(archived=True))
                known += [
                    Named(sort, each.task_id, each.task_name, "imported", has_ended=True)
                    for each in await client.imports()
                ]
            case Sort.EXPERIMENT:
                experiments = await client.experiments(archived=True, monitoring=False)
                known += map(named, experiments)
            case Sort.RESERVATION:
                known += map(named, await client.reservations())
    return known


def named(found: Found) -> Named:
    """A view by what people call it."""
    match found:
        case TaskView():
            return Named(Sort.TASK, found.task_id, found.task_name, found.state.value)
        case ExperimentView(task_name=task_name):
            return Named(
                Sort.EXPERIMENT,
                found.experiment_id,
                f"{task_name}#{found.ordinal}" if task_name else "",
                found.state.value,
                part_of=task_name,
                has_ended=found.state in FINISHED_EXPERIMENT_STATES,
            )
        case ReservationView():
            holder = holder_name(found.holder)
            is_part = "#" in holder  # an experiment's
            return Named(
                Sort.RESERVATION,
                found.reservation_id,
                "" if is_part else holder,
                found.state.value,
                part_of=holder if is_part else "",
                has_ended=found.state not in OPEN_STATES,
            )


async def _fetch(client: "StewardClient", each: Named) -> Found:
    match each.sort:
        case Sort.TASK:
            return await client.task(each.identifier)
        case Sort.EXPERIMENT:
            return await client.experiment(each.identifier)
        case Sort.RESERVATION:
            return await client.reservation(each.identifier)


async def _if_there(question: Awaitable[V]) -> V | None:
    try:
        return await question
    except ApiError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise
