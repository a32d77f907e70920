"""The guard of an executor's leases: another process, which kills what is not renewed in time.

An executor that is paused, starved or hangs on a disk cannot stop its engines in time, and one that
was killed does not come back by itself. The guard receives, with each confirmed renewal, until when
it holds, on the monotonic clock that all processes of a host share.
"""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
from msgspec.structs import replace

from services.executor.guard import process
from services.executor.guard.process import Hold, Release
from services.executor.host.processes import ProcessMark, WorkloadLabel
from shared.logging import log
from shared.paths import SOURCE_ROOT


@dataclass(slots=True)
class LeaseGuard:
    """Started with the first hold, and anew if it is gone; nothing here raises or waits long."""

    _process: "subprocess.Popen[bytes] | None" = None
    _holds: dict[UUID, Hold] = field(default_factory=dict)

    def hold(self, label: WorkloadLabel, kill_at: float) -> None:
        """Have the workload killed at that moment of the monotonic clock, unless this is repeated
        or released before.
        """
        known_hold = self._holds.get(label.reservation_id)
        marks = known_hold.marks if known_hold is not None else ()
        self._hold(Hold(label=label, kill_at=kill_at, marks=marks))

    def add_mark(self, reservation_id: UUID, mark: ProcessMark) -> None:
        """A process of the workload, also if it sheds its label."""
        hold = self._holds.get(reservation_id)
        if hold is not None:
            self._hold(replace(hold, marks=(*hold.marks, mark)))

    def release(self, reservation_id: UUID) -> None:
        """Stop guarding a reservation of which nothing runs any more."""
        if self._holds.pop(reservation_id, None) is not None:
            self._write(Release(reservation_id=reservation_id))

    def close(self) -> None:
        """End it, unless it holds something: then it ends itself once it holds nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if not self._holds:
            # Not waited for: on a busy host it may not even have started to read.
            process.kill()
            process.wait()

    def _hold(self, hold: Hold) -> None:
        self._holds[hold.label.reservation_id] = hold
        if self._process is not None and self._process.poll() is None and self._write(hold):
            return
        self._restart()
        for hold in self._holds.values():
            self._write(hold)

    def _write(self, message: Hold | Release) -> bool:
        """Return whether the pipe took the whole message; a process that has stopped reading is of
        no use.
        """
        pipe = self._process.stdin if self._process is not None else None
        if pipe is None:
            return False
        line = msgspec.json.encode(message) + b"\n"
        try:
            return os.write(pipe.fileno(), line) == len(line)
        except OSError:
            return False

    def _restart(self) -> None:
        if self._process is not None:
            log.error("lease_guard_lost", pid=self._process.pid)
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.kill()
            self._process.wait()
            self._process = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", process.__name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # Neither the labels nor the secrets of the executor.
                env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(SOURCE_ROOT)},
                start_new_session=True,
            )
        except OSError as error:
            log.error("lease_guard_unavailable", error=str(error))
            return
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
