"""Views of the API as tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import click

from schemas.base import LARGEST_INTEGER
from schemas.gateway.archives import ImportedView
from schemas.gateway.views import NodeView
from schemas.gpus.device_grant import DeviceGrant, DeviceShare
from schemas.orchestrator.experiments import FINISHED_TASK_STATES
from schemas.orchestrator.views import ExperimentView, TaskPlan, TaskView
from schemas.results.measurements import GpuMemoryTrend
from schemas.scheduler.devices import CordonCause, CordonState
from schemas.scheduler.reason_groups import digest
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import holder_name
from schemas.scheduler.views import ReservationView
from schemas.task.task_file import Strategy
from schemas.telemetry.readings import Source
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import age, number, settings_text, until
from services.cli.display.placements import placement_text
from shared.benchmarks.levels.level_text import failed_levels_text

SHORTEST_RANGE: Final = 3
SHORT_ID_CHARACTERS: Final = 12
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def short(identifier: UUID | None) -> str:
    """An id's last group: in time-ordered ids the part that differs."""
    return str(identifier)[-SHORT_ID_CHARACTERS:] if identifier is not None else UNKNOWN


def task_table(tasks: Sequence[TaskView]) -> Table:
    """Tasks as they come."""
    rows = [
        [
            short(task.task_id),
            task.task_name,
            task.requester or UNKNOWN,
            task.namespace,
            task.state.value,
            _progress(task),
            task.objective.value,
            short(task.best_experiment_id),
            age(task.created_at),
        ]
        for task in tasks
    ]
    headings = ["id", "name", "requester", "namespace", "state", "done", "objective", "best", "age"]
    return Table(
        headings,
        rows,
        numeric=frozenset({"done", "age"}),
        important=("name", "state", "done", "age", "best", "requester", "namespace"),
        shortened=frozenset({"name", "requester"}),
    )


def imported_table(imported: Sequence[ImportedView]) -> Table:
    """What other platforms measured."""
    rows = [
        [
            short(each.subject_id),
            each.kind.value,
            each.task_name,
            each.namespace,
            str(each.experiments),
            age(each.imported_at),
            age(each.exported_at),
            each.exported_by,
        ]
        for each in imported
    ]
    headings = ["id", "kind", "name", "namespace", "experiments", "imported", "exported", "by"]
    return Table(
        headings,
        rows,
        numeric=frozenset({"experiments", "imported", "exported"}),
        important=("name", "kind", "experiments", "imported"),
        shortened=frozenset({"name"}),
    )


def experiment_table(experiments: Sequence[ExperimentView]) -> Table:
    """Experiments as they come."""
    rows = [
        [
            short(each.experiment_id),
            each.task_name or short(each.task_id),
            str(each.ordinal),
            each.state.value,
            settings_text(each.parameters),
            number(each.objective_score, 4),
            attempts_text(each),
            why_waiting(each),
        ]
        for each in experiments
    ]
    headings = ["id", "task", "#", "state", "parameters", "score", "attempts", "remark"]
    return Table(
        headings,
        rows,
        numeric=frozenset({"#", "score"}),
        important=("#", "task", "state", "score", "parameters", "remark"),
        shortened=frozenset({"task", "parameters", "remark"}),
    )


def node_table(nodes: Sequence[NodeView]) -> Table:
    """Nodes with what their agents offer."""
    rows = [
        [
            node.node_id,
            node.source.value,
            "yes" if node.fresh else "no",
            f"{node.gpus_free}/{node.gpus_total}",
            number(node.host.cpu_count if node.host else None),
            (node.host.driver_version if node.host else None) or UNKNOWN,
            ", ".join(sorted({engine for offer in node.runtimes for engine in offer.engines}))
            or UNKNOWN,
            age(node.last_seen_at),
            labels_text(node.labels) or UNKNOWN,
            node_reason(node) or UNKNOWN,
        ]
        for node in nodes
    ]
    headings = [
        *("node", "source", "fresh", "free GPUs", "CPUs", "driver", "engines", "seen", "labels"),
        "reason",
    ]
    return Table(
        headings,
        rows,
        numeric=frozenset({"free GPUs", "CPUs", "seen"}),
        important=("free GPUs", "fresh", "source", "reason", "engines", "seen"),
        shortened=frozenset({"engines", "labels", "reason"}),
        noted="reason",
        notes=[f"{node.node_id}: {why}" for node in nodes if (why := node_reason(node))],
    )


def labels_text(labels: Mapping[str, str]) -> str:
    """`disk=nvme zone=a`."""
    return " ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def node_reason(node: NodeView) -> str:
    """What keeps the whole node, and how many of its GPUs would not be granted for which other
    reasons; empty if nothing keeps them.
    """
    counts = [
        f"{count} {code.value.replace('_', ' ')}"
        for code, count in node.reasons.items()
        if code is not ReasonCode.NOT_ADMITTED
    ]
    new = [] if node.admitted else [f"new, type `gpusteward node admit {node.node_id}`"]
    cordoned = [cordon_text(node.cordon)] if node.cordon is not None else []
    who = "the cluster's service" if node.source is Source.KUBERNETES else "its agent"
    silent = [] if node.fresh else [f"no recent reading: {who} is silent"]
    none = []
    if node.fresh and node.source is Source.NONE and not node.gpus_total:
        none = ["no GPU found there, `gpusteward doctor` on it says why"]
    return "; ".join([*new, *cordoned, *silent, *none, *counts])


def cordon_text(cordon: CordonState, now: datetime | None = None) -> str:
    """`hot (by alice, 5m ago), until it is uncordoned`; a loss is its own reason."""
    by = {CordonCause.OPERATOR: cordon.set_by or "an operator", CordonCause.FAULT: "a fault"}
    who = f"by {by[cordon.cause]}" if cordon.cause in by else ""
    since = f"{age(cordon.since_at, now)} ago" if cordon.since_at is not None else ""
    details = ", ".join(filter(None, (who, since)))
    reason = cordon.reason or "cordoned"
    return f"{reason}{f' ({details})' if details else ''}, until {cordon.until}"


def reservation_table(reservations: Sequence[ReservationView]) -> Table:
    """Reservations as they come."""
    rows = [
        [
            short(each.reservation_id),
            each.state.value,
            number(each.queue_position),
            _gpus_text(each),
            placement_text(each.cluster) or ",".join(each.node_ids) or each.node_id or UNKNOWN,
            _indices_text(each),
            holder_text(each.holder),
            each.requester or UNKNOWN,
            each.namespace,
            str(each.request.priority),
            end_text(each),
            age(each.requested_at),
        ]
        for each in reservations
    ]
    headings = [
        *("id", "state", "position", "GPUs", "node", "indices", "holder", "requester"),
        *("namespace", "priority", "ends", "age"),
    ]
    return Table(
        headings,
        rows,
        numeric=frozenset({"position", "GPUs", "indices", "priority", "age"}),
        important=(
            *("state", "GPUs", "holder", "node", "ends", "indices", "priority", "position"),
            *("age", "requester", "namespace"),
        ),
        shortened=frozenset({"node", "holder", "requester"}),
    )


def end_text(reservation: ReservationView, now: datetime | None = None) -> str:
    """When it ends unless something happens: a renewal, a grant; or what it was announced."""
    if reservation.preempting_until is not None:
        return f"preempted in {until(reservation.preempting_until, now)}"
    if reservation.lease_expires_at is not None:
        return f"in {until(reservation.lease_expires_at, now)}"
    if reservation.wait_deadline_at is not None:
        return f"gives up in {until(reservation.wait_deadline_at, now)}"
    return UNKNOWN


def holder_text(holder: str | None) -> str:
    """Who holds it, for people; an id in it as `short` has it."""
    return _ID.sub(lambda found: short(UUID(found.group())), holder_name(holder or UNKNOWN))


def _gpus_text(reservation: ReservationView) -> str:
    """`2`, or `2x4` for four nodes with two each."""
    asked = reservation.request
    if asked.shares is not None:
        return f"{asked.shares:.2f}"
    if asked.mig_profile is not None:
        return asked.mig_profile
    return f"{asked.gpus}" if asked.nodes == 1 else f"{asked.gpus}x{asked.nodes}"


def _indices_text(reservation: ReservationView) -> str:
    """Return the GPUs of each node, nodes in the order of their column: `0,1 4-7`."""
    by_node: dict[str, list[int]] = {}
    for device in reservation.devices:
        by_node.setdefault(device.node_id, []).append(device.index)
    return " ".join(map(numbers_text, by_node.values())) or UNKNOWN


def numbers_text(numbers: Iterable[int]) -> str:
    """Return `0,1,4-7`: three and more in a row as a range."""
    runs: list[list[int]] = []
    for index in sorted(set(numbers)):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [
        f"{run[0]}-{run[-1]}" if len(run) >= SHORTEST_RANGE else ",".join(map(str, run))
        for run in runs
    ]
    return ",".join(parts)


def plan_count_text(plan: TaskPlan) -> str:
    """`up to 8 experiments of 32` of a search, `6 experiments of 8, 2 left out` of a grid."""
    is_search = plan.strategy is not Strategy.GRID_SEARCH
    count = plan.experiments_at_most or len(plan.experiments)
    of_all = f" of {plan.total}" if plan.total < LARGEST_INTEGER else ""
    cut = f", {plan.cut} left out" if plan.cut else ""
    return f"{'up to ' if is_search else ''}{count} experiments{of_all}{cut}"


def plan_table(plan: TaskPlan) -> Table:
    """What a task file expands to."""
    rows = [
        [
            str(each.ordinal),
            settings_text(each.parameters),
            f"{each.engine.runtime.value}/{each.engine.engine}",
            str(each.request.gpus),
            number(each.request.min_memory_mb),
            each.memory_source.value.replace("_", " "),
        ]
        for each in plan.experiments
    ]
    headings = ["#", "parameters", "engine", "GPUs", "memory MB", "memory by"]
    return Table(
        headings,
        rows,
        numeric=frozenset({"#", "GPUs", "memory MB"}),
        wrapped=frozenset({"parameters"}),
    )


def attempts_text(experiment: ExperimentView) -> str:
    """How often it was started, and how often that was cut off."""
    count = str(len(experiment.attempts))
    cut = experiment.interrupted_attempts
    return f"{count} ({cut} interrupted)" if cut else count


def why_waiting(experiment: ExperimentView) -> str:
    """One short remark: the failure, the loads not served, else why it waits."""
    if experiment.failure is not None:
        return f"{experiment.failure.kind.value}: {experiment.failure.message}"
    if experiment.metrics is not None and experiment.metrics.failed_levels:
        return failed_levels_text(experiment.metrics.failed_levels, 1)
    return digest(experiment.waiting_reasons) or experiment.reason


def memory_text(gpu: GpuMemoryTrend) -> str:
    """What its memory did in the minute before a failure."""
    total = UNKNOWN if gpu.total_mb is None else str(gpu.total_mb)
    simulated = ", simulated" if gpu.simulated else ""
    return (
        f"{gpu.node_id}/{gpu.index} {'growing' if gpu.is_growing else 'flat'}:"
        f" {gpu.start_mb}, at most {gpu.peak_mb}, at last {gpu.last_mb} of {total} MB{simulated}"
    )


def source_text(simulated: bool, fresh: bool) -> str:
    """`simulated` wherever it is, `stale` where readings are old."""
    if simulated:
        return "simulated" if fresh else "simulated, stale"
    return "measured" if fresh else "stale"


def _progress(task: TaskView) -> str:
    by_state = task.experiments_by_state
    done = sum(by_state.get(state, 0) for state in ("succeeded", "failed", "cancelled"))
    is_over = task.state in FINISHED_TASK_STATES
    expected = 0 if is_over else task.experiments_at_most
    return f"{done}/{max(expected, task.experiments_total)}"


def print_devices(devices: Sequence[DeviceGrant]) -> None:
    """One line per device, those simulated marked."""
    for device in devices:
        mark = "  simulated" if device.simulated else ""
        part = f"  {share_text(device.share)}" if device.share is not None else ""
        click.echo(f"{device.node_id}/{device.index}  {device.name}  {device.uuid}{part}{mark}")


def share_text(share: DeviceShare) -> str:
    """How much of a device, and what of it is enforced."""
    held = f"{share.shares:.2f} of it" if share.shares is not None else "a part of it"
    if share.reserved_memory_mb is not None:
        held += f", {share.reserved_memory_mb} MB"
    bounded = {"compute": share.compute_percent, "memory": share.memory_mb}
    enforced = [name for name, bound in bounded.items() if bound is not None]
    by = f" by {share.kind.value.upper()}" if enforced else ""
    return f"{held} ({' and '.join(enforced) or 'nothing'} enforced{by})"
