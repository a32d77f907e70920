"""Views of the API as tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import click

from schemas.base import MAX_INTEGER, SHORT_ID_CHARACTERS
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
from schemas.telemetry.readings import Source
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import age, number, settings_text, until
from services.cli.display.placements import placement_text
from shared.benchmarks.levels.level_text import describe_failed_levels

MIN_RANGE: Final = 3
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


def imports_table(imported: Sequence[ImportedView]) -> Table:
    """Return a table of what other platforms measured."""
    rows = [
        [
            short(view.subject_id),
            view.kind.value,
            view.task_name,
            view.namespace,
            str(view.experiments),
            age(view.imported_at),
            age(view.exported_at),
            view.exported_by,
        ]
        for view in imported
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
            short(experiment.experiment_id),
            experiment.task_name or short(experiment.task_id),
            str(experiment.ordinal),
            experiment.state.value,
            settings_text(experiment.parameters),
            number(experiment.objective_score, 4),
            attempts_text(experiment),
            why_waiting(experiment),
        ]
        for experiment in experiments
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
    """Say why nothing is granted on the node; empty if nothing keeps its GPUs.

    That is what keeps the whole node, and how many of its GPUs would not be granted for other
    reasons.
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
            short(reservation.reservation_id),
            reservation.state.value,
            number(reservation.queue_position),
            _gpus_text(reservation),
            placement_text(reservation.cluster)
            or ",".join(reservation.node_ids)
            or reservation.node_id
            or UNKNOWN,
            _indices_text(reservation),
            holder_text(reservation.holder),
            reservation.requester or UNKNOWN,
            reservation.namespace,
            str(reservation.request.priority),
            end_text(reservation),
            age(reservation.requested_at),
        ]
        for reservation in reservations
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
    """Say when it is preempted, its lease ends or it gives up waiting, if nothing happens
    before.
    """
    if reservation.preempting_until is not None:
        return f"preempted in {until(reservation.preempting_until, now)}"
    if reservation.lease_expires_at is not None:
        return f"in {until(reservation.lease_expires_at, now)}"
    if reservation.wait_deadline_at is not None:
        return f"gives up in {until(reservation.wait_deadline_at, now)}"
    return UNKNOWN


def holder_text(holder: str | None) -> str:
    """Return the holder for people; an id in it is shortened as by `short`."""
    return _ID.sub(lambda match: short(UUID(match.group())), holder_name(holder or UNKNOWN))


def _gpus_text(reservation: ReservationView) -> str:
    """`2`, or `2x4` for four nodes with two each."""
    request = reservation.request
    if request.shares is not None:
        return f"{request.shares:.2f}"
    if request.mig_profile is not None:
        return request.mig_profile
    return f"{request.gpus}" if request.nodes == 1 else f"{request.gpus}x{request.nodes}"


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
        f"{run[0]}-{run[-1]}" if len(run) >= MIN_RANGE else ",".join(map(str, run)) for run in runs
    ]
    return ",".join(parts)


def plan_count_text(plan: TaskPlan) -> str:
    """`up to 8 experiments of 32` of a search, `6 experiments of 8, 2 left out` of a grid."""
    count = plan.experiments_at_most or len(plan.experiments)
    of_all = f" of {plan.total}" if plan.total < MAX_INTEGER else ""
    cut = f", {plan.cut} left out" if plan.cut else ""
    return f"{'up to ' if plan.strategy.traits.is_search else ''}{count} experiments{of_all}{cut}"


def plan_table(plan: TaskPlan) -> Table:
    """Return a table of the experiments to which a task file expands."""
    rows = [
        [
            str(experiment.ordinal),
            settings_text(experiment.parameters),
            f"{experiment.engine.runtime.value}/{experiment.engine.engine}",
            str(experiment.request.gpus),
            number(experiment.request.min_memory_mb),
            experiment.memory_source.value.replace("_", " "),
        ]
        for experiment in plan.experiments
    ]
    headings = ["#", "parameters", "engine", "GPUs", "memory MB", "memory by"]
    return Table(
        headings,
        rows,
        numeric=frozenset({"#", "GPUs", "memory MB"}),
        wrapped=frozenset({"parameters"}),
    )


def attempts_text(experiment: ExperimentView) -> str:
    """Say how often it was started, and how often that was cut off."""
    count = str(len(experiment.attempts))
    cut = experiment.interrupted_attempts
    return f"{count} ({cut} interrupted)" if cut else count


def why_waiting(experiment: ExperimentView) -> str:
    """Return one short remark: the failure, the loads not served, else why it waits."""
    if experiment.failure is not None:
        return f"{experiment.failure.kind.value}: {experiment.failure.message}"
    if experiment.metrics is not None and experiment.metrics.failed_levels:
        return describe_failed_levels(experiment.metrics.failed_levels, 1)
    return digest(experiment.waiting_reasons) or experiment.reason


def memory_text(gpu: GpuMemoryTrend) -> str:
    """Say how its memory changed in the minute before a failure."""
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
    """Print a line for each device; simulated ones are marked."""
    for device in devices:
        mark = "  simulated" if device.simulated else ""
        part = f"  {share_text(device.share)}" if device.share is not None else ""
        click.echo(f"{device.node_id}/{device.index}  {device.name}  {device.uuid}{part}{mark}")


def share_text(share: DeviceShare) -> str:
    """Say how much of a device it is, and which part of that is enforced."""
    size_text = f"{share.shares:.2f} of it" if share.shares is not None else "a part of it"
    if share.reserved_memory_mb is not None:
        size_text += f", {share.reserved_memory_mb} MB"
    bounded = {"compute": share.compute_percent, "memory": share.memory_mb}
    enforced = [name for name, bound in bounded.items() if bound is not None]
    by = f" by {share.kind.value.upper()}" if enforced else ""
    return f"{size_text} ({' and '.join(enforced) or 'nothing'} enforced{by})"
