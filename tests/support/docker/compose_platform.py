"""The platform of compose.yaml on a private engine, and what a user and an accident do to it."""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg
from asyncpg.connect_utils import SessionAttribute
from docker.models.containers import Container

from services.cli.local_platform.compose import ComposeDirectory
from shared.testing import eventually
from tests.support.docker.private_engine import PrivateEngine
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.processes.platform import PlatformProcess

COMPOSE: Final = "docker-compose"
READY_SECONDS: Final = 180.0
NODE: Final = "alpha"


class ComposePlatform(PlatformProcess):
    """As the other platform, with containers for processes.

    Without the profile `simulated` it is ready when its services are: there are no GPUs.
    """

    def __init__(
        self,
        engine: PrivateEngine,
        root: Path,
        images: Mapping[str, str],
        profiles: Sequence[str] = (),
        *,
        is_highly_available: bool = False,
    ) -> None:
        super().__init__(data_dir=root)
        self.engine = engine
        self.compose = ComposeDirectory(root)
        self.nats_port = free_port()
        self._images = images
        self.is_highly_available = is_highly_available
        self._profiles = [word for name in profiles for word in ("--profile", name)]

    @property
    def variables(self) -> dict[str, object]:
        """What of a .env is another one here: images that there are, ports, the engine."""
        return {
            **self._images,
            "STEWARD_API_PORT": self.port,
            "STEWARD_NATS_PORT": self.nats_port,
            "STEWARD_NATS_PORT_2": free_port(),
            "STEWARD_NATS_PORT_3": free_port(),
            "STEWARD_HTTPS_PORT": free_port(),
            "STEWARD_DOCKER_SOCKET": self.engine.socket,
            "STEWARD_DOCKER_GID": self.engine.socket.stat().st_gid,
        }

    async def start(self) -> None:
        """`compose init` and `up`."""
        options = ["--ha"] if self.is_highly_available else []
        init = ("compose", "init", str(self.data_dir), "--node-id", NODE, *options)
        await self.gpusteward(*init)
        set_variables(self.compose.environment_path, self.variables)
        await self.docker_compose(*self._profiles, "up", "-d")
        await eventually(self.is_ready, within_seconds=READY_SECONDS, what="a ready platform")

    async def stop(self) -> None:
        """`down`, with volumes."""
        await self.docker_compose(*self._profiles, "down", "--volumes", "-t", "5")

    async def docker_compose(self, *arguments: str, directory: Path | None = None) -> str:
        """What it prints; it has to succeed."""
        clean = {
            n: v for n, v in os.environ.items() if not n.startswith(("GPUSTEWARD_", "COMPOSE"))
        }
        return await _run(
            [COMPOSE, "--ansi", "never", *arguments],
            cwd=directory or self.data_dir,
            env={**clean, **self.engine.environ()},
        )

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority_path(self) -> Path:
        return self.compose.root / "tls/ca.pem"

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority_path)

    @property
    def _token_path(self) -> Path:
        return self.compose.root / "admin_token"

    async def gpusteward(self, *arguments: str) -> str:
        """One command of ours, as the admin that `compose init` has made."""
        environment = {n: v for n, v in os.environ.items() if not n.startswith("GPUSTEWARD_")}
        environment["GPUSTEWARD_URL"] = self.url
        environment["GPUSTEWARD_CA"] = str(self.authority_path)
        if self._token_path.exists():
            environment["GPUSTEWARD_TOKEN"] = self._token_path.read_text()
        command = [sys.executable, "-m", "services.cli", *arguments]
        return await _run(command, cwd=ROOT, env=environment)

    def container(self, service: str) -> Container:
        """Raises ValueError if there is not exactly one."""
        (found,) = self.containers(service)
        return found

    def containers(self, service: str | None = None) -> list[Container]:
        labels = ["com.docker.compose.project"]
        if service is not None:
            labels.append(f"com.docker.compose.service={service}")
        return list(self.engine.client.containers.list(all=True, filters={"label": labels}))

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """As an accident does; what `docker kill` kills is not started again."""
        pid = self.container(name).attrs["State"]["Pid"]
        if pid:
            os.kill(pid, how)

    async def is_ready(self) -> bool:
        try:
            status, body = await self.request("GET", "/readyz")
            if status != 200:
                missing = set((body or {}).get("details", {}).get("missing", ["all"]))
                return not self._profiles and missing <= {"executor", "telemetry"}
            _, body = await self.request("GET", "/api/v1/gpus")
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        gpus = body.get("gpus", [])
        return bool(gpus) and all(gpu.get("fresh", False) for gpu in gpus)

    async def request(
        self, method: str, path: str, body: object = None, **options: Any
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token_path.read_text()}"}
        more = {"headers": headers, "ssl": self.context, **options}
        return await super().request(method, path, body, **more)

    @property
    def bridge(self) -> str:
        """The interface over which all of its containers speak with each other."""
        (network,) = [
            each for each in self.engine.client.api.networks() if each["Name"].endswith("_default")
        ]
        return f"br-{network['Id'][:12]}"

    def logs(self) -> str:
        parts = []
        for each in self.containers():
            lines = each.logs(tail=12).decode(errors="replace")
            parts.append(f"== {each.name} {each.attrs['State']}\n{lines}")
        return "\n".join(parts)

    @asynccontextmanager
    async def postgres(self) -> AsyncIterator[Any]:
        names = ("postgres", "postgres-2") if self.is_highly_available else ("postgres",)
        networks = [self.container(name).attrs["NetworkSettings"]["Networks"] for name in names]
        connection = await asyncpg.connect(
            host=[network["IPAddress"] for one in networks for network in one.values()],
            target_session_attrs=SessionAttribute.read_write,
            ssl="require",
            user="postgres",
            password=(self.data_dir / "postgres/password").read_text(),
            database="gpusteward",
        )
        try:
            yield connection
        finally:
            await connection.close()

    def left_over(self) -> dict[str, list[str]]:
        """What there is on the engine beside images."""
        api = self.engine.client.api
        networks = [each["Name"] for each in api.networks()]
        return {
            "containers": [each["Id"] for each in api.containers(all=True)],
            "volumes": [each["Name"] for each in api.volumes()["Volumes"] or []],
            "networks": [name for name in networks if name not in {"bridge", "host", "none"}],
        }


def set_variables(file: Path, variables: Mapping[str, object]) -> None:
    """As an operator edits a .env."""
    kept = [line for line in file.read_text().splitlines() if line.split("=")[0] not in variables]
    added = [f"{name}={value}" for name, value in variables.items()]
    file.write_text("\n".join([*kept, *added, ""]))


async def _run(command: list[str], *, cwd: Path, env: Mapping[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, f"{command}: {out.decode()}"
    return out.decode()


def compose_service(container: Container) -> str:
    return str(container.labels["com.docker.compose.service"])
