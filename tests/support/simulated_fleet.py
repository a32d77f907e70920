"""More nodes than this host has: agents with simulated GPUs, in the process that asks for them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from schemas.base import node_speaker
from services.telemetry.app import create_service
from services.telemetry.settings import TelemetrySettings
from shared.ids import node_token
from shared.local_platform.embedded import EmbeddedNats
from shared.testing import eventually
from tests.support.processes.platform import PlatformProcess

# A platform takes such nodes only where it is told to.
ADMIT: Final = {"GPUSTEWARD_SCHEDULER_ADMIT_NODES": "*"}
MODELS: Final = ("Simulated H200", "Simulated H100", "Simulated L40S")


def write_fleet(path: Path, number: int, gpus: int) -> Path:
    """The fleet file of the node with this number; nodes differ in seed and model."""
    model = MODELS[number % len(MODELS)] if number else MODELS[0]
    devices = "".join(
        f'  {{ mother_uuid = "GPU-51a7ed00-0000-4000-{number:04x}-{at:012x}",'
        f' model_name = "{model}", numa_node = {at * 2 // gpus}, memory_size = "143771M" }},\n'
        for at in range(gpus)
    )
    path.write_text(f'slot_name = "cuda"\ndevices = [\n{devices}]\n\n[load]\nseed = {number}\n')
    return path


@asynccontextmanager
async def agents(
    platform: PlatformProcess, nodes: Mapping[str, int], directory: Path
) -> AsyncIterator[dict[str, AsyncExitStack]]:
    """By their names, with so many GPUs each. Closing one is losing that node."""
    server = EmbeddedNats(platform.directory.nats)
    users = server.users
    users.create([node_speaker(node_token(node)) for node in nodes])
    server.reload()
    where = platform.directory.read_endpoint
    await eventually(lambda: where() is not None, within_seconds=60, what="a platform's address")
    endpoint = where()
    assert endpoint is not None
    login = json.loads(users.path_of(node_speaker(node_token(next(iter(nodes))))).read_text())
    await eventually(
        lambda: _is_known(str(endpoint.nats_url), login), within_seconds=60, what="users of the bus"
    )
    running: dict[str, AsyncExitStack] = {}
    async with AsyncExitStack() as all_of_them:
        for number, (node, gpus) in enumerate(nodes.items(), 1):
            settings = TelemetrySettings(
                source="simulated",
                fleet=str(write_fleet(directory / f"{node}.toml", number, gpus)),
                nats_url=str(endpoint.nats_url),
                nats_credentials=str(users.path_of(node_speaker(node_token(node)))),
                node_id=node,
                data_dir=str(directory / node),
                metrics=False,
                pod_resources_socket="",
            )
            running[node] = await all_of_them.enter_async_context(AsyncExitStack())
            await running[node].enter_async_context(create_service(settings).running())
        yield running


async def _is_known(url: str, login: Mapping[str, str]) -> bool:
    """Return whether the server has its new users already, which it is told of. One that it refuses
    leaves a connection of nats-py open, so that nobody tries who is not known.
    """
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        await reader.readline()
        asked = {"user": login["user"], "pass": login["password"], "verbose": False}
        writer.write(f"CONNECT {json.dumps(asked)}\r\nPING\r\n".encode())
        return await reader.readline() == b"PONG\r\n"
    finally:
        writer.close()
        await writer.wait_closed()
