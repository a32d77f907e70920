"""A container engine of the tests' own: its directories, network and cgroup are nobody else's.

The fixture `docker_engine` is one per test process; several at once do not meet. Whatever happens
to the test process, its watcher (leftovers.py) leaves nothing behind. There is no registry: images
come from images.py. Devices are given by a fake hook, because the hardware is missing:
`devices_of` tells what a container would have got.

Other programs than those of this host, of a newer Docker for example: name their directories, with
colons between, in GPUSTEWARD_TEST_DOCKER. Debian's packages docker.io and containerd will do,
unpacked by `dpkg -x` (usr/sbin:usr/bin); what is not there is taken from this host.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import docker
import pytest

from tests.support.docker import leftovers
from tests.support.docker.leftovers import ENGINES, Place, remove_ownerless
from tests.support.leftovers import has_an_owner

PROGRAMS: Final = ("dockerd", "containerd", "runc", "docker-proxy")
OTHER_PROGRAMS: Final = os.environ.get("GPUSTEWARD_TEST_DOCKER", "")
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PATH: Final = f"{OTHER_PROGRAMS}:{SYSTEM_PATH}" if OTHER_PROGRAMS else SYSTEM_PATH
HOOK: Final = "nvidia-container-runtime-hook"
START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 30.0
CAPABILITIES: Final = {12: "CAP_NET_ADMIN", 21: "CAP_SYS_ADMIN"}  # linux/capability.h

# Called before a container starts: the bundle is the working directory, the state comes on standard
# input. One line per call: the container, then what its environment says about devices.
_HOOK_SCRIPT: Final = r"""#!/bin/sh
id=$(sed -n 's/.*"id":"\([0-9a-f]*\)".*/\1/p')
given=$(grep -oE '"(NVIDIA|CUDA)_[A-Z_]+=[^"]*"' config.json | tr -d '"' | tr '\n' '\t')
printf '%s\t%s\n' "$id" "$given" >>'@ROOT@/hook.log'
[ ! -e '@ROOT@/hook-error' ] || { cat '@ROOT@/hook-error' >&2; exit 1; }
"""


def missing() -> str | None:
    """Why no engine can be started here; None if one can."""
    if os.geteuid() != 0:
        return "a private container engine needs root"
    status = Path("/proc/self/status").read_text()
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    absent = [name for bit, name in CAPABILITIES.items() if not effective >> bit & 1]
    absent += [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"a private container engine needs {', '.join(absent)} (Debian: docker.io)"
    if OTHER_PROGRAMS and shutil.which("dockerd", path=OTHER_PROGRAMS) is None:
        return f"GPUSTEWARD_TEST_DOCKER names no directory with dockerd: {OTHER_PROGRAMS}"
    return None


def missing_cdi() -> str | None:
    """Why devices cannot be given to containers by their CDI names here; None if they can."""
    if (reason := missing()) is not None:
        return reason
    told = subprocess.run([_dockerd(), "--help"], capture_output=True, text=True, check=True)
    return None if "--cdi-spec-dir" in told.stdout else "CDI needs Docker 25 or later"


class PrivateEngine:
    """One dockerd. It has to be closed; `private_engine` does.

    With `live_restore` containers outlive its restart. `arguments` are added to its command line,
    `config` is what its daemon.json says.
    """

    def __init__(
        self,
        *,
        live_restore: bool = True,
        arguments: tuple[str, ...] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        remove_ownerless()
        self._claim: int | None
        self._place, self._claim = _claim_a_place()
        self._arguments = (*(("--live-restore",) if live_restore else ()), *arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._client: docker.DockerClient | None = None
        self._watcher = self._watched()
        try:
            self._place.remove()
            self._files = self._place.prepare()
            self._install_hook()
            (self.root / "daemon.json").write_text(json.dumps(config or {}))
        except BaseException:
            self.close()
            raise

    @property
    def root(self) -> Path:
        """Where all of it lies."""
        return self._place.root

    @property
    def socket(self) -> Path:
        return self.root / "docker.sock"

    @property
    def base_url(self) -> str:
        """What `DOCKER_HOST` would be."""
        return f"unix://{self.socket}"

    @property
    def log(self) -> Path:
        """What dockerd writes."""
        return self.root / "dockerd.log"

    @property
    def pid(self) -> int | None:
        """Of dockerd; None while it is down."""
        return self._process.pid if self._process is not None else None

    @property
    def client(self) -> docker.DockerClient:
        """One client for all; it survives restarts.

        A call while the engine is down fails and leaves a socket open, which Python warns of.
        """
        if self._client is None:
            self._client = docker.DockerClient(self.base_url, timeout=60)
        return self._client

    def start(self) -> None:
        """Start it and wait until it answers. 0.4 s, the first time after boot 2 s."""
        assert self._process is None, "the engine runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # The hook inherits it: nothing of the test's own environment.
                env={"PATH": f"{self._hooks}:{PATH}", "HOME": str(self.root)},
                start_new_session=True,
            )
        # A test may restart the session's engine. One never closed leaves its watcher.
        has_an_owner(self._process.pid)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() >= deadline:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
                raise RuntimeError(f"dockerd does not answer:\n{tail}")
            time.sleep(0.02)

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended. Without live restore its containers end too."""
        process = self._running()
        process.terminate()
        self._forget(process, STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL: nothing is stopped, unmounted or written."""
        process = self._running()
        noted = self.root / "exec/containerd/containerd.pid"
        containerd = Path("/proc") / noted.read_text().strip()
        process.kill()
        self._forget(process, STOP_SECONDS)
        # It dies with dockerd. Where the first process of the system is slow to collect the dead,
        # the next dockerd would take it for a live one and wait for it in vain.
        deadline = time.monotonic() + STOP_SECONDS
        while _is_running(containerd) and time.monotonic() < deadline:
            time.sleep(0.01)
        noted.unlink(missing_ok=True)

    def restart(self) -> None:
        """`stop` and `start`."""
        self.stop()
        self.start()

    @property
    def hook_log(self) -> Path:
        """One line per container that asked for GPUs and was about to start: its id and what of its
        environment is about devices, separated by tabs.
        """
        return self.root / "hook.log"

    def devices_of(self, container_id: str) -> dict[str, str] | None:
        """What of the container's environment is about devices, as the hook saw it at the last
        start; None if the hook was never called for it.
        """
        lines = self.hook_log.read_text().splitlines() if self.hook_log.exists() else []
        for line in reversed(lines):
            seen, *given = line.rstrip("\t").split("\t")
            if seen.startswith(container_id):
                return dict(variable.partition("=")[::2] for variable in given)
        return None

    @contextmanager
    def hook_failing(self, message: str) -> Iterator[None]:
        """Meanwhile the hook fails as one with a broken driver does."""
        error = self.root / "hook-error"
        error.write_text(f"{message}\n")
        try:
            yield
        finally:
            error.unlink()

    @contextmanager
    def hook_missing(self) -> Iterator[None]:
        """Meanwhile there is no hook; dockerd notices if it is started meanwhile, runc always."""
        hidden = self._hook.rename(self._files / HOOK)
        try:
            yield
        finally:
            hidden.rename(self._hook)

    def environ(self) -> Mapping[str, str]:
        """What a client needs that finds its engine through the environment."""
        return {"DOCKER_HOST": self.base_url}

    def close(self) -> None:
        """End everything, containers too, and remove all of it. May be called again."""
        if self._client is not None:
            self._client.close()
        if self._watcher.stdin is not None and not self._watcher.stdin.closed:
            self._watcher.stdin.close()
        if self._watcher.wait() != 0 and self._place.lock.exists():
            self._place.remove()
            self._place.give_back()
        if self._process is not None:
            self._forget(self._process, STOP_SECONDS)
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    def _command(self) -> list[str]:
        place = self._place
        return [
            _dockerd(),
            "--storage-driver=overlay2",
            f"--config-file={self.root}/daemon.json",
            f"--data-root={self._files}/data",
            f"--exec-root={self.root}/exec",
            f"--pidfile={self.root}/dockerd.pid",
            f"--host={self.base_url}",
            f"--bridge={place.bridge}",
            f"--cgroup-parent={place.cgroup}",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            "--ip=127.0.0.1",
            "--iptables=false",
            "--ip-masq=false",
            "--ip-forward=false",
            *self._arguments,
        ]

    @property
    def _hooks(self) -> Path:
        return self._files / "hooks"

    @property
    def _hook(self) -> Path:
        return self._hooks / HOOK

    def _install_hook(self) -> None:
        self._hooks.mkdir()
        self._hook.write_text(_HOOK_SCRIPT.replace("@ROOT@", str(self.root)))
        self._hook.chmod(0o755)

    def _watched(self) -> "subprocess.Popen[bytes]":
        """Share the claim with a process that outlives this one."""
        command = [sys.executable, leftovers.__file__, str(self._place.number)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=[self._claim] if self._claim is not None else [],
            cwd="/",
            start_new_session=True,
        )

    def _answers(self) -> bool:
        # Asked by hand: the SDK leaves a socket open whenever nobody listens.
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.settimeout(START_SECONDS)
            probe.connect(str(self.socket))
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in probe.recv(4096)
        return False

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "the engine is down"
        return self._process

    def _forget(self, process: "subprocess.Popen[bytes]", within_seconds: float) -> None:
        process.wait(within_seconds)
        self._process = None


def _dockerd() -> str:
    return shutil.which("dockerd", path=PATH) or "dockerd"


def _is_running(process: Path) -> bool:
    try:
        return ") Z " not in (process / "stat").read_text()
    except OSError:
        return False


def _claim_a_place() -> tuple[Place, int]:
    for number in random.sample(range(ENGINES), ENGINES):
        place = Place(number)
        if (claim := place.claim()) is not None:
            return place, claim
    raise RuntimeError(f"all {ENGINES} places for private engines are taken")


@contextmanager
def private_engine(
    *,
    live_restore: bool = True,
    arguments: tuple[str, ...] = (),
    config: Mapping[str, Any] | None = None,
) -> Iterator[PrivateEngine]:
    """A started engine of the test's own. Skips the test where there can be none."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    engine = PrivateEngine(live_restore=live_restore, arguments=arguments, config=config)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()
