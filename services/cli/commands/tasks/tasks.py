"""Commands that hand in tasks, follow them and stop them."""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from uuid import UUID

import click
import msgspec

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.orchestrator.experiments import FINISHED_TASK_STATES
from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.scheduler.views import ReservationView
from services.cli import interruption
from services.cli.completion import complete_ids
from services.cli.display.output import print_json, print_table, wide_option
from services.cli.display.plan_text import forecast_lines
from services.cli.display.tables import plan_count_text, plan_table
from services.cli.display.task_progress import experiments_text
from services.cli.endings import (
    RUNNING_STATES,
    confirm_ending,
    experiments_ending,
    is_own,
    own_person,
    reservations_ending,
    yes_option,
)
from services.cli.failures import CommandFailed, leave
from services.cli.json_files import read_json
from services.cli.lookup import Sort, find
from services.cli.model_studies import (
    NOT_COMPARED,
    ModelStudy,
    documents_by_model,
    studies_table,
)
from services.cli.options import Target, confirm, reading, with_target
from shared.client.errors import PlatformUnreachable
from shared.errors import StewardError

if TYPE_CHECKING:
    from shared.client.http import StewardClient

RETRY_SECONDS: Final = 60.0
CANCEL_TIMEOUT_SECONDS: Final = 60.0
CANCEL_POLL_SECONDS: Final = 0.2


constraints_option: Final = click.option(
    "--constraints",
    metavar="TEXT",
    help="Constraints of the best experiment, as optimization.constraints: 'ttft:p99<300ms'.",
)


task_namespace_option: Final = click.option(
    "--namespace", metavar="NAME", help="Namespace of the task [default: the token's]."
)


@click.command()
@click.argument("file", type=click.File("rb"))
@constraints_option
@task_namespace_option
@reading
def submit(target: Target, file: BinaryIO, constraints: str | None, namespace: str | None) -> None:
    """Hand in a task FILE, JSON or YAML, and return at once; `-` is standard input."""
    document = _replace_constraints(read_json(file), constraints)

    async def ask(client: "StewardClient") -> TaskView:
        return await client.task(await client.submit_task(document, namespace=namespace))

    task = target.ask(ask)
    if target.as_json:
        print_json(task)
        return
    click.echo(f"task {task.task_id}  {task.task_name}  {experiments_text(task)}")
    for note in task.notes:
        click.echo(note)
    click.echo(f"see `gpusteward show {task.task_id}`")


@click.command()
@click.argument("file", type=click.File("rb"))
@constraints_option
@reading
@wide_option
def validate(target: Target, file: BinaryIO, constraints: str | None) -> None:
    """Show what a task FILE, JSON or YAML, would become; `-` is standard input.

    Nothing is stored. Ends with 0 only if the task can run here. Where no platform runs, the file's
    form alone is checked.
    """
    document = _replace_constraints(read_json(file), constraints)
    try:
        plan = target.ask(lambda client: client.validate_task(document))
    except PlatformUnreachable as unreachable:
        if target.is_explicit:
            raise
        _show_form(document, str(unreachable), as_json=target.as_json)
        return
    if target.as_json:
        print_json(plan)
        leave(EXIT_CODE[ErrorCode.UNSUPPORTED] if plan.missing else 0)
        return
    click.echo(
        f"{plan.mode.value}, {plan.strategy.value}, {plan.objective.value}: {plan_count_text(plan)}"
    )
    if plan.experiments:
        print_table(plan_table(plan))
    for line in (*forecast_lines(plan), *plan.notes):
        click.echo(line)
    for lack in plan.missing:
        click.echo(f"missing here: {lack}")
    if plan.missing:
        click.echo("this task cannot run here")
        leave(EXIT_CODE[ErrorCode.UNSUPPORTED])
    click.echo("this task can run here")


@click.command()
@click.argument("identifier", metavar="ID", shell_complete=complete_ids)
@click.option("--no-wait", is_flag=True, help="Do not wait until nothing of the task runs.")
@yes_option
@with_target
def cancel(target: Target, identifier: str, no_wait: bool, yes: bool) -> None:
    """Stop a task, or withdraw a reservation; ID as for `gpusteward show`.

    Asks first if experiments of the task run, or somebody else has the reservation's GPUs.
    """

    async def look(client: "StewardClient") -> tuple[TaskView | ReservationView, str]:
        view = await find(client, identifier)
        if isinstance(view, TaskView):
            running = await client.experiments(
                view.task_id, states=RUNNING_STATES, monitoring=False
            )
            return view, experiments_ending(running)
        if isinstance(view, ReservationView):
            is_mine = is_own(view, await own_person(client))
            return view, "" if is_mine else reservations_ending([view])
        raise CommandFailed(
            ErrorCode.UNSUPPORTED,
            f"an experiment is stopped with its task: `gpusteward cancel {view.task_id}`",
        )

    async def ask(client: "StewardClient") -> str:
        if isinstance(view, TaskView):
            return await _cancel_task(client, view, wait=not no_wait)
        await client.cancel_reservation(view.reservation_id)
        return f"reservation {view.reservation_id} withdrawn"

    view, ending = target.ask(look)
    confirm_ending("This", ending, yes=yes)
    click.echo(target.ask(ask))


@click.command()
@click.argument("identifier", metavar="TASK|EXPERIMENT")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@with_target
def delete(target: Target, identifier: str, yes: bool) -> None:
    """Delete a finished task or experiment with its measurements.

    Its events and the GPU hours that it used stay on record.
    """
    view = target.ask(lambda client: find(client, identifier, Sort.TASK, Sort.EXPERIMENT))
    what = (
        f"task {view.task_name} with {view.experiments_total} experiments"
        if isinstance(view, TaskView)
        else f"experiment {identifier}"
    )
    if not yes:
        confirm(f"Delete {what} and all that was measured?")

    async def ask(client: "StewardClient") -> None:
        match view:
            case TaskView():
                await client.delete_task(view.task_id)
            case ExperimentView():
                await client.delete_experiment(view.experiment_id)

    target.ask(ask)
    click.echo(f"{what} deleted")


@click.command()
@click.argument("file", type=click.File("rb"), metavar="TASK.json")
@click.option("--simulate", is_flag=True, help="Simulate a fleet if no GPU is found.")
@click.option("--keep", is_flag=True, help="Keep a platform running that had to be started.")
@click.option(
    "--each-model",
    is_flag=True,
    help="Run once on each GPU model: those of gpus.models, else those of the fleet.",
)
@constraints_option
@task_namespace_option
@with_target
@wide_option
def run(
    target: Target,
    file: BinaryIO,
    simulate: bool,
    keep: bool,
    each_model: bool,
    constraints: str | None,
    namespace: str | None,
) -> None:
    """Run a task to its end and print its results.

    Starts the platform if none answers. Ends with 0 only if every experiment succeeded. With
    --each-model it is a task for each GPU model, and a table shows what each came to.
    """
    document = _replace_constraints(read_json(file), constraints)
    leave(
        interruption.run(
            _run(
                target,
                document,
                namespace,
                simulate=simulate,
                keep=keep,
                each_model=each_model,
            )
        )
    )


def _show_form(document: bytes, why_alone: str, *, as_json: bool) -> None:
    """Print that a file has no mistake, as far as can be seen here. Raises RefusedError."""
    from services.cli.form_check import check_form

    form = check_form(document)
    unknown = ["executors", "GPUs", "cost", "start", *form.unknown]
    if as_json:
        print_json({"mistakes": [], "asked_platform": False, "unknown": unknown})
        return
    spec = form.task.optimization
    click.echo(
        f"{', '.join(form.task.engine_names)}, {spec.strategy.value}, {spec.objective.value}:"
        " the file has no mistake that shows without a platform"
    )
    click.echo(f"no platform was asked ({why_alone}), so this is not known: {', '.join(unknown)}")
    click.echo("`gpusteward up` starts one; `gpusteward up --simulate` needs no GPU")


def _replace_constraints(document: bytes, constraints: str | None) -> bytes:
    """The task with these constraints in place of its own."""
    if constraints is None:
        return document
    task: dict[str, Any] = msgspec.json.decode(document)
    optimization = task.get("optimization") or {}
    if isinstance(optimization, dict):  # else refused as it is
        task["optimization"] = {**optimization, "constraints": constraints}
    return msgspec.json.encode(task)


async def _run(
    target: Target,
    document: bytes,
    namespace: str | None,
    *,
    simulate: bool,
    keep: bool,
    each_model: bool,
) -> int:
    from services.cli.follow import follow_to_end
    from services.cli.form_check import check_form
    from services.cli.local_platform.background import answering, platform
    from shared.client.http import StewardClient

    if await answering(target) is None:
        check_form(document)  # before a platform is started in vain
    async with (
        platform(target, simulate=simulate, keep=keep) as running,
        StewardClient(running.address, retry_seconds=RETRY_SECONDS) as client,
    ):
        if each_model:
            return await _run_on_each_model(client, document, namespace)
        task_id = await client.submit_task(document, namespace=namespace)
        click.echo(f"task {task_id} at {running.address.url}")
        return await follow_to_end(client, task_id)


async def _run_on_each_model(
    client: "StewardClient", document: bytes, namespace: str | None
) -> int:
    """Run the tasks at once, show them one after the other, then what each came to."""
    from services.cli.follow import INTERRUPTED_EXIT_CODE, follow_to_end

    names = [gpu.name for gpu in (await client.gpus()).gpus]
    documents = documents_by_model(document, names)
    task_ids: dict[str, UUID] = {}
    try:
        for model, text in documents.items():
            task_ids[model] = await client.submit_task(text, namespace=namespace)
    except StewardError:
        await _cancel_all(client, task_ids.values(), "another model's task was refused")
        raise
    codes: list[int] = []
    for model, task_id in task_ids.items():
        click.echo(f"task {task_id} on {model} at {client.address.url}")
        codes.append(await follow_to_end(client, task_id))
        click.echo()
        if INTERRUPTED_EXIT_CODE in codes:
            await _cancel_all(client, task_ids.values(), "interrupted by its user")
            return INTERRUPTED_EXIT_CODE
    studies = [
        ModelStudy(model, await client.task(task_id), await client.experiments(task_id))
        for model, task_id in task_ids.items()
    ]
    print_table(studies_table(studies))
    click.echo(NOT_COMPARED)
    return max(codes)


async def _cancel_all(client: "StewardClient", task_ids: Iterable[UUID], reason: str) -> None:
    for task_id in task_ids:
        if (await client.task(task_id)).state not in FINISHED_TASK_STATES:
            await client.cancel_task(task_id, reason)


async def _cancel_task(client: "StewardClient", task: TaskView, *, wait: bool) -> str:
    if task.state in FINISHED_TASK_STATES:
        raise CommandFailed(
            ErrorCode.CONFLICT, f"task {task.task_name} is {task.state.value} already"
        )
    await client.cancel_task(task.task_id, "cancelled by its user")
    deadline = time.monotonic() + (CANCEL_TIMEOUT_SECONDS if wait else 0.0)
    while time.monotonic() < deadline:
        task = await client.task(task.task_id)
        if task.state in FINISHED_TASK_STATES:
            return f"task {task.task_name} is {task.state.value}; nothing of it runs any more"
        await asyncio.sleep(CANCEL_POLL_SECONDS)
    return f"task {task.task_name} is being cancelled"
