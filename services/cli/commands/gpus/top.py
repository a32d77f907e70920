"""The command that shows every GPU live."""

import asyncio
import signal
import sys
from functools import partial
from typing import Final

import click

from services.cli.failures import leave
from services.cli.options import Target, namespace_option, node_option, with_target

# A platform that is started again is said to be away, instead of asked again for longer.
TIMEOUT_SECONDS: Final = 5.0
TERMINATED_EXIT_CODE: Final = 143


@click.command()
@namespace_option
@node_option
@with_target
def top(target: Target, namespace: str | None, node_id: str | None) -> None:
    """Watch every GPU live: readings, who holds it, what is left of the lease.

    n, u, m, t, p and l sort by node, utilization, memory, temperature, power and lease; / filters,
    q quits.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("expected a terminal; `gpusteward gpus` prints the GPUs once")
    from services.cli import interruption
    from services.cli.top.fleet_feed import FleetFeed
    from services.cli.top.fleet_rows import FleetState
    from services.cli.top.terminal_view import TopApp
    from shared.client.http import StewardClient

    address = target.address()

    async def run() -> int:
        async with StewardClient(address, timeout_seconds=TIMEOUT_SECONDS) as client:
            feed = FleetFeed(client, FleetState(node_id, namespace))
            await feed.read_ledger()
            app = TopApp(feed)
            # The terminal is put back as it was.
            end = partial(app.exit, return_code=TERMINATED_EXIT_CODE)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
            await app.run_async()
            return app.return_code or 0

    leave(interruption.run(run()))
