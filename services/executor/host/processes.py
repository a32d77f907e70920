"""Finding and killing what an attempt started, by /proc alone.

A workload is known by the two labels in its environment, which its descendants inherit. Process
numbers are used only together with the start time and the boot they belong to.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from shared.labels import (
    EPOCH_VARIABLE,
    EXPERIMENT_VARIABLE,
    INSTALLATION_VARIABLE,
    NODE_VARIABLE,
    RESERVATION_VARIABLE,
    parse_epoch,
    parse_id,
)
from shared.processes.environment import variables_of
from shared.processes.signals import signal_if

PROC: Final = Path("/proc")


class ProcessMark(msgspec.Struct, frozen=True, kw_only=True):
    """One process for certain. `started_ticks` counts clock ticks since boot."""

    pid: int
    started_ticks: int
    kernel_boot_id: str


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The part of /proc/PID/stat that shows whose a process is."""

    pid: int
    state: str
    session: int
    started_ticks: int

    @property
    def is_running(self) -> bool:
        return self.state not in {"Z", "X"}


class WorkloadLabel(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment of everything that runs under a reservation says.

    Without a `node_id` of whichever node of this host.
    """

    reservation_id: UUID
    installation_id: str
    node_id: str | None = None

    def is_on(self, pid: int) -> bool:
        """Return whether this process carries the label; False if its environment cannot be read.
        False where the environment cannot be read.

        No two installations share a reservation's id, so a process that names none is ours too:
        `gpusteward exec` knows of none on a host that only joined. The ranks of a gang whose nodes
        share this host have the same reservation, and name their nodes.
        """
        variables = variables_of(pid)
        if os.fsencode(f"{RESERVATION_VARIABLE}={self.reservation_id}") not in variables:
            return False
        expected_variables = {INSTALLATION_VARIABLE: self.installation_id}
        if self.node_id is not None:
            expected_variables[NODE_VARIABLE] = self.node_id
        return all(
            _has_no_other(variables, name, value) for name, value in expected_variables.items()
        )


def _has_no_other(environment: list[bytes], name: str, value: str) -> bool:
    """Return whether a variable has exactly this value or is not set."""
    begin = os.fsencode(f"{name}=")
    matches = {variable for variable in environment if variable.startswith(begin)}
    return matches <= {begin + os.fsencode(value)}


def kernel_boot_id() -> str:
    """Changes with every boot of this host."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def stat_of(pid: int) -> ProcessStat | None:
    """Return the process's state; None if there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessStat(
        pid=pid, state=fields[0], session=int(fields[3]), started_ticks=int(fields[19])
    )


def mark_of(pid: int) -> ProcessMark | None:
    """The mark of a process that exists now, be it a zombie."""
    stat = stat_of(pid)
    if stat is None:
        return None
    return ProcessMark(pid=pid, started_ticks=stat.started_ticks, kernel_boot_id=kernel_boot_id())


def running_workload(label: WorkloadLabel, marks: tuple[ProcessMark, ...] = ()) -> list[int]:
    """Return every process that carries the label, is marked, or is in the session of a marked
    process.

    A marked process that ended says nothing about its number any more.
    """
    boot = kernel_boot_id()
    marked = {mark.pid: mark.started_ticks for mark in marks if mark.kernel_boot_id == boot}
    alive = {stat.pid: stat for stat in _every_process()}
    marked_pids = {
        pid for pid, ticks in marked.items() if pid in alive and alive[pid].started_ticks == ticks
    }
    return [
        stat.pid
        for stat in alive.values()
        if stat.is_running
        and stat.pid != os.getpid()
        and (stat.pid in marked_pids or stat.session in marked_pids or label.is_on(stat.pid))
    ]


class LabelledProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one reservation. `names_installation`: this one, by its id."""

    reservation_id: UUID
    epoch: int | None
    pids: tuple[int, ...] = ()
    names_installation: bool
    experiment_id: UUID | None = None
    node_id: str | None = None


def find_labelled_processes(installation_id: str) -> list[LabelledProcesses]:
    """Return all labelled processes of this host, by reservation and epoch.

    Leaves out what names another installation.
    """
    pids_by_label: dict[LabelledProcesses, list[int]] = {}  # by what they have in common
    for stat in _every_process():
        if not stat.is_running or stat.pid == os.getpid():
            continue
        label = _label_of(variables_of(stat.pid), installation_id)
        if label is not None:
            pids_by_label.setdefault(label, []).append(stat.pid)
    return [replace(common, pids=tuple(sorted(pids))) for common, pids in pids_by_label.items()]


def session_marks(leader: ProcessMark) -> tuple[ProcessMark, ...]:
    """The marks of everything in the session that `leader` leads, while it is there."""
    boot = kernel_boot_id()
    leader_stat = stat_of(leader.pid)
    if leader_stat is None or (leader_stat.started_ticks, boot) != (
        leader.started_ticks,
        leader.kernel_boot_id,
    ):
        return ()
    return tuple(
        ProcessMark(pid=stat.pid, started_ticks=stat.started_ticks, kernel_boot_id=boot)
        for stat in _every_process()
        if stat.session == leader.pid
    )


def kill_workload(label: WorkloadLabel, marks: tuple[ProcessMark, ...] = ()) -> list[int]:
    """SIGKILL to all of it that runs at this moment; what that was."""
    remaining_pids = running_workload(label, marks)
    for pid in remaining_pids:
        signal_if(partial(is_of, label=label, marks=marks), pid, signal.SIGKILL)
    return remaining_pids


def _label_of(environment: list[bytes], installation_id: str) -> LabelledProcesses | None:
    marked = os.fsencode(f"{RESERVATION_VARIABLE}=")
    if not any(variable.startswith(marked) for variable in environment):
        return None
    variables = dict(
        os.fsdecode(variable).partition("=")[::2] for variable in environment if b"=" in variable
    )
    installation = variables.get(INSTALLATION_VARIABLE)
    if installation not in {None, installation_id}:
        return None
    reservation_id = parse_id(variables[RESERVATION_VARIABLE])
    if reservation_id is None:
        return None
    return LabelledProcesses(
        reservation_id=reservation_id,
        epoch=parse_epoch(variables.get(EPOCH_VARIABLE)),
        names_installation=installation is not None,
        experiment_id=parse_id(variables.get(EXPERIMENT_VARIABLE)),
        node_id=variables.get(NODE_VARIABLE) or None,
    )


def is_of(pid: int, label: WorkloadLabel, marks: tuple[ProcessMark, ...]) -> bool:
    """Return whether a process is one of `running_workload`, while nobody else may have its
    number.
    """
    stat = stat_of(pid)
    if stat is None:
        return False
    leaders = {mark.pid: mark for mark in marks}
    for number in (pid, stat.session):
        if number in leaders and mark_of(number) == leaders[number]:
            return True
    return label.is_on(pid)


def _every_process() -> Iterator[ProcessStat]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := stat_of(int(entry.name))) is not None:
            yield stat
