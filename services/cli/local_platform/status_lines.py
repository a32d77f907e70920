"""What `up` and `agent` say while they run."""

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from shared.client.discovery import Address
from shared.clock import utcnow
from shared.errors import StewardError
from shared.nats_addresses import without_logins
from shared.paths import DataDirectory, Endpoint

if TYPE_CHECKING:
    from shared.local_platform.platform import PlatformOptions
    from shared.local_platform.supervisor.supervisor import ChildState


class StatusLines:
    """One line for each process that becomes ready, ends or is restarted, then the address."""

    def __init__(self, options: "PlatformOptions") -> None:
        self._options = options
        self._began_at = utcnow()
        self._console: Any = None
        self._login: asyncio.Future[None] | None = None
        if sys.stdout.isatty():
            from rich.console import Console

            self._console = Console(highlight=False)

    def on_change(self, child: "ChildState") -> None:
        from shared.local_platform.supervisor.supervisor import State

        if child.state is State.READY:
            restart_text = f", restarted {child.restarts} times" if child.restarts else ""
            self._say("green", f"{child.name:<13} ready (process {child.pid}{restart_text})")
        elif child.state is State.WAITING and child.last_exit is not None:
            self._say("red", f"{child.name:<13} ended: {child.last_exit}; it is started again")
        elif child.state is State.STOPPING:
            self._say("dim", f"{child.name:<13} stops")

    def on_started(self, endpoint: Endpoint) -> None:
        if self._options.fleet is not None:
            self._say("magenta", f"GPUs are simulated, as {self._options.fleet} describes them")
        if endpoint.api_url is not None:
            self._say("bold", f"GPU Steward answers at {endpoint.api_url}; open it in a browser")
            token = DataDirectory(self._options.data_dir.resolve()).read_admin_token()
            if self._options.tokens_file is not None and token is not None:
                ca = DataDirectory(self._options.data_dir.resolve()).find_authority()
                self._say_login(Address(endpoint.api_url, token, ca=ca))
        else:
            cluster = self._options.cluster
            joined = "this machine" if cluster is None else f"cluster {cluster.cluster_id}"
            servers = without_logins(self._options.nats_url or "")
            self._say("bold", f"{joined} has joined {servers}")
            self._say_next(self._options.node_id if cluster is None else cluster.cluster_id)

    def _say_login(self, address: Address) -> None:
        """Only a terminal is shown the code: what else output goes to may be kept or read."""
        if self._console is None:
            self._say("", "`gpusteward login` prints an address that opens it logged in")
            return
        self._login = asyncio.ensure_future(self._say_login_address(address))

    async def _say_login_address(self, address: Address) -> None:
        from services.cli.local_platform.login_address import login_lines

        with suppress(StewardError):
            for line in await login_lines(address):
                self._say("", line)

    def _say_next(self, node_id: str | None) -> None:
        from services.cli.local_platform.joining import discovery_sentence

        if self._options.cluster is None:
            directory = DataDirectory(self._options.data_dir.resolve())
            self._say("", discovery_sentence(directory.log_path("telemetry"), self._began_at))
        admit = f"`gpusteward node admit {node_id or 'NODE'}`"
        self._say("", f"if it is new there, an administrator types {admit} on the platform's host")

    def on_disk(self, text: str) -> None:
        self._say("yellow", text)

    def _say(self, style: str, text: str) -> None:
        # The output may lie on a full disk, or go to a reader that is gone.
        with suppress(OSError):
            if self._console is not None:
                self._console.print(text, style=style, soft_wrap=True)
            else:
                click.echo(text)
