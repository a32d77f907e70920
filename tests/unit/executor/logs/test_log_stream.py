"""What listeners are told of a log while an engine writes it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from schemas.executor.logs import AttemptLogged
from services.executor.logs import live_stream
from services.executor.logs.engine_log import EngineLog
from services.executor.logs.live_stream import LogStreamer
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.executor import make_start

START = make_start()


@pytest.fixture
def engine_log(tmp_path: Path) -> EngineLog:
    return EngineLog(tmp_path / "engine.log", 8 << 20)


@asynccontextmanager
async def streaming(
    engine_log: EngineLog, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[AttemptLogged]]:
    """What is told, until the block ends and the last of it is told too."""
    told: list[AttemptLogged] = []

    async def publish(message: AttemptLogged) -> None:
        told.append(message)

    monkeypatch.setattr(live_stream, "INTERVAL_SECONDS", 0.005)
    streamer = LogStreamer(command=START, engine_log=engine_log, publish=publish)
    task = asyncio.create_task(streamer.stream())
    yield told
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await streamer.finish()


async def test_lines_come_in_order_unfinished_last(
    engine_log: EngineLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_log.append(b"of an earlier start\n")
    async with streaming(engine_log, monkeypatch) as told:
        for number in range(5):
            engine_log.append(b"line %d\n" % number)
            await eventually(lambda: bool(told) and told[-1].next_offset == engine_log.end)
        engine_log.append(b"unfin")
        engine_log.append(b"ished")

    assert [line for each in told for line in each.lines] == [
        *(f"line {number}" for number in range(5)),
        "unfinished",
    ]
    offsets = [(each.offset, each.next_offset) for each in told]
    assert offsets[0][0] == len("of an earlier start\n")
    assert all(after[0] == before[1] for before, after in pairwise(offsets))
    assert told[-1].next_offset == engine_log.end
    assert told[0].experiment_id == START.experiment_id


async def test_fast_engine_leaves_a_visible_gap(
    engine_log: EngineLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"line {number} of very many that nobody could read" for number in range(60_000)]
    async with streaming(engine_log, monkeypatch) as told:
        engine_log.append("\n".join(lines).encode() + b"\n")
        await eventually(lambda: bool(told) and told[-1].next_offset == engine_log.end)

    heard = [line for each in told for line in each.lines]
    assert heard == lines[-len(heard) :]
    assert told[0].offset > 0
    assert max(len(encode(each)) for each in told) <= 64 * 1024


async def test_failed_publisher_gets_the_next_lines(
    engine_log: EngineLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[AttemptLogged] = []

    async def publish(message: AttemptLogged) -> None:
        if not told and message.offset == 0:
            raise ConnectionError("the bus is away")
        told.append(message)

    streamer = LogStreamer(command=START, engine_log=engine_log, publish=publish)
    engine_log.append(b"unheard\n")
    await streamer.finish()
    engine_log.append(b"heard\n")
    await streamer.finish()

    assert [(each.offset, each.lines) for each in told] == [(8, ("heard",))]
