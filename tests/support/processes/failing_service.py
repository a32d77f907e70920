"""A service for tests whose loop fails as soon as the file named by FAIL_WHEN is there.

With FAIL_WHILE_STARTING set, its start makes that file and then waits for what never comes.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from shared.messaging.bus import Bus
from shared.service import Service
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


def main() -> None:
    """Run until told to fail, or stopped."""
    settings = load_settings(CommonSettings, "failing")
    bus = Bus.from_settings("failing", settings)
    ready = _fail_while_starting if "FAIL_WHILE_STARTING" in os.environ else None
    Service("failing", bus=bus, loops={"fail_when_told": _fail_when_told}, ready=ready).run()


if __name__ == "__main__":
    main()
