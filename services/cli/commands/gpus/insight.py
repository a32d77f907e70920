"""Commands that ask the scheduler: why, what if, what is free, where, and what was decided."""

from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from uuid import UUID

import click
import msgspec
from msgspec.structs import replace

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES, ExperimentState
from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.scheduler.reasons import REASON_MEANINGS, Reason
from schemas.scheduler.views import AvailabilityView, Explanation, Replay, ReservationView
from services.cli.cluster_options import THRESHOLDS
from services.cli.completion import complete_ids
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import (
    number,
    print_answer,
    print_json,
    print_list,
    print_table,
    table_options,
    wide_option,
)
from services.cli.display.placements import placement_text
from services.cli.display.reason_tables import (
    explanation_text,
    help_lines,
    reason_group_table,
    reason_table,
)
from services.cli.display.tables import print_devices, short
from services.cli.failures import CommandFailed, leave
from services.cli.json_files import read_json
from services.cli.lookup import NamedView, find, find_reservation
from services.cli.options import Target, reading
from services.cli.request_options import node_choice_options, request_options
from shared.gpu.node_selection import selection_lines

if TYPE_CHECKING:
    from schemas.cluster.node_selection import NodeGpuSummary
    from shared.client.http import StewardClient

DIFFERENT_EXIT_CODE: Final = 1

_NOT_RECORDED: Final = (
    "what a cluster's GPUs are granted by is its whole view, which is not recorded;"
    " `gpusteward why ID` says what the choice was made by"
)


every_reason_option = click.option(
    "--all", "every_reason", is_flag=True, help="List every reason, GPU by GPU and node by node."
)


@click.command()
@click.argument("identifier", metavar="ID", shell_complete=complete_ids, required=False)
@click.option("--codes", is_flag=True, help="List all reasons with their meaning.")
@every_reason_option
@reading
@wide_option
def why(target: Target, identifier: str | None, codes: bool, every_reason: bool) -> None:
    """Say why a reservation, an experiment or a task waits, when it starts, and what would help.

    Reasons are gathered by what they are and who holds the GPUs. ID as for `gpusteward show`.
    """
    if codes:
        _print_codes(as_json=target.as_json)
        return
    if identifier is None:
        raise click.UsageError("expected an ID, or --codes")

    async def ask(client: "StewardClient") -> None:
        view = await find(client, identifier)
        waiting = await _reservations_of(client, view)
        for reservation_id in waiting:
            explanation = await client.explain_reservation(reservation_id)
            if target.as_json:
                print_json(explanation)
            else:
                _print_explanation(explanation, every_reason=every_reason)
        starting = [] if target.as_json else starting_lines(await _experiments_of(client, view))
        for line in starting:
            click.echo(line)
        if not waiting and not starting:
            raise CommandFailed(ErrorCode.CONFLICT, _nothing_waits(view))

    target.ask(ask)


@click.command()
@request_options(whole_fleet=True)
@every_reason_option
@reading
@wide_option
def availability(target: Target, request: GpuRequest, every_reason: bool) -> None:
    """Say whether GPUs would be granted now, on which, or why not; reserve nothing.

    --wait waits that long until they would be, unless the fleet can never give them. The exit code
    is 0 only if they would.
    """
    is_waiting = click.get_current_context().get_parameter_source("wait_timeout_seconds")
    seconds = request.wait_timeout_seconds if _is_given(is_waiting) else 0.0
    view = target.ask(lambda client: client.await_availability(request, timeout_seconds=seconds))
    print_availability(view, as_json=target.as_json, every_reason=every_reason)


@click.command()
@click.argument("file", type=click.File("rb"))
@reading
def estimate(target: Target, file: BinaryIO) -> None:
    """Say how many GPUs, and how much memory of each, a task FILE's largest experiment needs.

    `-` is standard input.
    """
    config = msgspec.json.decode(read_json(file), type=dict[str, Any])
    view = target.ask(lambda client: client.estimate(config))
    if target.as_json:
        print_json(view)
    else:
        click.echo(f"Estimated requirements: {view.gpus} GPUs, {view.min_memory_mb} MB each")


@click.command()
@click.option("--gpus", "each_gpu", is_flag=True, help="GPU by GPU instead of node by node.")
@THRESHOLDS[0]
@THRESHOLDS[1]
@reading
@table_options
def cluster(
    target: Target,
    each_gpu: bool,
    utilization_threshold_percent: float,
    memory_threshold_percent: float,
) -> None:
    """List nodes with their idle GPUs, as the choice of a node for Kubernetes sees them."""
    if each_gpu:
        status = target.ask(lambda client: client.cluster_status())
        document: Any = status
        rows = [
            [
                gpu.node_name,
                str(gpu.gpu_index),
                gpu.gpu_model,
                "yes" if gpu.allocatable else "no",
                number(gpu.utilization_percent),
                number(gpu.memory_usage_percent),
                number(gpu.temperature_c),
            ]
            for gpu in status.gpus
        ]
        headings = ["node", "gpu", "name", "allocatable", "util %", "memory %", "temp C"]
        notes = {gpu.node_name: gpu.note for gpu in status.gpus if gpu.note}
    else:
        summaries = target.ask(
            lambda client: client.node_summaries(
                utilization_threshold_percent, memory_threshold_percent
            )
        )
        document = summaries
        has_shares = any(node.total_shares for node in summaries.nodes.values())
        rows = [
            [
                name,
                str(node.idle_gpu_count),
                str(node.allocatable_gpus),
                str(node.total_gpus),
                *([_shares_text(node)] if has_shares else []),
                number(node.avg_utilization_percent, 1),
                number(node.avg_memory_usage_percent, 1),
            ]
            for name, node in summaries.nodes.items()
        ]
        of_shares = ["free shares"] if has_shares else []
        headings = ["node", "idle", "allocatable", "GPUs", *of_shares, "util %", "memory %"]
        notes = {name: node.note for name, node in summaries.nodes.items() if node.note}
    numeric = frozenset(headings) - {"node", "name", "allocatable"}
    table = Table(headings, rows, numeric=numeric, shortened=frozenset({"name"}))
    print_list(document, table, "no node of this choice has a GPU", as_json=target.as_json)
    if not target.as_json:
        for name, note in notes.items():
            click.echo(f"{name}: {note}")


def _shares_text(node: "NodeGpuSummary") -> str:
    return f"{node.free_shares}/{node.total_shares}" if node.total_shares else "-"


@click.command("select-node")
@click.argument("required_gpus", metavar="GPUS", type=click.IntRange(1, 4096))
@node_choice_options
@reading
def select_node(target: Target, required_gpus: int, request: GpuRequest) -> None:
    """Name the node that a deployment with so many GPUs would get now, as a reservation would."""
    request = replace(request, gpus=required_gpus)
    view = target.ask(lambda client: client.select_node_for(request))
    if target.as_json:
        print_json(view)
    else:
        click.echo("\n".join(selection_lines(required_gpus, view)))


@click.command()
@click.argument("identifier", metavar="[RESERVATION]", required=False)
@click.option(
    "--from", "from_id", type=click.IntRange(min=0), metavar="ID", help="Id of the first decision."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@reading
@table_options
def replay(target: Target, identifier: str | None, from_id: int | None, limit: int) -> None:
    """Decide again what the scheduler has decided, and say of each whether it comes out the same.

    With RESERVATION only the decisions about it. The exit code is 0 only if all are the same.
    """

    async def ask(client: "StewardClient") -> Replay:
        reservation_id = None
        if identifier is not None:
            reservation = await find_reservation(client, identifier)
            if reservation.request.cluster is not None:
                raise CommandFailed(ErrorCode.CONFLICT, _NOT_RECORDED)
            reservation_id = reservation.reservation_id
        return await client.replay(from_id=from_id, reservation_id=reservation_id, limit=limit)

    result = target.ask(ask)
    if target.as_json:
        print_json(result)
    else:
        print_replay(result)
    leave(DIFFERENT_EXIT_CODE if result.different else 0)


def _print_explanation(explanation: Explanation, *, every_reason: bool) -> None:
    click.echo(explanation_text(explanation))
    for line in help_lines(explanation):
        click.echo(line)
    _print_reasons(explanation.reasons, every_reason=every_reason)


def print_availability(
    view: AvailabilityView, *, as_json: bool, every_reason: bool = False
) -> None:
    if as_json:
        print_json(view)
    else:
        click.echo(view.message)
        print_devices(view.devices)
        for line in help_lines(view):
            click.echo(line)
        _print_reasons(view.reasons, every_reason=every_reason)
    leave(0 if view.available else EXIT_CODE[ErrorCode.UNSATISFIABLE])


def _print_reasons(reasons: Sequence[Reason], *, every_reason: bool) -> None:
    if reasons:
        print_table(reason_table(reasons) if every_reason else reason_group_table(reasons))


def _print_codes(*, as_json: bool) -> None:
    rows = [[code.value, meaning] for code, meaning in REASON_MEANINGS.items()]
    print_answer(
        REASON_MEANINGS,
        Table(["reason", "means"], rows, wrapped=frozenset({"means"})),
        as_json=as_json,
    )


def print_replay(result: Replay) -> None:
    rows = [
        [
            str(decision.decision_id),
            decision.decided_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
            str(decision.term),
            "same" if decision.same else "DIFFERENT",
            _outcomes_text(decision.recorded),
            UNKNOWN if decision.same else _outcomes_text(decision.replayed),
        ]
        for decision in result.decisions
    ]
    headings = ["id", "decided at (UTC)", "term", "replay", "recorded", "decided again"]
    table = Table(
        headings,
        rows,
        numeric=frozenset({"id", "term"}),
        important=("replay", "recorded", "decided again", "decided at (UTC)"),
        wrapped=frozenset({"recorded", "decided again"}),
    )
    print_table(table)
    since = f" from keyframe {result.keyframe_id} on" if result.keyframe_id is not None else ""
    click.echo(
        f"{result.checked} decisions decided again{since}, {result.different} came out otherwise"
    )
    if result.next_from_id is not None:
        click.echo(f"more: `gpusteward replay --from {result.next_from_id}`")


def _outcomes_text(outcomes: Any) -> str:
    """`grant 0c21…, time_out 77ab…`; what was too much to record comes as counts by kind."""
    if isinstance(outcomes, dict):
        return ", ".join(f"{kind} x{count}" for kind, count in outcomes.items()) or "nothing"
    ended = [f"{outcome['type']} {short(UUID(outcome['reservation_id']))}" for outcome in outcomes]
    return ", ".join(ended) or "nothing"


async def _experiments_of(client: "StewardClient", view: NamedView) -> Sequence[ExperimentView]:
    if isinstance(view, ReservationView):
        return ()
    if isinstance(view, ExperimentView):
        return (view,)
    return await client.experiments(view.task_id)


def starting_lines(experiments: Sequence[ExperimentView]) -> list[str]:
    """Return what keeps experiments that have GPUs from being ready, and what is prepared for
    others.
    """
    starting = [
        f"experiment {experiment.experiment_id}: {experiment.state.value}"
        f" on {placement_text(attempt.cluster) or attempt.executor_id}: {attempt.message}"
        for experiment in experiments
        for attempt in experiment.attempts[-1:]
        if attempt.message and experiment.state not in FINISHED_EXPERIMENT_STATES
    ]
    waiting = [
        f"experiment {experiment.experiment_id}: {experiment.prepared}"
        for experiment in experiments
        if experiment.prepared
    ]
    return [*starting, *waiting]


async def _reservations_of(client: "StewardClient", view: NamedView) -> list[UUID]:
    if isinstance(view, ReservationView):
        return [view.reservation_id]
    return [
        experiment.reservation_id
        for experiment in await _experiments_of(client, view)
        if experiment.reservation_id is not None and experiment.state is ExperimentState.WAITING
    ]


def _nothing_waits(view: NamedView) -> str:
    if isinstance(view, TaskView):
        return f"task {view.task_name} is {view.state.value}; no experiment of it waits for GPUs"
    state = view.state.value
    remark = f": {view.reason}" if view.reason else ""
    return f"it is {state} and does not wait for GPUs{remark}"


def _is_given(source: Any) -> bool:
    return source is not None and source is not click.core.ParameterSource.DEFAULT
