"""One process of ours: started apart from our terminal, awaited, stopped for certain."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from shared.errors import StewardError
from shared.lifecycle import dying_with_parent
from shared.processes.users import Identity
from shared.waiting import within

POLL_SECONDS: Final = 0.02
KILLED_SECONDS: Final = 0.5
KILLED_POLLS: Final = 50
LOG_LIMIT_BYTES: Final = 16 * 1024 * 1024


class NotReady(StewardError):
    """A process ended or stayed silent before it was ready; the text carries the end of its log."""

    def __init__(self, name: str, reason: str, log_path: Path | None = None) -> None:
        self.name = name
        self.reason = reason
        self.log_path = log_path
        tail = last_lines(log_path) if log_path else ""
        super().__init__(
            f"{name} {reason}" + (f"; its log {log_path} ends:\n{tail}" if tail else "")
        )


class UnusableSettings(NotReady):
    """A process refused its settings: started again it would only refuse them again."""


def last_lines(path: Path, count: int = 15) -> str:
    """The end of a log, or nothing if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])
    except OSError:
        return ""


def rotate_log(path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
    """Move a log that has grown past the limit to `<name>.log.1`.

    Copied and cut, because its writer has the file open in append mode. Where the disk has no
    room for the copy, it stays as it is.
    """
    moved = path.with_name(f"{path.name}.1")
    try:
        if path.stat().st_size <= limit_bytes:
            return
        shutil.copyfile(path, moved)
        os.truncate(path, 0)
    except FileNotFoundError:
        return
    except OSError:
        moved.unlink(missing_ok=True)


def describe_exit(returncode: int) -> str:
    """`exit 1` or `SIGKILL`."""
    if returncode >= 0:
        return f"exit {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


class Started(Protocol):
    """What is used of a Popen."""

    pid: int
    returncode: int | None

    def wait(self) -> int: ...

    def send_signal(self, sent: signal.Signals, /) -> None: ...


class ChildProcess:
    """A started process, leader of a session and process group of its own.

    It dies with us, by `death_signal`. When it ends, whatever is left of its group is killed.
    """

    def __init__(self, name: str, process: Started) -> None:
        self.name = name
        self._process = process

    @classmethod
    def spawn(
        cls,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str],
        log_path: Path,
        cwd: Path | None = None,
        run_as: Identity | None = None,
        death_signal: signal.Signals = signal.SIGKILL,
        before_exec: Callable[[], None] | None = None,
        rotates_log: bool = True,
        pass_descriptors: Sequence[int] = (),
    ) -> "ChildProcess":
        """Start it with its output appended to `log_path`. Raises OSError if it cannot start.

        `before_exec` runs in the child, where hardly more than system calls is safe.
        `rotates_log` False: the caller bounds the log.
        """
        if rotates_log:
            rotate_log(log_path)
        descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
                pass_fds=pass_descriptors,
                preexec_fn=_both(before_exec, dying_with_parent(death_signal)),
                user=run_as.uid if run_as is not None else None,
                group=run_as.gid if run_as is not None else None,
                extra_groups=[] if run_as is not None else None,
            )
        finally:
            os.close(descriptor)
        return cls(name, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status; None while it runs, the negative number of the signal that ended it."""
        if self._process.returncode is None and self._has_ended():
            # The leader is still a zombie here, so its group's number cannot be another's.
            self._signal_group(signal.SIGKILL)
            self._process.wait()
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until it ends and return its return code."""
        while (returncode := self.returncode) is None:
            await self._until_ended()
        return returncode

    async def stop(
        self,
        stop_signal: signal.Signals,
        timeout_seconds: float,
        *,
        then: signal.Signals | None = None,
        then_timeout_seconds: float = 2.0,
    ) -> int:
        """Send `stop_signal`, then `then`, each with its deadline, then kill the group."""
        steps = [(stop_signal, timeout_seconds)]
        if then is not None:
            steps.append((then, then_timeout_seconds))
        for sent, deadline_seconds in steps:
            self.send(sent)
            try:
                async with within(deadline_seconds):
                    return await self.wait()
            except TimeoutError:
                continue
        self.kill()
        return await self.wait()

    async def stop_for_certain(self, stop_signal: signal.Signals, timeout_seconds: float) -> None:
        """`stop`; where that is cancelled, nothing is left either."""
        try:
            await self.stop(stop_signal, timeout_seconds)
        finally:
            self._end_now()

    def send(self, sent: signal.Signals) -> None:
        """Signal the leader alone, unless it has ended."""
        if self.returncode is None:
            self._process.send_signal(sent)

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        if self.returncode is None:
            self._signal_group(signal.SIGKILL)

    def _end_now(self) -> None:
        """Kill the group and take the exit code, without waiting for the loop."""
        self.kill()
        for _ in range(KILLED_POLLS):
            if self.returncode is not None:
                return
            time.sleep(KILLED_SECONDS / KILLED_POLLS)

    def _has_ended(self) -> bool:
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:
            return True

    def _signal_group(self, sent: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, sent)
        except ProcessLookupError:
            return
        except PermissionError:
            # macOS answers so for a group of zombies.
            return

    async def _until_ended(self) -> None:
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            await asyncio.sleep(POLL_SECONDS)
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def _both(first: Callable[[], None] | None, then: Callable[[], None]) -> Callable[[], None]:
    # Another user's death signal is forgotten, so it is set after whatever changes the user.
    if first is None:
        return then

    def run() -> None:
        first()
        then()

    return run
