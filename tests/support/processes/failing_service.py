"""A service for tests whose loop fails as soon as the file named by FAIL_WHEN is there."""

import asyncio
import os
from pathlib import Path

from shared.messaging.bus import Bus
from shared.service import Service
from shared.settings import CommonSettings, load_settings


async def _fail_when_told() -> None:
    while not Path(os.environ["FAIL_WHEN"]).exists():  # noqa: ASYNC240, ASYNC110  # a stat of a local file, nothing to wait on
        await asyncio.sleep(0.01)
    raise ZeroDivisionError("told to")


def main() -> None:
    """Run until told to fail, or stopped."""
    settings = load_settings(CommonSettings, "failing")
    bus = Bus.from_settings("failing", settings)
    Service("failing", bus=bus, loops={"fail_when_told": _fail_when_told}).run()


if __name__ == "__main__":
    main()
