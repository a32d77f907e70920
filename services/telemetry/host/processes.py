"""What /proc says of the processes on GPUs; what cannot be read is None."""

import os
import select
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from services.telemetry.host.cgroup import container_of, pod_of
from services.telemetry.host.container_labels import ContainerLabels
from shared.labels import RESERVATION_VARIABLE
from shared.processes.environment import variables_of

_MARK: Final = os.fsencode(f"{RESERVATION_VARIABLE}=")


class ProcessFacts(NamedTuple):
    """What does not change while a process lives."""

    name: str | None
    container_id: str | None
    reservation_id: UUID | None
    pod_uid: str | None = None


class ProcessTable:
    """Facts of processes, read once for each.

    A pidfd shows when a process has ended, before its number can mean another. Where the kernel has
    none (Linux before 5.3), the time at which it started is compared instead.
    """

    def __init__(self, labels: ContainerLabels | None = None) -> None:
        self._labels = ContainerLabels(None) if labels is None else labels
        self._known: dict[int, tuple[ProcessFacts, int | None, bytes | None]] = {}
        self._ended = select.poll()

    def facts(self, pid: int) -> ProcessFacts:
        """Facts of a process, from the cache where they still hold."""
        cached = self._known.get(pid)
        if cached is not None:
            facts, descriptor, started = cached
            if descriptor is not None:
                return facts
            if started == _start_ticks(pid):
                return facts
            del self._known[pid]
        return self._read_facts(pid)

    def forget_ended(self, present: Iterable[int]) -> None:
        """Drop those that have ended, and those that are on no GPU any more."""
        ended = {descriptor for descriptor, _ in self._ended.poll(0)}
        gone = self._known.keys() - set(present)
        if ended:
            entries = list(self._known.items())
            gone |= {pid for pid, (_, descriptor, _) in entries if descriptor in ended}
        for pid in gone:
            self._drop(pid)
        if answered := self._labels.take_answers():
            self._add_reservations(answered)

    def _add_reservations(self, answered: dict[str, UUID]) -> None:
        for pid, (facts, descriptor, started) in self._known.items():
            reservation_id = answered.get(facts.container_id or "")
            if reservation_id is not None and facts.reservation_id is None:
                self._known[pid] = (
                    facts._replace(reservation_id=reservation_id),
                    descriptor,
                    started,
                )

    def _read_facts(self, pid: int) -> ProcessFacts:
        descriptor = _descriptor(pid)
        started = _start_ticks(pid)
        cgroup = (_read(pid, "cgroup") or b"").decode(errors="replace")
        facts = ProcessFacts(_name(pid), container_of(cgroup), _reservation(pid), pod_of(cgroup))
        if facts.reservation_id is None and facts.container_id is not None:
            self._labels.request(facts.container_id)
        if descriptor is not None:
            self._ended.register(descriptor, select.POLLIN)
        if descriptor is not None or started is not None:
            self._known[pid] = (facts, descriptor, started)
        return facts

    def _drop(self, pid: int) -> None:
        _, descriptor, _ = self._known.pop(pid)
        if descriptor is not None:
            self._ended.unregister(descriptor)
            os.close(descriptor)


def _descriptor(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def _start_ticks(pid: int) -> bytes | None:
    """Field 22 of /proc/PID/stat; the name in field 2 may have spaces and brackets in it."""
    fields = (_read(pid, "stat") or b"").rpartition(b")")[2].split()
    return fields[19] if len(fields) > 19 else None


def _name(pid: int) -> str | None:
    """The command's name as the kernel has it, at most 15 characters."""
    text = _read(pid, "comm")
    return text.decode(errors="replace").rstrip("\n") or None if text is not None else None


def _reservation(pid: int) -> UUID | None:
    """The reservation in the process's environment, where that may be read."""
    for variable in variables_of(pid):
        if variable.startswith(_MARK):
            try:
                return UUID(variable.removeprefix(_MARK).decode())
            except ValueError:
                return None
    return None


def _read(pid: int, what: str) -> bytes | None:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:  # noqa: PTH123  # pathlib costs its memory
            return file.read()
    except OSError:
        return None
