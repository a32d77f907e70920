"""Commands that pause a task, let it go on, and run it again with changes."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from schemas.orchestrator.views import TaskView
from services.cli.completion import complete_ids
from services.cli.display.output import print_json
from services.cli.display.task_progress import experiments_text
from services.cli.lookup import find_experiment, find_task
from services.cli.options import Target, with_target

if TYPE_CHECKING:
    from shared.client.http import StewardClient


_SPACE: Final = frozenset({"configurations", "parameters", "quant_config", "parallel_config"})
_OF_SEARCH: Final = frozenset(
    ("max_iterations", "n_initial_random", "prior", "seed", "strategy", "trust", "warm_start")
)


@click.command()
@click.argument("identifier", metavar="TASK", shell_complete=complete_ids)
@with_target
def pause(target: Target, identifier: str) -> None:
    """Start no further experiment of a task; what runs is measured to its end."""
    task = target.ask(lambda client: _pause(client, identifier))
    click.echo(
        f"task {task.task_name} is {task.state.value}; go on: gpusteward resume {identifier}"
    )


@click.command()
@click.argument("identifier", metavar="TASK", shell_complete=complete_ids)
@with_target
def resume(target: Target, identifier: str) -> None:
    """Start experiments of a paused task again."""
    task = target.ask(lambda client: _resume(client, identifier))
    click.echo(f"task {task.task_name} is {task.state.value}")


@click.command()
@click.argument("identifier", metavar="TASK", shell_complete=complete_ids)
@click.option("--name", help="The new task's name; without, the old one with -clone.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="A field of the task file, such as optimization.max_iterations=8; null removes it.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the task file; submit nothing.")
@with_target
def clone(
    target: Target, identifier: str, name: str | None, changes: Sequence[str], only_print: bool
) -> None:
    """Submit a task's file once more, with changes."""

    async def ask(client: "StewardClient") -> TaskView | dict[str, Any]:
        task = await find_task(client, identifier)
        document: dict[str, Any] = msgspec.to_builtins(task.task)
        document["task_name"] = name or f"{task.task_name}-clone"
        changed = with_changes(document, changes)
        if only_print:
            return changed
        task_id = await client.submit_task(msgspec.json.encode(changed))
        return await client.task(task_id)

    made = target.ask(ask)
    if isinstance(made, TaskView):
        click.echo(f"task {made.task_id}  {made.task_name}  {experiments_text(made)}")
    else:
        print_json(made)


@click.command()
@click.argument("identifier", metavar="EXPERIMENT", shell_complete=complete_ids)
@click.option("--name", help="The new task's name; without, the old one with -rerun-NUMBER.")
@with_target
def rerun(target: Target, identifier: str, name: str | None) -> None:
    """Measure one experiment's configuration once more, as a task of its own."""

    async def ask(client: "StewardClient") -> TaskView:
        experiment = await find_experiment(client, identifier)
        task = await client.task(experiment.task_id)
        document = only(msgspec.to_builtins(task.task), experiment.parameters)
        document["task_name"] = name or f"{task.task_name}-rerun-{experiment.ordinal}"
        return await client.task(await client.submit_task(msgspec.json.encode(document)))

    made = target.ask(ask)
    click.echo(f"task {made.task_id}  {made.task_name}  {experiments_text(made)}")


def only(document: dict[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The task file whose one configuration is this, as an experiment shows it."""
    kept = {name: block for name, block in document.items() if name not in _SPACE}
    for parameter_name, value in parameters.items():
        block, _, field = parameter_name.rpartition(".")
        if block:
            kept.setdefault(block, {})[field] = value
        else:
            kept.setdefault("parameters", {})[parameter_name] = [value]
    search = kept.get("optimization", {})
    kept["optimization"] = {name: search[name] for name in search if name not in _OF_SEARCH}
    return kept


def with_changes(document: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """`optimization.seed=3` sets a field, null removes it. A value that is no JSON is a text.

    Raises click.BadParameter for what is no PATH=VALUE, or leads through what is no object.
    """
    changed: dict[str, Any] = json.loads(json.dumps(document))
    for change in changes:
        path, is_set, text = change.partition("=")
        *parents, last = path.split(".")
        if not is_set or not all([*parents, last]):
            raise click.BadParameter(f"expected PATH=VALUE, got {change!r}", param_hint="--set")
        place = changed
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise click.BadParameter(f"{parent} of {path} is no object", param_hint="--set")
        value = _value(text)
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return changed


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


async def _pause(client: "StewardClient", identifier: str) -> TaskView:
    return await client.pause_task((await find_task(client, identifier)).task_id)


async def _resume(client: "StewardClient", identifier: str) -> TaskView:
    return await client.resume_task((await find_task(client, identifier)).task_id)
