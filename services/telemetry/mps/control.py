"""NVIDIA's MPS control program, as its guide "Multi-Process Service" has it
(https://docs.nvidia.com/deploy/mps/): starts a daemon for one device, finds it again, ends it.

- `nvidia-cuda-mps-control -d` starts a daemon in the background, which makes what clients connect
  to in CUDA_MPS_PIPE_DIRECTORY and logs in CUDA_MPS_LOG_DIRECTORY ("Starting and Stopping MPS on
  Linux"; "Environment Variables").
- CUDA_VISIBLE_DEVICES of the daemon is what its clients see; a UUID means the same to both
  ("Environment Variables", CUDA_VISIBLE_DEVICES).
- The same program without options takes commands on standard input; `quit` ends the daemon of that
  pipe directory ("nvidia-cuda-mps-control", commands).
"""

import asyncio
import os
import select
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import StewardError
from shared.mps import daemon_listens, device_pipe_dir
from shared.paths import make_directory
from shared.processes.environment import processes_with
from shared.waiting import wait_for, within

MARK: Final = "GPUSTEWARD_MPS_DAEMON"  # in a daemon's environment, its pipe directory
PROGRAM_SECONDS: Final = 10.0
LISTEN_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.05


class MpsFailed(StewardError):
    """The control program did not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A process that carries our mark. The descriptor means it also when another has its pid."""

    pid: int
    descriptor: int

    @property
    def is_alive(self) -> bool:
        return not select.select([self.descriptor], [], [], 0)[0]

    def close(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class MpsControl:
    """`program` is NVIDIA's; pipe and log directories are made for each device below these."""

    program: str
    pipe_dir: str
    log_dir: Path

    def pipe_dir_of(self, device_uuid: str) -> str:
        return device_pipe_dir(self.pipe_dir, device_uuid)

    def find(self, device_uuid: str) -> Daemon | None:
        """A living daemon that an agent of this host started for the device."""
        mark = os.fsencode(f"{MARK}={self.pipe_dir_of(device_uuid)}")
        for pid in processes_with(mark):
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            # Servers that it started have its environment; `-d` is the daemon's alone. Read after
            # the descriptor was opened, so that it is the same process.
            if pid in processes_with(mark) and b"-d" in _arguments(pid):
                return Daemon(pid, descriptor)
            os.close(descriptor)
        return None

    async def start(self, device_uuid: str) -> Daemon:
        """A daemon that listens. Raises MpsFailed."""
        pipe_dir = self.pipe_dir_of(device_uuid)
        try:
            self._prepare(pipe_dir, self.log_dir / device_uuid)
        except OSError as error:
            raise MpsFailed(f"no directory for the daemon: {error}") from error
        await self._run(device_uuid, "-d")
        try:
            async with within(LISTEN_SECONDS):
                while True:
                    daemon = await asyncio.to_thread(self.find, device_uuid)
                    if daemon is not None and daemon_listens(pipe_dir):
                        return daemon
                    if daemon is not None:
                        daemon.close()
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            raise MpsFailed(f"nothing listens at {pipe_dir} in {LISTEN_SECONDS:g} s") from error

    async def stop(self, device_uuid: str, daemon: Daemon) -> None:
        """Have it quit, and wait for its end. Raises MpsFailed."""
        await self._run(device_uuid, command="quit\n")
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(daemon.descriptor, ended.set)
        try:
            if not await wait_for(ended, PROGRAM_SECONDS):
                raise MpsFailed(f"daemon {daemon.pid} does not quit")
        finally:
            loop.remove_reader(daemon.descriptor)

    def _prepare(self, pipe_dir: str, log_dir: Path) -> None:
        make_directory(log_dir, 0o700)
        for directory in (Path(self.pipe_dir), Path(pipe_dir)):
            directory.mkdir(mode=0o755, exist_ok=True)
            # Its owner decides which process listens there, and clients would connect to that.
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                raise PermissionError(f"expected {directory} to be the agent's, found another's")

    async def _run(self, device_uuid: str, *arguments: str, command: str = "") -> None:
        try:
            # The daemon outlives the agent; so its output must not be a pipe of ours.
            process = await asyncio.create_subprocess_exec(
                *(self.program, *arguments),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=DEVNULL,
                env=self._environment(device_uuid),
                start_new_session=True,
            )
        except OSError as error:
            raise MpsFailed(f"{self.program} does not start: {error}") from error
        try:
            async with within(PROGRAM_SECONDS):
                await process.communicate(command.encode())
        except TimeoutError as error:
            raise MpsFailed(f"{self.program} has no end in {PROGRAM_SECONDS:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            log = self.log_dir / device_uuid / "control.log"
            raise MpsFailed(f"{self.program} ended with {process.returncode}; see {log}")

    def _environment(self, device_uuid: str) -> Mapping[str, str]:
        """No more of ours than this: servers, and debuggers of them, can read it."""
        return {
            "PATH": os.defpath,
            "CUDA_VISIBLE_DEVICES": device_uuid,
            "CUDA_MPS_PIPE_DIRECTORY": self.pipe_dir_of(device_uuid),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log_dir / device_uuid),
            MARK: self.pipe_dir_of(device_uuid),
        }


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
