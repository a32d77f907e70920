"""The guard as a program: reads what is held from its standard input, and kills what is overdue.

It ends when its input has ended and nothing is held any more. An executor that was killed leaves it
with what it held: that is killed in time, be the executor back or not.
"""

import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from services.executor.host.processes import ProcessMark, WorkloadLabel, kill_workload

READ_BYTES: Final = 1 << 16
RETRY_SECONDS: Final = 0.05
# What was being started in the moment of the kill may come a little later.
QUIET_SECONDS: Final = 10.0
QUIET_POLL_SECONDS: Final = 0.5


class Hold(Struct, frozen=True, kw_only=True, tag="hold"):
    """A workload that may run until `kill_at`, monotonic seconds of this host."""

    label: WorkloadLabel
    kill_at: float
    marks: tuple[ProcessMark, ...] = ()


class Release(Struct, frozen=True, kw_only=True, tag="release"):
    """A workload that is over."""

    reservation_id: UUID


_decoder: Final = msgspec.json.Decoder(Hold | Release)


@dataclass(slots=True)
class Overdue:
    """A workload that is being killed: next at `check_at`, no longer than until `quiet_at`."""

    hold: Hold
    check_at: float
    quiet_at: float


@dataclass(slots=True)
class HeldWorkloads:
    """What is held and what is overdue; the caller passes the time in."""

    holds: dict[UUID, Hold] = field(default_factory=dict)
    overdue: dict[UUID, Overdue] = field(default_factory=dict)

    def apply(self, line: bytes) -> None:
        """Apply one line from the executor; a line that is no message is ignored."""
        try:
            message = _decoder.decode(line)
        except msgspec.DecodeError:
            return
        if isinstance(message, Release):
            self.holds.pop(message.reservation_id, None)
            self.overdue.pop(message.reservation_id, None)
            return
        reservation_id = message.label.reservation_id
        if reservation_id not in self.overdue:
            self.holds[reservation_id] = message

    def kill(self, now: float) -> None:
        """Kill what is overdue at this moment."""
        for reservation_id, hold in tuple(self.holds.items()):
            if hold.kill_at <= now:
                del self.holds[reservation_id]
                self.overdue[reservation_id] = Overdue(hold, now, now + QUIET_SECONDS)
        for reservation_id, overdue in tuple(self.overdue.items()):
            if overdue.check_at > now:
                continue
            if kill_workload(overdue.hold.label, overdue.hold.marks):
                overdue.check_at = now + RETRY_SECONDS
                overdue.quiet_at = now + QUIET_SECONDS
            elif now >= overdue.quiet_at:
                del self.overdue[reservation_id]
            else:
                overdue.check_at = now + QUIET_POLL_SECONDS

    def next_at(self) -> float | None:
        """Return when the next action is due; None if nothing is held."""
        moments = [hold.kill_at for hold in self.holds.values()]
        moments += [overdue.check_at for overdue in self.overdue.values()]
        return min(moments, default=None)


def main() -> None:
    """Run until the input has ended and nothing is held."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    workloads, buffer, is_open = HeldWorkloads(), b"", True
    source = sys.stdin.fileno()
    while is_open or workloads.next_at() is not None:
        at = workloads.next_at()
        wait_seconds = None if at is None else max(0.0, at - time.monotonic())
        if select.select([source] if is_open else [], [], [], wait_seconds)[0]:
            data = os.read(source, READ_BYTES)
            is_open = bool(data)
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                workloads.apply(line)
            # A renewal may be waiting behind what was read: nothing is killed before all is.
            if is_open and select.select([source], [], [], 0)[0]:
                continue
        workloads.kill(time.monotonic())


if __name__ == "__main__":
    main()
