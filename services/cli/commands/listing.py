"""Commands that only look."""

from typing import TYPE_CHECKING

import click

from schemas.orchestrator import ExperimentView, TaskView
from services.cli.display.output import (
    print_answer,
    print_json,
    print_table,
    table_options,
    wide_option,
)
from services.cli.display.tables import (
    experiment_table,
    gpu_table,
    node_table,
    reason_table,
    reservation_table,
    short,
    task_table,
)
from services.cli.lookup import Found, Sort, find
from services.cli.options import Target, reading

if TYPE_CHECKING:
    from shared.client.http import StewardClient

AT_LEAST_ONE = click.IntRange(min=1)
archived_option = click.option(
    "--archived", is_flag=True, help="Also what is archived: of tasks that finished long ago."
)


@click.command()
@click.option("--limit", type=AT_LEAST_ONE, help="At most so many, newest first; all without.")
@reading
@archived_option
@table_options
def tasks(target: Target, limit: int | None, archived: bool) -> None:
    """List tasks, newest first."""
    views = target.ask(lambda client: client.tasks(limit=limit, archived=archived))
    print_answer({"tasks": views}, task_table(views), as_json=target.as_json)


@click.command()
@click.option("--task", "task_id", metavar="ID", help="Only those of this task.")
@click.option(
    "--limit", type=AT_LEAST_ONE, help="At most so many, newest tasks first; all without."
)
@reading
@archived_option
@table_options
def experiments(target: Target, task_id: str | None, limit: int | None, archived: bool) -> None:
    """List experiments."""

    async def ask(client: "StewardClient") -> tuple[ExperimentView, ...]:
        if task_id is None:
            return await client.experiments(limit=limit, archived=archived)
        task = await find(client, task_id, Sort.TASK)
        only = task.task_id if isinstance(task, TaskView) else None
        return await client.experiments(only, limit=limit)

    views = target.ask(ask)
    print_answer({"experiments": views}, experiment_table(views), as_json=target.as_json)


@click.command()
@click.option("--fresh", is_flag=True, help="Have the nodes read anew instead of the last reading.")
@reading
@table_options
def gpus(target: Target, fresh: bool) -> None:
    """List GPUs with their readings and who holds them."""
    view = target.ask(lambda client: client.gpus(use_cache=not fresh))
    if target.as_json:
        print_json(view)
    elif view.gpus:
        print_table(gpu_table(view.gpus))
    else:
        click.echo(
            "no node reports a GPU; `gpusteward up --simulate` makes up a fleet to try things"
        )


@click.command()
@reading
@table_options
def nodes(target: Target) -> None:
    """List nodes with what runs on them."""
    view = target.ask(lambda client: client.nodes())
    print_answer(view, node_table(view.nodes), as_json=target.as_json)


@click.command()
@click.option("--limit", type=AT_LEAST_ONE, help="At most so many, newest first; all without.")
@reading
@table_options
def reservations(target: Target, limit: int | None) -> None:
    """List reservations, newest first."""
    views = target.ask(lambda client: client.reservations(limit=limit))
    print_answer({"reservations": views}, reservation_table(views), as_json=target.as_json)


@click.command()
@click.argument("identifier", metavar="ID")
@reading
@wide_option
def show(target: Target, identifier: str) -> None:
    """Show a task, an experiment or a reservation.

    ID is a whole id, or its beginning or end if only one has it.
    """

    async def ask(client: "StewardClient") -> None:
        found = await find(client, identifier)
        if isinstance(found, ExperimentView) and target.as_json:
            print_json(await client.experiment_document(found.experiment_id))
        elif target.as_json:
            print_json(found)
        elif isinstance(found, TaskView):
            _print_found(found, await client.experiments(found.task_id))
        else:
            _print_found(found, (found,) if isinstance(found, ExperimentView) else ())

    target.ask(ask)


def _print_found(found: Found, of_it: tuple[ExperimentView, ...]) -> None:
    from services.cli.display.task_results import WHOLE_LOG_TAIL, print_results

    if isinstance(found, TaskView):
        click.echo(f"task {found.task_id}  {found.task_name}  {found.state.value}")
        for note in (*found.notes, *((found.reason,) if found.reason else ())):
            click.echo(note)
        print_results(of_it, found.objective)
    elif isinstance(found, ExperimentView):
        print_table(experiment_table(of_it))
        print_results(of_it, None, log_lines=WHOLE_LOG_TAIL)
    else:
        print_table(reservation_table([found]))
        if found.reason:
            click.echo(found.reason)
        if found.reasons:
            print_table(reason_table(found.reasons))
        for device in found.devices:
            mark = "  simulated" if device.simulated else ""
            click.echo(
                f"{short(found.reservation_id)}  {device.node_id}/{device.index}"
                f"  {device.name}  {device.uuid}{mark}"
            )
