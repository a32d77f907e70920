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
NamedView = TaskView | ExperimentView | ReservationView
CANDIDATES_SHOWN: Final = 5


class Sort(StrEnum):
    """What an id or a name can mean."""

    TASK = "task"
    EXPERIMENT = "experiment"
    RESERVATION = "reservation"


def unknown_gpu(node_id: str, gpu_name: str, gpus: Iterable[GpuView]) -> CommandFailed:
    """Return the error about a GPU that a node does not report, with those that it does."""
    indices = sorted(gpu.index for gpu in gpus if gpu.node_id == node_id)
    gpus_text = f"its GPUs are {', '.join(map(str, indices))}" if indices else "it reports none"
    message = (
        f"{node_id} reports no GPU {gpu_name}; {gpus_text} (`gpusteward gpus --node {node_id}`)"
    )
    return CommandFailed(ErrorCode.NOT_FOUND, message)


class Candidate(NamedTuple):
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


async def find(client: "StewardClient", text: str, *sorts: Sort) -> NamedView:
    """The one thing of these sorts (none given: of any) that `text` names.

    `text` is a name, a whole id, or its beginning or end if only one has it; else CommandFailed is
    raised.
    """
    allowed_sorts = sorts or tuple(Sort)
    try:
        identifier = UUID(text)
    except ValueError:
        choice = choose(text, await _list_candidates(client, allowed_sorts), allowed_sorts)
        return await _fetch(client, choice)
    import asyncio

    views = await asyncio.gather(
        *(_if_there(_fetch(client, Candidate(sort, identifier))) for sort in allowed_sorts)
    )
    for view in views:
        if view is not None:
            return view
    raise _nothing(text, allowed_sorts)


async def find_task(client: "StewardClient", text: str) -> TaskView:
    """Find a task; see `find`."""
    view = await find(client, text, Sort.TASK)
    if not isinstance(view, TaskView):
        raise TypeError(f"expected a task, found {view}")
    return view


async def find_experiment(client: "StewardClient", text: str) -> ExperimentView:
    """Find an experiment; see `find`."""
    view = await find(client, text, Sort.EXPERIMENT)
    if not isinstance(view, ExperimentView):
        raise TypeError(f"expected an experiment, found {view}")
    return view


async def find_reservation(client: "StewardClient", text: str) -> ReservationView:
    """Find a reservation; see `find`."""
    view = await find(client, text, Sort.RESERVATION)
    if not isinstance(view, ReservationView):
        raise TypeError(f"expected a reservation, found {view}")
    return view


def choose(
    text: str, candidates: Sequence[Candidate], sorts: Iterable[Sort] = tuple(Sort)
) -> Candidate:
    """Choose by the exact name, else by a part of it, else by the only id that begins or ends
    so.
    """
    typed = text.lower().removeprefix("…")
    matching = [candidate for candidate in candidates if candidate.name == text] or [
        candidate for candidate in candidates if candidate.part_of == text
    ]
    if len(matching) > 1:
        matching = [candidate for candidate in matching if not candidate.has_ended] or matching
    if not matching and typed:
        matching = [candidate for candidate in candidates if _has_id_like(candidate, typed)]
    if not matching or not text:
        raise _not_of_task(text, candidates) or _nothing(text, sorts)
    if len(matching) > 1:
        examples = ", ".join(map(_describe, matching[:CANDIDATES_SHOWN]))
        among = "among them " if len(matching) > CANDIDATES_SHOWN else ""
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"{text!r} names {len(matching)} things: {among}{examples}"
        )
    return matching[0]


def _has_id_like(candidate: Candidate, typed: str) -> bool:
    identifier = str(candidate.identifier)
    return identifier.startswith(typed) or identifier.endswith(typed)


def _describe(candidate: Candidate) -> str:
    details = ", ".join(filter(None, (candidate.name or candidate.part_of, candidate.state)))
    return f"{candidate.sort.value} {short(candidate.identifier)}" + (
        f" ({details})" if details else ""
    )


def _not_of_task(text: str, candidates: Sequence[Candidate]) -> CommandFailed | None:
    """Return what a task has instead of the experiment `text`; None if there is no such task."""
    task_name, sign, _ = text.rpartition("#")
    names = [candidate.name for candidate in candidates if sign and candidate.part_of == task_name]
    ordinals = sorted(int(name.rpartition("#")[2]) for name in names)
    is_task = any(
        candidate.sort is Sort.TASK and candidate.name == task_name for candidate in candidates
    )
    if not sign or not (ordinals or is_task):
        return None
    has = f"experiments {ordinals[0]} to {ordinals[-1]}" if ordinals else "no experiment yet"
    if len(ordinals) == 1:
        has = f"experiment {ordinals[0]} alone"
    message = f"task {task_name} has {has}, found {text!r}; `gpusteward show {task_name}`"
    return CommandFailed(ErrorCode.NOT_FOUND, message)


def _nothing(text: str, allowed_sorts: Iterable[Sort]) -> CommandFailed:
    sorts = " or ".join(sort.value for sort in allowed_sorts)
    return CommandFailed(ErrorCode.NOT_FOUND, f"no {sorts} has a name or an id like {text!r}")


async def _list_candidates(client: "StewardClient", sorts: Iterable[Sort]) -> list[Candidate]:
    candidates: list[Candidate] = []
    for sort in sorts:
        match sort:
            case Sort.TASK:
                candidates += map(to_named, await client.tasks(archived=True))
                candidates += [
                    Candidate(sort, view.task_id, view.task_name, "imported", has_ended=True)
                    for view in await client.imports()
                ]
            case Sort.EXPERIMENT:
                experiments = await client.experiments(archived=True, monitoring=False)
                candidates += map(to_named, experiments)
            case Sort.RESERVATION:
                candidates += map(to_named, await client.reservations())
    return candidates


def to_named(view: NamedView) -> Candidate:
    """A view by what people call it."""
    match view:
        case TaskView():
            return Candidate(Sort.TASK, view.task_id, view.task_name, view.state.value)
        case ExperimentView(task_name=task_name):
            return Candidate(
                Sort.EXPERIMENT,
                view.experiment_id,
                f"{task_name}#{view.ordinal}" if task_name else "",
                view.state.value,
                part_of=task_name,
                has_ended=view.state in FINISHED_EXPERIMENT_STATES,
            )
        case ReservationView():
            holder = holder_name(view.holder)
            is_part = "#" in holder  # an experiment's
            return Candidate(
                Sort.RESERVATION,
                view.reservation_id,
                "" if is_part else holder,
                view.state.value,
                part_of=holder if is_part else "",
                has_ended=view.state not in OPEN_STATES,
            )


async def _fetch(client: "StewardClient", candidate: Candidate) -> NamedView:
    match candidate.sort:
        case Sort.TASK:
            return await client.task(candidate.identifier)
        case Sort.EXPERIMENT:
            return await client.experiment(candidate.identifier)
        case Sort.RESERVATION:
            return await client.reservation(candidate.identifier)


async def _if_there(question: Awaitable[V]) -> V | None:
    try:
        return await question
    except ApiError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise
