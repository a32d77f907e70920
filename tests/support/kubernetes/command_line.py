"""The command line on the control plane of the tests, as its user types it."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT

from tests.support.kubernetes.control_plane import ControlPlane


async def devices(plane: ControlPlane, *arguments: str) -> str:
    """What `gpusteward devices` says to a Chinese reader; it has to succeed."""
    command = (sys.executable, "-m", "services.cli", "devices", *arguments)
    process = await asyncio.create_subprocess_exec(
        *(*command, "--kubeconfig", str(plane.kubeconfig())),
        stdout=PIPE,
        stderr=STDOUT,
        env=os.environ | {"LC_ALL": "zh_CN.UTF-8"},
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()
    return told.decode()
