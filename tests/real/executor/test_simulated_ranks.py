"""Simulated engines of several nodes: none serves without the others, and all end together."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import pytest

from services.executor.engines.engine_table import build_command, engine_named
from services.executor.host.addresses import free_port
from shared.engines.simulated.ranks import LOST_STATUS, Place
from shared.testing import eventually

SIZE = 3


@contextmanager
def engine(rank: int, leader_port: int, http_port: int = 0) -> Iterator["subprocess.Popen[bytes]"]:
    flags = engine_named("simulated").rank_flags
    assert flags is not None
    parameters = flags(rank, SIZE, "127.0.0.1", leader_port)
    command = build_command("simulated", "m", {}, port=http_port, rank_parameters=parameters)
    process = subprocess.Popen(
        command.argv, env={**os.environ, **command.env}, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)


async def status(port: int) -> int:
    try:
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.get(f"http://127.0.0.1:{port}/health") as response,
        ):
            return response.status
    except aiohttp.ClientError:
        return 0


@pytest.mark.long
async def test_ranks_serve_when_complete_and_end_together() -> None:
    leader_port, port = free_port(), free_port()

    async def is_ready() -> bool:
        return await status(port) == 200

    async def is_waiting() -> bool:
        return await status(port) == 503

    with engine(1, leader_port) as first, engine(0, leader_port, port) as leader:
        await eventually(is_waiting, what="a leader that waits")
        with engine(2, leader_port) as second:
            await eventually(is_ready, what="an engine of all ranks")
            second.kill()
            codes = [await asyncio.to_thread(each.wait, 5) for each in (leader, first)]

    assert codes == [LOST_STATUS, LOST_STATUS]


@pytest.mark.parametrize(
    ("rank", "met_at"), [(2, "127.0.0.1:1"), (1, ""), (1, "127.0.0.1"), (1, "127.0.0.1:http")]
)
def test_rank_without_known_place_does_not_start(rank: int, met_at: str) -> None:
    with pytest.raises(ValueError, match=r"expected a rank of 2|invalid literal"):
        Place.parse(rank, 2, met_at)
