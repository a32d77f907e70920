"""Commands that only look."""

from typing import TYPE_CHECKING, Any

import click
from msgspec import convert
from msgspec.structs import replace

from schemas.gateway.views import GpuAllocMap, GpuView
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.results.measurements import GpuMemoryTrend
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.reason_groups import digest
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import ReservationView
from schemas.task.benchmark import BenchmarkResult
from services.cli.completion import complete_ids, complete_nodes
from services.cli.display.allocation_map import map_table
from services.cli.display.gpu_tables import gpu_table
from services.cli.display.output import (
    print_json,
    print_list,
    print_table,
    table_options,
    wide_option,
)
from services.cli.display.tables import (
    experiment_table,
    imports_table,
    memory_text,
    node_table,
    reservation_table,
    short,
    task_table,
)
from services.cli.lookup import find, find_task
from services.cli.options import (
    Target,
    namespace_option,
    node_name,
    node_option,
    reading,
    state_option,
)

if TYPE_CHECKING:
    from shared.client.http import StewardClient

NO_NODE = "no node has reported yet; `gpusteward agent` joins a machine's GPUs"
AT_LEAST_ONE = click.IntRange(min=1)
archived_option = click.option(
    "--archived", is_flag=True, help="Also list the archive, of tasks that finished long ago."
)


@click.command()
@state_option(TaskState)
@namespace_option
@click.option(
    "--limit", type=AT_LEAST_ONE, help="Maximum number of rows, newest first [default: all]."
)
@reading
@archived_option
@click.option("--imported", is_flag=True, help="List tasks imported from other platforms instead.")
@table_options
def tasks(
    target: Target,
    states: tuple[TaskState, ...],
    namespace: str | None,
    limit: int | None,
    archived: bool,
    imported: bool,
) -> None:
    """List tasks, newest first."""
    if imported:
        imported_views = target.ask(lambda client: client.imports())
        print_list(
            {"imported": imported_views},
            imports_table(imported_views),
            "nothing of another platform is here; `gpusteward import FILE` brings it",
            as_json=target.as_json,
        )
        return
    views = target.ask(
        lambda client: client.tasks(
            states=states, namespace=namespace, limit=limit, archived=archived
        )
    )
    is_filtered = bool(states or namespace)
    print_list(
        {"tasks": views},
        task_table(views),
        none_text("task", "`gpusteward submit FILE` hands one in", is_filtered=is_filtered),
        as_json=target.as_json,
    )


@click.command()
@click.option("--task", metavar="ID", help="Only those of this task, by id or name.")
@state_option(ExperimentState)
@namespace_option
@node_option
@click.option(
    "--limit", type=AT_LEAST_ONE, help="Maximum number of rows, newest tasks first [default: all]."
)
@reading
@archived_option
@table_options
def experiments(
    target: Target,
    task: str | None,
    states: tuple[ExperimentState, ...],
    namespace: str | None,
    node_id: str | None,
    limit: int | None,
    archived: bool,
) -> None:
    """List experiments; --node keeps those with an attempt on it."""

    async def ask(client: "StewardClient") -> tuple[ExperimentView, ...]:
        task_id = None if task is None else (await find_task(client, task)).task_id
        return await client.experiments(
            task_id,
            states=states,
            namespace=namespace,
            node_id=node_id,
            limit=limit,
            archived=archived,
        )

    views = target.ask(ask)
    is_filtered = bool(task or states or namespace or node_id)
    print_list(
        {"experiments": views},
        experiment_table(views),
        none_text("experiment", "tasks become experiments", is_filtered=is_filtered),
        as_json=target.as_json,
    )


@click.command()
@state_option(DeviceState)
@namespace_option
@node_option
@click.option(
    "--pod",
    metavar="[NAMESPACE/]POD",
    help="Only GPUs that Kubernetes gave to this pod; NAMESPACE/ for every pod in it.",
)
@click.option(
    "--fresh", is_flag=True, help="Read the nodes again instead of showing the last reading."
)
@reading
@table_options
def gpus(
    target: Target,
    states: tuple[DeviceState, ...],
    namespace: str | None,
    node_id: str | None,
    pod: str | None,
    fresh: bool,
) -> None:
    """List GPUs with their readings and who holds them."""
    view = target.ask(lambda client: client.gpus(node_id=node_id, use_cache=not fresh))
    shown_gpus = tuple(
        gpu
        for gpu in view.gpus
        if (not states or gpu.state in states) and namespace in {None, gpu.namespace}
        if pod is None or is_of_pod(gpu, pod)
    )
    if target.as_json:
        print_json(replace(view, gpus=shown_gpus))
    elif shown_gpus:
        print_table(gpu_table(shown_gpus))
    elif view.gpus:
        click.echo(f"none of {len(view.gpus)} GPUs matches; `gpusteward gpus` lists them")
    elif node_id is not None:
        click.echo(f"no GPU is known on {node_id}; `gpusteward nodes` lists the nodes")
    else:
        click.echo(
            "no node reports a GPU; `gpusteward up --simulate` makes up a fleet to try things"
        )


def is_of_pod(gpu: GpuView, name: str) -> bool:
    """Return whether a pod of this name has the GPU; `name` is POD, NAMESPACE/POD or
    NAMESPACE/.
    """
    namespace, _, pod = name.rpartition("/")
    return any(
        namespace in {"", gpu_pod.namespace} and pod in {"", gpu_pod.pod}
        for gpu_pod in gpu.pods or ()
    )


def none_text(noun: str, way_on: str, *, is_filtered: bool) -> str:
    """Return why a list is empty: nothing fits the options given, or nothing is there at all."""
    if is_filtered:
        return f"no {noun} matches these options; `gpusteward {noun}s` lists all"
    return f"there is no {noun} yet; {way_on}"


@click.command()
@reading
@table_options
def nodes(target: Target) -> None:
    """List nodes with what runs on them."""
    view = target.ask(lambda client: client.nodes())
    print_list(view, node_table(view.nodes), NO_NODE, as_json=target.as_json)


@click.command("map")
@click.argument(
    "node_id", metavar="[NODE]", required=False, callback=node_name, shell_complete=complete_nodes
)
@reading
@table_options
def map_command(target: Target, node_id: str | None) -> None:
    """Show how much of each GPU is held, and by whom; --json is by node."""

    async def ask(client: "StewardClient") -> dict[str, GpuAllocMap]:
        node_ids = (
            (node_id,) if node_id else [node.node_id for node in (await client.nodes()).nodes]
        )
        return {node_name: await client.allocation_map(node_name) for node_name in node_ids}

    maps = target.ask(ask)
    nodes = [node for allocation in maps.values() for node in allocation.nodes]
    print_list({"nodes": maps}, map_table(nodes), NO_NODE, as_json=target.as_json)


@click.command()
@state_option(ReservationState)
@namespace_option
@node_option
@click.option(
    "--limit", type=AT_LEAST_ONE, help="Maximum number of rows, newest first [default: all]."
)
@reading
@table_options
def reservations(
    target: Target,
    states: tuple[ReservationState, ...],
    namespace: str | None,
    node_id: str | None,
    limit: int | None,
) -> None:
    """List reservations, newest first."""
    views = target.ask(
        lambda client: client.reservations(
            states=states, namespace=namespace, node_id=node_id, limit=limit
        )
    )
    is_filtered = bool(states or namespace or node_id)
    print_list(
        {"reservations": views},
        reservation_table(views),
        none_text("reservation", "`gpusteward reserve` makes one", is_filtered=is_filtered),
        as_json=target.as_json,
    )


@click.command()
@click.argument("identifier", metavar="ID", shell_complete=complete_ids)
@reading
@wide_option
def show(target: Target, identifier: str) -> None:
    """Show a task, an experiment or a reservation.

    ID is a name (a task's, TASK#3 for its third experiment, a reservation's holder), a whole id, or
    its beginning or end if only one has it.
    """

    async def ask(client: "StewardClient") -> None:
        view = await find(client, identifier)
        if isinstance(view, ExperimentView) and target.as_json:
            print_json(await client.experiment_document(view.experiment_id))
        elif target.as_json:
            print_json(view)
        elif isinstance(view, TaskView):
            _print_task(view, await client.experiments(view.task_id), client.address.url)
        elif isinstance(view, ExperimentView):
            _print_experiment(view)
        else:
            _print_reservation(view)
        if isinstance(view, ExperimentView) and not target.as_json:
            _print_joined(await client.experiment_document(view.experiment_id))

    target.ask(ask)


def _print_joined(document: dict[str, Any]) -> None:
    """Print what the gateway joins to one experiment: its levels, memory before a failure."""
    from services.cli.display.bench_results import level_table, remarks

    if document.get("image_digest"):
        click.echo(f"image {document['image_digest']}")
    trends = convert(document.get("failure_memory", ()), tuple[GpuMemoryTrend, ...])
    if trends:
        click.echo("  memory in the minute before it failed:")
    for trend in trends:
        click.echo(f"    {memory_text(trend)}")
    if document.get("benchmark"):
        result = convert(document["benchmark"], BenchmarkResult)
        click.echo()
        print_table(level_table(result))
        for remark in remarks(result):
            click.echo(remark)


def _print_task(task: TaskView, experiments: tuple[ExperimentView, ...], url: str) -> None:
    from services.cli.display.task_outcome import outcome_lines
    from services.cli.display.task_results import print_results

    click.echo(f"task {task.task_id}  {task.task_name}  {task.state.value}")
    if task.imported_at is not None:
        click.echo(f"imported {task.imported_at:%Y-%m-%d %H:%M} UTC: measured elsewhere")
    for note in (*task.notes, *((task.reason,) if task.reason else ())):
        click.echo(note)
    print_results(experiments, task.objective, task.trust)
    for line in outcome_lines(task, experiments, url):
        click.echo(line)


def _print_experiment(experiment: ExperimentView) -> None:
    from services.cli.display.task_results import WHOLE_LOG_TAIL, origin_lines, print_results

    print_table(experiment_table([experiment]))
    for line in origin_lines(experiment):
        click.echo(line)
    print_results([experiment], None, log_lines=WHOLE_LOG_TAIL)


def _print_reservation(reservation: ReservationView) -> None:
    print_table(reservation_table([reservation]))
    why = reservation.summary or digest(reservation.reasons)
    for line in filter(None, (reservation.reason, why)):
        click.echo(line)
    if reservation.reasons:
        click.echo(f"`gpusteward why {short(reservation.reservation_id)}` has its reasons")
    for device in reservation.devices:
        mark = "  simulated" if device.simulated else ""
        click.echo(
            f"{short(reservation.reservation_id)}  {device.node_id}/{device.index}"
            f"  {device.name}  {device.uuid}{mark}"
        )
