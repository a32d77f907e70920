"""From nothing to a page that shows GPUs, and how much an installation takes on the disk.

`make bench NAME=install`. It reports and never fails a test. Packages come from the index, past
every cache. The last line is one JSON object: `nothing_to_page_s` (wheel with all extras installed,
`up --simulate`, until the page and fresh readings are answered), `install_s` (the first part of
it), `base_mb`, `base_packages` (of `gpusteward` alone), `all_mb`, `wheel_mb` (10^6 bytes) and
`client_import_ms` (`from gpusteward import StewardClient` beside an empty interpreter, median),
`image_mb` and `image_slim_mb` (the image with embedded servers and without, on a base of this
interpreter in place of python:3.11-slim; null where no container engine can be started).
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from shared.testing import short_directory
from tests.support.distribution import Installed, build_distribution, install, missing
from tests.support.processes.platform import PlatformProcess

IMPORTS: Final = 9
MEGABYTE: Final = 1e6


def import_milliseconds(installed: Installed) -> float:
    """Return what the client's import adds to the start of an interpreter."""

    def seconds(program: str) -> float:
        began = time.perf_counter()
        subprocess.run([installed.python, "-c", program], cwd=installed.root, check=True)
        return time.perf_counter() - began

    program = "from gpusteward import StewardClient"
    seconds(program)  # compiles it
    differences = [seconds(program) - seconds("pass") for _ in range(IMPORTS)]
    return statistics.median(differences) * 1000


def image_sizes() -> dict[str, float | None]:
    """Build both images on an engine of our own, and return their sizes."""
    from tests.support.docker import private_engine
    from tests.support.docker.platform_images import OURS, OURS_WITH_SERVERS, build_ours

    tags = {"image_mb": OURS_WITH_SERVERS, "image_slim_mb": OURS}
    if private_engine.missing() is not None:
        return dict.fromkeys(tags)
    with private_engine.private_engine() as engine:
        build_ours(engine.client, engine.base_url)
        return {
            name: round(engine.client.images.get(tag).attrs["Size"] / MEGABYTE, 1)
            for name, tag in tags.items()
        }


async def measure(directory: Path) -> dict[str, float | None]:
    """Install and start it once, and return the figures."""
    wheel = build_distribution(directory / "dist").wheel
    began = time.perf_counter()
    whole = install(wheel, "all", directory / "all")
    install_s = time.perf_counter() - began
    platform = PlatformProcess(
        directory / "data", program=(str(whole.program),), working_directory=directory
    )
    await platform.start()
    try:
        status, _ = await platform.request("GET", "/")
        assert status == 200
        nothing_to_page_s = time.perf_counter() - began
    finally:
        await platform.stop()
    all_mb = whole.size_bytes() / MEGABYTE
    base = install(wheel, None, directory / "base")
    return {
        "nothing_to_page_s": round(nothing_to_page_s, 1),
        "install_s": round(install_s, 1),
        "base_mb": round(base.size_bytes() / MEGABYTE, 1),
        "base_packages": len(base.packages()),
        "all_mb": round(all_mb, 1),
        "wheel_mb": round(wheel.stat().st_size / MEGABYTE, 2),
        "client_import_ms": round(import_milliseconds(base)),
        **await asyncio.to_thread(image_sizes),
    }


def main() -> None:
    if reason := missing():
        sys.exit(reason)
    with short_directory() as directory:
        os.environ["UV_CACHE_DIR"] = str(directory / "cache")
        figures = asyncio.run(measure(directory))
    for name, value in figures.items():
        print(f"{name:20} {value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
