"""A user's command in a process group of its own, on granted devices."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from schemas.scheduler.views import ReservationView
from shared.gpu.shares import share_environment
from shared.labels import RESERVATION_VARIABLE, environment_of
from shared.lifecycle import die_with_parent
from shared.mps import DEFAULT_PIPE_DIR, mps_environment
from shared.processes.environment import processes_with
from shared.visible_devices import without_other_gpus
from shared.waiting import wait_for, within

FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
WATCH_SECONDS: Final = 1.0  # a stop has no descriptor to wait on


def device_environment(
    reservation: ReservationView, epoch: int, *, installation_id: str | None
) -> dict[str, str]:
    """Return the environment of a process on these devices: ours, without other GPUs.

    Telemetry and the executor read from it whose process it is. Raises GpuNotUsable.
    """
    return {
        **without_other_gpus(os.environ, reservation.devices),
        **mps_environment(
            reservation.devices, os.environ.get("CUDA_MPS_PIPE_DIRECTORY", DEFAULT_PIPE_DIR)
        ),
        **share_environment(reservation.devices),
        **environment_of(
            reservation.reservation_id,
            node_id=reservation.node_id,
            epoch=epoch,
            installation_id=installation_id,
        ),
    }


class DeviceProcess:
    """Started by the constructor; dies with us. Raises OSError if it cannot start.

    On a terminal its group is in the foreground, so that the keyboard is its own.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        enter_group: Callable[[], None] | None = None,
    ) -> None:
        self._terminal = _controlling_terminal()
        self._process = subprocess.Popen(
            argv,
            env=environment,
            preexec_fn=_before_exec(self._terminal, os.getpid(), enter_group),
            process_group=0,
        )

    async def wait(self) -> int:
        """Wait for its end; its exit code, 128 + n if signal n ended it."""
        while True:
            if self._has_ended():
                # Not yet reaped, so its group's number cannot be anybody else's.
                self.send(signal.SIGKILL)
                code = self._process.wait()
                return code if code >= 0 else 128 - code
            await self._until_something()

    async def stop(self, within_seconds: float) -> int:
        """SIGTERM to the group, SIGKILL after the time; its exit code."""
        self.send(signal.SIGTERM)
        try:
            async with within(within_seconds):
                return await self.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.wait()

    def send(self, sent: signal.Signals) -> None:
        """Signal the whole group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, sent)

    @contextlib.contextmanager
    def forwarding(self) -> Iterator[None]:
        """Send signals that would end us on to the process, from here on.

        After its end they do nothing, so that they cannot cut off the release.
        """
        loop = asyncio.get_running_loop()
        for signal_number in FORWARDED:
            loop.add_signal_handler(signal_number, self.send, signal_number)
        if self._terminal is not None:
            # Under `stty tostop` a word from the background would stop us, and our renewals.
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            yield
        finally:
            self._take_terminal_back()

    def _has_ended(self) -> bool:
        """A process that stopped itself is continued: its lease runs on."""
        if self._process.returncode is not None:
            return True  # another waiter has reaped it
        options = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        result = os.waitid(os.P_PID, self._process.pid, options)
        if result is None:
            return False
        if result.si_code == os.CLD_STOPPED:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG)
            self.send(signal.SIGCONT)
            return False
        return True

    async def _until_something(self) -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        descriptor = os.pidfd_open(self._process.pid)
        loop.add_reader(descriptor, ended.set)
        try:
            await wait_for(ended, WATCH_SECONDS)
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def _take_terminal_back(self) -> None:
        if self._terminal is None:
            return
        previous_handler = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._terminal, os.getpgrp())
        finally:
            signal.signal(signal.SIGTTOU, previous_handler)


class Interruption:
    """Cancels the task that made it at the first signal, and remembers which that was."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for signal_number in FORWARDED:
            loop.add_signal_handler(signal_number, self._note, signal_number)

    def _note(self, noted: signal.Signals) -> None:
        if self.signal is None and self._task is not None:
            self._task.cancel()
        self.signal = self.signal or noted


def find_labelled_processes(reservation_id: UUID) -> list[int]:
    """Living processes that carry the reservation, in whatever group; ourselves left out."""
    return processes_with(os.fsencode(f"{RESERVATION_VARIABLE}={reservation_id}"))


def _controlling_terminal() -> int | None:
    """Standard input, if it is a terminal whose foreground we are."""
    try:
        terminal = sys.stdin.fileno()
        return terminal if os.tcgetpgrp(terminal) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):
        return None


def _before_exec(
    terminal: int | None, parent_pid: int, enter_group: Callable[[], None] | None
) -> Callable[[], None]:
    def prepare() -> None:
        if enter_group is not None:
            enter_group()
        die_with_parent(parent_pid=parent_pid)
        if terminal is not None:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.tcsetpgrp(terminal, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)

    return prepare
