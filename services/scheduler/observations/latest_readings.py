"""The newest reading of every node, from the bus, and whether a decision may use it."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import FRESH_INTERVALS, DeviceUuid, NodeId
from schemas.telemetry.readings import GpuProcess, GpuReading, GpuSampled
from services.scheduler.domain.drift.detection import Process
from services.scheduler.domain.model.fleet import Reading, ReadingState
from services.scheduler.domain.node_selection import mean_of_known
from services.scheduler.observations.past_use import PastUse
from shared.clock import utcnow

AFTER_RELEASE_INTERVALS: Final = 2
BOOTS_REMEMBERED: Final = 8
UNUSED_PERCENT: Final = 5.0  # of a GPU and of its memory

DeviceKey = tuple[NodeId, DeviceUuid]
OnChange = Callable[[frozenset[DeviceKey]], None]


class NodeReading(Struct, frozen=True, kw_only=True):
    """One sample of a node and when it was received, on this process's monotonic clock.

    `processes` are those of the devices whose source can list them; `in_pods` those that kubelet
    gave to containers. `pod_uids` are the pods that kubelet or processes name on any device; None
    where a process's pod, or a device's processes, are unknown. `clock_ahead_seconds`: by how much
    the node's clock was ahead of ours.
    """

    boot_id: UUID
    sequence: int
    interval_seconds: float
    received_at_seconds: float
    gpus: dict[DeviceUuid, Reading]
    processes: dict[DeviceUuid, tuple[GpuProcess, ...]] = {}
    temperatures_c: dict[DeviceUuid, float] = {}
    in_pods: frozenset[DeviceUuid] = frozenset()
    pod_uids: frozenset[str] | None = None
    clock_ahead_seconds: float = 0.0


@dataclass(slots=True)
class LatestReadings:
    """Only a sample newer than the last counts; a replayed or overtaken one is no sign of life.

    A confirmed release makes a device's reading worthless until `confirm`, or until a sample comes
    well after `expect_later`: before that it may still show the last holder's load.
    """

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = utcnow
    past_use: PastUse = field(default_factory=PastUse)
    _nodes: dict[NodeId, NodeReading] = field(default_factory=dict)
    _boots: dict[NodeId, deque[UUID]] = field(default_factory=dict)
    _confirmed: dict[DeviceKey, int] = field(default_factory=dict)
    _expected: dict[DeviceKey, tuple[int, float]] = field(default_factory=dict)
    _peaks: dict[DeviceKey, float] = field(default_factory=dict)
    _subscribers: list[OnChange] = field(default_factory=list)

    def subscribe(self, on_change: OnChange) -> None:
        """Call `on_change` with the devices whose reading is not what it was, whenever that is."""
        self._subscribers.append(on_change)

    def observe(self, sample: GpuSampled) -> frozenset[DeviceKey]:
        """Store a sample if it is newer; the devices whose reading is not what it was."""
        reading_before = self._nodes.get(sample.node_id)
        if reading_before is not None and not self._is_newer(reading_before, sample):
            return frozenset()
        now = self.clock()
        newest = NodeReading(
            boot_id=sample.boot_id,
            sequence=sample.sequence,
            interval_seconds=sample.interval_seconds,
            received_at_seconds=now,
            gpus={gpu.uuid: _reading(gpu) for gpu in sample.gpus},
            processes={g.uuid: g.processes for g in sample.gpus if g.processes is not None},
            temperatures_c={
                g.uuid: g.temperature_c for g in sample.gpus if g.temperature_c is not None
            },
            in_pods=frozenset(gpu.uuid for gpu in sample.gpus if gpu.pods),
            pod_uids=_pod_uids(sample.gpus),
            clock_ahead_seconds=(sample.observed_at - self.wall()).total_seconds(),
        )
        self._nodes[sample.node_id] = newest
        self._record_peaks(sample)
        used = mean_of_known([gpu.utilization_percent for gpu in newest.gpus.values()])
        self.past_use.record(sample.node_id, used, now)
        fresh_before = (
            reading_before
            if reading_before is not None and _is_fresh(reading_before, now)
            else None
        )
        changed = _differences(newest, fresh_before) | self._confirm_expected(sample.node_id, now)
        keys = frozenset((sample.node_id, uuid) for uuid in changed)
        self._publish(keys)
        return keys

    def forget(self, node_id: NodeId) -> None:
        """The node's agent has stopped: what it reported last is no reading any more."""
        self._nodes.pop(node_id, None)

    def confirm(self, node_id: NodeId, releases: Mapping[DeviceUuid, int]) -> None:
        """The node's present reading was taken after these devices' n-th release."""
        self._confirm(node_id, releases)
        self._publish(frozenset((node_id, uuid) for uuid in releases))

    def confirm_unused(self, node_id: NodeId, releases: Mapping[DeviceUuid, int]) -> None:
        """Let the reading from before the release count where it shows the device unused.

        What is still to come from the last holder, whose stop is confirmed, could only free more;
        anything else may have begun since as on any other free device.
        """
        unused = {uuid: n for uuid, n in releases.items() if self._is_unused(node_id, uuid)}
        if unused:
            self.confirm(node_id, unused)

    def expect_later(self, node_id: NodeId, releases: Mapping[DeviceUuid, int]) -> None:
        """No reading could be requested: the first that comes two intervals from now counts."""
        at = self.clock() + AFTER_RELEASE_INTERVALS * self.interval_seconds(node_id)
        for uuid, count in releases.items():
            self._expected[(node_id, uuid)] = (count, at)

    def is_confirmed(self, node_id: NodeId, uuid: DeviceUuid, releases: int) -> bool:
        """Return True if the device's readings are from after its n-th release."""
        return releases <= self._confirmed.get((node_id, uuid), 0)

    def newest(self, node_id: NodeId) -> NodeReading | None:
        """The node's last sample, however old; None if its agent sent none or has stopped."""
        return self._nodes.get(node_id)

    def find(
        self, node_id: NodeId, uuid: DeviceUuid, releases: int
    ) -> tuple[ReadingState, Reading | None]:
        """A device's reading and whether a decision may use it, after its n-th release."""
        node = self._nodes.get(node_id)
        if node is None or uuid not in node.gpus:
            return ReadingState.ABSENT, None
        reading = node.gpus[uuid]
        if not _is_fresh(node, self.clock()):
            return ReadingState.STALE, reading
        if not self.is_confirmed(node_id, uuid, releases):
            return ReadingState.AWAITING, reading
        return ReadingState.FRESH, reading

    def processes(self, node_id: NodeId, uuid: DeviceUuid) -> tuple[Process, ...] | None:
        """Return the processes in a device's newest reading; None if its source cannot list
        them.
        """
        node = self._nodes.get(node_id)
        processes = node.processes.get(uuid) if node is not None else None
        return tuple(map(_process, processes)) if processes is not None else None

    def clock_ahead_seconds(self, node_id: NodeId) -> float | None:
        """Return by how much the node's clock is ahead of ours; None without a fresh reading."""
        node = self._nodes.get(node_id)
        if node is None or not _is_fresh(node, self.clock()):
            return None
        return node.clock_ahead_seconds

    def temperatures(self) -> dict[DeviceKey, float]:
        """The newest temperature of every device that reports one, in degrees Celsius."""
        return {
            (node_id, uuid): temperature_c
            for node_id, node in self._nodes.items()
            for uuid, temperature_c in node.temperatures_c.items()
        }

    def take_peak(self, node_id: NodeId, uuid: DeviceUuid) -> float | None:
        """The highest utilization since the last call; None if none was read."""
        return self._peaks.pop((node_id, uuid), None)

    def is_fresh(self, node_id: NodeId) -> bool:
        """Return True if a sample of the node came recently enough."""
        node = self._nodes.get(node_id)
        return node is not None and _is_fresh(node, self.clock())

    def is_read(self, node_id: NodeId, uuid: DeviceUuid | None) -> bool:
        """Return True if a recent sample shows the device, or with None the node."""
        node = self._nodes.get(node_id)
        return self.is_fresh(node_id) and node is not None and (uuid is None or uuid in node.gpus)

    def interval_seconds(self, node_id: NodeId) -> float:
        """The node's sampling interval, 1 s before its first sample."""
        node = self._nodes.get(node_id)
        return node.interval_seconds if node is not None else 1.0

    def _is_unused(self, node_id: NodeId, uuid: DeviceUuid) -> bool:
        node = self._nodes.get(node_id)
        reading = node.gpus.get(uuid) if node is not None and self.is_fresh(node_id) else None
        if node is None or reading is None or node.processes.get(uuid):
            return False
        used, free, total = (
            reading.utilization_percent,
            reading.memory_free_mb,
            reading.memory_total_mb,
        )
        if used is None or free is None or not total:
            return False
        return used <= UNUSED_PERCENT and 100 * (total - free) <= UNUSED_PERCENT * total

    def _confirm(self, node_id: NodeId, releases: Mapping[DeviceUuid, int]) -> None:
        for uuid, count in releases.items():
            key = (node_id, uuid)
            self._confirmed[key] = max(count, self._confirmed.get(key, 0))

    def _publish(self, changed: frozenset[DeviceKey]) -> None:
        if changed:
            for on_change in self._subscribers:
                on_change(changed)

    def _is_newer(self, reading: NodeReading, sample: GpuSampled) -> bool:
        if sample.boot_id == reading.boot_id:
            return sample.sequence > reading.sequence
        boots = self._boots.setdefault(sample.node_id, deque(maxlen=BOOTS_REMEMBERED))
        if sample.boot_id in boots:
            return False
        boots.append(reading.boot_id)
        return True

    def _record_peaks(self, sample: GpuSampled) -> None:
        for gpu in sample.gpus:
            used, key = gpu.utilization_percent, (sample.node_id, gpu.uuid)
            if used is not None and used > self._peaks.get(key, -1.0):
                self._peaks[key] = used

    def _confirm_expected(self, node_id: NodeId, now: float) -> set[DeviceUuid]:
        due = [
            (key, count)
            for key, (count, at) in self._expected.items()
            if key[0] == node_id and now >= at
        ]
        for key, count in due:
            del self._expected[key]
            self._confirm(node_id, {key[1]: count})
        return {key[1] for key, _ in due}


def _is_fresh(node: NodeReading, now: float) -> bool:
    return now - node.received_at_seconds <= FRESH_INTERVALS * node.interval_seconds


def _differences(newest: NodeReading, fresh_before: NodeReading | None) -> set[DeviceUuid]:
    """The devices whose reading could change a decision."""
    if fresh_before is None:
        return set(newest.gpus)
    return {
        uuid
        for uuid in newest.gpus.keys() | fresh_before.gpus.keys()
        if newest.gpus.get(uuid) != fresh_before.gpus.get(uuid)
        or _pids(newest.processes.get(uuid)) != _pids(fresh_before.processes.get(uuid))
    }


def _pids(processes: tuple[GpuProcess, ...] | None) -> set[int] | None:
    return None if processes is None else {process.pid for process in processes}


def _process(process: GpuProcess) -> Process:
    return Process(
        pid=process.pid,
        name=process.name,
        memory_used_mb=process.memory_used_mb,
        reservation_id=process.reservation_id,
    )


def _reading(gpu: GpuReading) -> Reading:
    used = gpu.utilization_percent
    return Reading(
        # NaN or a negative number would compare as idle: it is unknown.
        utilization_percent=used if used is not None and used >= 0 else None,
        memory_total_mb=gpu.memory_total_mb,
        memory_free_mb=gpu.memory_free_mb,
    )


def _pod_uids(gpus: Iterable[GpuReading]) -> frozenset[str] | None:
    uids: set[str] = set()
    for gpu in gpus:
        if gpu.processes is None:
            return None
        for process in gpu.processes:
            if process.pod_uid is None:
                return None
            uids.add(process.pod_uid)
        uids.update(pod.uid for pod in gpu.pods or () if pod.uid)
    return frozenset(uids)
