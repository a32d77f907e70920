"""A service for tests whose loop fails as soon as the file named by FAIL_WHEN is there.

With FAIL_WHILE_STARTING set, its start makes that file and then waits for what never comes. With
BESIDE set, a directory, a second service runs in the same process: it is ready once the file `go`
is there, and makes `stopped` when it is stopped.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from shared.logging import log
from shared.messaging.bus import Bus
from shared.service import Service, run_services
from shared.settings import CommonSettings, load_settings


async def _fail_when_told() -> None:
    while not Path(os.environ["FAIL_WHEN"]).exists():  # noqa: ASYNC240, ASYNC110  # a stat of a local file, nothing to wait on
        await asyncio.sleep(0.01)
    raise ZeroDivisionError("told to")


async def _fail_while_starting() -> None:
    Path(os.environ["FAIL_WHEN"]).touch()  # noqa: ASYNC240  # a local file
    with suppress(asyncio.CancelledError):  # lost, as asyncio.wait_for of Python 3.11 may
        await asyncio.Event().wait()
    await asyncio.Event().wait()


def create_failing() -> Service:
    """Return the service that fails when told."""
    settings = load_settings(CommonSettings, "failing")
    bus = Bus.from_settings("failing", settings)
    ready = _fail_while_starting if "FAIL_WHILE_STARTING" in os.environ else None
    return Service("failing", bus=bus, loops={"fail_when_told": _fail_when_told}, ready=ready)


def create_beside() -> Service:
    """Return the service that tells when it is stopped."""
    directory = Path(os.environ["BESIDE"])

    async def wait_until_told() -> None:
        log.info("beside_starts")
        while not (directory / "go").exists():  # noqa: ASYNC110  # a file has no event
            await asyncio.sleep(0.01)

    async def tell() -> None:
        (directory / "stopped").touch()

    bus = Bus.from_settings("beside", load_settings(CommonSettings, "beside"))
    return Service("beside", bus=bus, ready=wait_until_told, stop=tell)


if __name__ == "__main__":
    run_services([create_failing, *([create_beside] if "BESIDE" in os.environ else [])])
