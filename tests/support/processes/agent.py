"""A telemetry agent as a process of its own, to be signalled and killed."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shared.lifecycle import dying_with_parent
from tests.support.worlds.telemetry_client import NODE


@asynccontextmanager
async def agent_process(nats_url: str, data_dir: Path, **variables: str) -> AsyncIterator[Process]:
    """`python -m services.telemetry` with simulated GPUs; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.telemetry",
        env={
            **os.environ,
            "GPUSTEWARD_NATS_URL": nats_url,
            "GPUSTEWARD_NODE_ID": NODE,
            "GPUSTEWARD_DATA_DIR": str(data_dir),
            "GPUSTEWARD_TELEMETRY_SOURCE": "simulated",
            "GPUSTEWARD_TELEMETRY_INTERVAL_SECONDS": "0.1",
            **variables,
        },
        preexec_fn=dying_with_parent(),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
