"""Compares three ledgers of one moment: what is reserved, what runs, what is physically used."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.scheduler.drifts import DriftAction, DriftKind
from services.scheduler.domain.drift.lifecycle import Comparison, DriftKey, Finding, Limits

NAME_LENGTH: Final = 15  # the kernel cuts command names

_BY_READING: Final = (DriftKind.SQUATTER, DriftKind.UNDERUSE)

HeldByNode = defaultdict[NodeId, dict[UUID, "Holding"]]


class Holding(Struct, frozen=True, kw_only=True):
    """A reserved device. `quarantined`: its holder is over, but not confirmed stopped.

    Of a cluster no device is known: its executor alone reports what runs there.
    """

    reservation_id: UUID
    node_id: NodeId
    device_uuid: DeviceUuid | None
    epoch: int
    lease_ttl_seconds: float
    quarantined: bool = False


class Workload(Struct, frozen=True, kw_only=True):
    """What runs under a reservation, by its executor. `is_ours`: started by this installation.

    `node_id` is the node that its label names: several may share a host, and see each other's.
    """

    reservation_id: UUID
    epoch: int | None = None
    pids: tuple[int, ...] = ()
    is_ours: bool = True
    node_id: NodeId | None = None


class Process(Struct, frozen=True, kw_only=True, gc=False):
    """A process with memory on a device, by telemetry."""

    pid: int
    name: str | None = None
    memory_used_mb: int | None = None
    reservation_id: UUID | None = None


class DeviceUse(Struct, frozen=True, kw_only=True):
    """A device's physical use: `processes` now, the highest utilization since the last comparison.

    Only readings count that may be decided on; what they lack is None.
    """

    uuid: DeviceUuid
    name: str
    is_read: bool = True
    processes: tuple[Process, ...] | None = None
    utilization_percent: float | None = None


class NodeUse(Struct, frozen=True, kw_only=True):
    """What a node reports. `workloads` None: its executor did not answer.

    `silent_seconds`: since its agent's last message; None before that is known. `was_stopped`: the
    agent has reported that it stops. `in_pods`: reservations of which pods of this cluster have
    GPUs, whatever made them; None if its view may not be used. `clock_ahead_seconds`: of its clock
    beside ours, None if unknown.
    """

    node_id: NodeId
    silent_seconds: float | None = 0.0
    workloads: tuple[Workload, ...] | None = None
    devices: tuple[DeviceUse, ...] = ()
    was_stopped: bool = False
    in_pods: frozenset[UUID] | None = frozenset()
    clock_ahead_seconds: float | None = None


def foreign_processes(
    processes: Iterable[Process] | None, holders: AbstractSet[UUID], system: frozenset[str]
) -> tuple[Process, ...]:
    """The processes on a device that its holders do not explain.

    One without a label is a holder's, if there is one: not every environment can be read. A
    source that cannot list processes shows none.
    """
    return tuple(
        process
        for process in processes or ()
        if (not holders or process.reservation_id not in {None, *holders})
        and (process.name or "")[:NAME_LENGTH] not in system
    )


def measure_unlisted_mb(
    processes: Iterable[Process] | None, used_mb: int | None, idle_mb: int
) -> int | None:
    """Return the memory in use on a device without a holder that its unlisted processes may have.

    None where its processes are listed, or it uses no more than an idle GPU does (`idle_mb`). Where
    the memory in use is unknown too, another reason keeps the device.
    """
    if processes is not None or used_mb is None or used_mb <= idle_mb:
        return None
    return used_mb


def system_names(names: Iterable[str]) -> frozenset[str]:
    """Process names, cut as the kernel cuts them."""
    return frozenset(name.strip()[:NAME_LENGTH] for name in names if name.strip())


def compare_ledgers(
    holdings: Sequence[Holding],
    nodes: Sequence[NodeUse],
    ledger_ids: frozenset[UUID],
    limits: Limits,
) -> Comparison:
    """Compare the ledgers; return every disagreement of this moment.

    `ledger_ids` are the reservations named by a label that the ledger has or had.
    """
    by_device: dict[tuple[NodeId, DeviceUuid | None], list[Holding]] = defaultdict(list)
    by_node: HeldByNode = defaultdict(dict)
    for holding in holdings:
        by_device[holding.node_id, holding.device_uuid].append(holding)
        by_node[holding.node_id][holding.reservation_id] = holding
    findings: list[Finding] = []
    blind: set[DriftKey] = set()
    for node in nodes:
        findings += _of_agent(node, limits)
        blind |= {(kind, node.node_id, None, None) for kind in _unknown_of_agent(node)}
        if node.workloads is None:
            blind.add((DriftKind.ORPHAN_WORKLOAD, node.node_id, None, None))
        left_behind = ledger_ids - by_node[node.node_id].keys()
        findings += _orphans(node, by_node, ledger_ids)
        for device in node.devices:
            if not device.is_read:
                blind |= {(k, node.node_id, device.uuid, None) for k in _BY_READING}
                continue
            device_holdings = by_device.get((node.node_id, device.uuid), [])
            if device_holdings and device.utilization_percent is None:
                blind.add((DriftKind.UNDERUSE, node.node_id, device.uuid, None))
            findings += _squatters(node, device, device_holdings, left_behind, limits)
            findings += _underuse(node, device, device_holdings, limits)
    ghosts, unseen = _ghosts(holdings, {node.node_id: node for node in nodes}, limits)
    return Comparison(findings=(*findings, *ghosts), blind=frozenset(blind | unseen))


def _of_agent(node: NodeUse, limits: Limits) -> Iterator[Finding]:
    """Return what is wrong with a node's agent, or its clock, by the samples that it sends."""
    if node.silent_seconds is not None and node.silent_seconds > limits.stale_agent_seconds:
        yield Finding(
            kind=DriftKind.STALE_AGENT,
            node_id=node.node_id,
            action=DriftAction.STOP_GRANTING,
            detail=f"its telemetry agent {'has stopped' if node.was_stopped else 'is silent'}",
        )
    ahead_seconds = node.clock_ahead_seconds
    if ahead_seconds is not None and abs(ahead_seconds) > limits.clock_skew_seconds:
        # By the minute, so that a clock that stays as it is stays the same finding.
        minutes = max(1, round(abs(ahead_seconds) / 60))
        direction = "ahead of" if ahead_seconds > 0 else "behind"
        yield Finding(
            kind=DriftKind.CLOCK_SKEW,
            node_id=node.node_id,
            action=DriftAction.NONE,
            detail=f"its clock is about {minutes} min {direction} the scheduler's: readings and "
            "times of what ran there are off by as much",
        )


def _unknown_of_agent(node: NodeUse) -> Iterator[DriftKind]:
    if node.silent_seconds is None:
        yield DriftKind.STALE_AGENT
    if node.clock_ahead_seconds is None:
        yield DriftKind.CLOCK_SKEW


def _orphans(node: NodeUse, by_node: HeldByNode, ledger_ids: frozenset[UUID]) -> Iterator[Finding]:
    pids, epochs = _find_labelled(node, by_node, ledger_ids)
    for reservation_id in sorted(pids):
        holding = by_node[node.node_id].get(reservation_id)
        epoch = epochs.get(reservation_id)
        if holding is None:
            why = "runs here under a reservation that holds nothing on this node"
        elif holding.quarantined:
            why = "still runs here though its reservation is over"
        elif epoch is not None and epoch < holding.epoch:
            why = f"runs here under epoch {epoch}, its reservation has {holding.epoch}"
        else:
            continue
        yield Finding(
            kind=DriftKind.ORPHAN_WORKLOAD,
            node_id=node.node_id,
            reservation_id=reservation_id,
            action=DriftAction.FENCE,
            detail=why,
            pids=tuple(sorted(pids[reservation_id])),
        )


def _find_labelled(
    node: NodeUse, by_node: HeldByNode, ledger_ids: frozenset[UUID]
) -> tuple[dict[UUID, set[int]], dict[UUID, int]]:
    """Return which reservation runs on a node by its executor and by telemetry, and the epochs.

    Labels that name another node on which the reservation holds something are left out.
    """
    pids: defaultdict[UUID, set[int]] = defaultdict(set)
    epochs: dict[UUID, int] = {}
    for workload in node.workloads or ():
        node_id = workload.node_id or node.node_id
        if node_id != node.node_id and workload.reservation_id in by_node[node_id]:
            continue
        if workload.is_ours or workload.reservation_id in ledger_ids:
            pids[workload.reservation_id].update(workload.pids)
            if workload.epoch is not None:
                epochs[workload.reservation_id] = workload.epoch
    read = (device.processes or () for device in node.devices if device.is_read)
    for process in chain.from_iterable(read):
        if process.reservation_id is not None and process.reservation_id in ledger_ids:
            pids[process.reservation_id].add(process.pid)
    return pids, epochs


def _squatters(
    node: NodeUse,
    device: DeviceUse,
    holdings: Sequence[Holding],
    left_behind: frozenset[UUID],
    limits: Limits,
) -> Iterator[Finding]:
    holders = {holding.reservation_id for holding in holdings}
    foreign = [
        process
        for process in foreign_processes(device.processes, holders, limits.system_processes)
        if process.reservation_id not in left_behind  # reported as orphans
    ]
    if not foreign:
        return
    used = sum(process.memory_used_mb or 0 for process in foreign)
    names = ", ".join(sorted({process.name for process in foreign if process.name}))
    yield Finding(
        kind=DriftKind.SQUATTER,
        node_id=node.node_id,
        device_uuid=device.uuid,
        action=DriftAction.AVOID,
        detail=f"{names or 'a process'} on {device.name} with {used} MB, under no reservation",
        pids=tuple(sorted(process.pid for process in foreign)),
    )


def _underuse(
    node: NodeUse, device: DeviceUse, holdings: Sequence[Holding], limits: Limits
) -> Iterator[Finding]:
    """Yield the same finding for all holders that share a device: the use of each is unknown."""
    used = device.utilization_percent
    if used is None or used >= limits.idle_percent:
        return
    for holding in holdings:
        if not holding.quarantined:
            yield Finding(
                kind=DriftKind.UNDERUSE,
                node_id=node.node_id,
                device_uuid=device.uuid,
                reservation_id=holding.reservation_id,
                action=DriftAction.NONE,
                detail=f"{device.name} is held and stays below {limits.idle_percent:g} %"
                " utilization",
            )


def _ghosts(
    holdings: Sequence[Holding], nodes: Mapping[NodeId, NodeUse], limits: Limits
) -> tuple[list[Finding], set[DriftKey]]:
    """Reservations under which nothing runs anywhere, and those for which that is unknown."""
    parts: defaultdict[UUID, list[Holding]] = defaultdict(list)
    for holding in holdings:
        parts[holding.reservation_id].append(holding)
    findings: list[Finding] = []
    blind: set[DriftKey] = set()
    for reservation_id, held_parts in parts.items():
        if any(part.quarantined for part in held_parts):
            continue
        in_use = [_is_in_use(part, nodes.get(part.node_id), limits) for part in held_parts]
        node_id = min(part.node_id for part in held_parts)
        if not any(in_use) and None in in_use:
            blind.add((DriftKind.GHOST_RESERVATION, node_id, None, reservation_id))
        elif not any(in_use):
            findings.append(
                Finding(
                    kind=DriftKind.GHOST_RESERVATION,
                    node_id=node_id,
                    reservation_id=reservation_id,
                    action=DriftAction.RELEASE,
                    detail=f"nothing runs under it on its {len(held_parts)} GPUs"
                    if held_parts[0].device_uuid is not None
                    else f"nothing runs under it in cluster {node_id}",
                )
            )
    return findings, blind


def _is_in_use(holding: Holding, node: NodeUse | None, limits: Limits) -> bool | None:
    """Return True if anything of the holder runs on a device; None if unknown."""
    if node is None or node.workloads is None:
        return None
    if any(workload.reservation_id == holding.reservation_id for workload in node.workloads):
        return True
    if holding.device_uuid is None:
        return holding.reservation_id in node.in_pods if node.in_pods is not None else None
    device = next(
        (candidate for candidate in node.devices if candidate.uuid == holding.device_uuid), None
    )
    if device is None or not device.is_read:
        return None
    if device.processes is not None:
        names = limits.system_processes
        return any((process.name or "")[:NAME_LENGTH] not in names for process in device.processes)
    used = device.utilization_percent
    return None if used is None else used >= limits.idle_percent
