"""What every engine that ships with us does, whichever it is."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.executor.engines.engine_table import build_command
from shared.benchmarks.builtin.chat_stream import ChatStream
from tests.support.processes.inference_engine import EngineProcess, require_engine, running_engine

ENGINES: dict[str, dict[str, Any]] = {
    "llamacpp": {"threads": 1, "parallel": 2, "ctx-size": 1024},
    "simulated": {"ttft-seconds": 0.005, "tpot-seconds": 0.001},
}
MODEL = "smollm2-135m"
# llama.cpp takes a second of processor time to start.
ENDING = pytest.mark.parametrize(
    "name", [pytest.param("llamacpp", marks=pytest.mark.long), "simulated"]
)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[EngineProcess]:
    with running_engine(request.param, ENGINES[request.param], model=MODEL) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as opened:
        yield opened


def chat(**overrides: Any) -> dict[str, Any]:  # a free-form body
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "name one fruit"}],
        "max_tokens": 12,
        "ignore_eos": True,
    }
    return body | overrides


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


async def test_it_is_healthy_once_it_listens(
    engine: EngineProcess, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{engine.base_url}/health") as response:
        assert response.status == 200


async def test_it_lists_the_model_under_the_served_name(
    engine: EngineProcess, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{engine.base_url}/v1/models") as response:
        models = await response.json()

    assert [model["id"] for model in models["data"]] == [MODEL]


async def test_streamed_answer_has_length_and_usage(
    engine: EngineProcess, session: aiohttp.ClientSession
) -> None:
    stream = ChatStream()
    loop = asyncio.get_running_loop()

    body = chat(**STREAMED)
    async with session.post(f"{engine.base_url}/v1/chat/completions", json=body) as response:
        async for chunk in response.content.iter_any():
            stream.feed(chunk, loop.time())

    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert stream.close(loop.time()) is None
    assert stream.usage is not None
    assert stream.usage.completion_tokens == 12
    assert stream.usage.prompt_tokens >= 3
    assert 6 <= stream.content_chunks <= 12


async def test_a_whole_answer_has_the_wanted_length(
    engine: EngineProcess, session: aiohttp.ClientSession
) -> None:
    url = f"{engine.base_url}/v1/chat/completions"
    async with session.post(url, json=chat(max_tokens=7)) as response:
        answer = await response.json()

    assert answer["usage"]["completion_tokens"] == 7
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["content"]


async def test_broken_body_is_an_error_next_one_works(
    engine: EngineProcess, session: aiohttp.ClientSession
) -> None:
    url = f"{engine.base_url}/v1/chat/completions"
    async with session.post(url, data=b'{"messages": [') as broken:
        answer = await broken.json()
    async with session.post(url, json=chat(max_tokens=2)) as following:
        assert following.status == 200

    assert broken.status in {400, 500}
    assert answer["error"]["message"]


@ENDING
async def test_sigterm_ends_engine_during_an_answer(
    name: str, session: aiohttp.ClientSession
) -> None:
    with running_engine(name, ENGINES[name], model=MODEL) as engine:
        body = chat(max_tokens=900, **STREAMED)
        async with session.post(f"{engine.base_url}/v1/chat/completions", json=body) as response:
            await response.content.readany()
            engine.process.send_signal(signal.SIGTERM)
            returncode = await asyncio.to_thread(engine.process.wait, 2)
            with contextlib.suppress(aiohttp.ClientError):
                await response.read()

    assert returncode == -signal.SIGTERM


STARTER = """
import os, subprocess, sys
engine = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
print(engine.pid, engine.stdout.readline(), end="", flush=True)
sys.stdin.read()
"""


@ENDING
def test_it_dies_with_the_process_that_started_it(name: str) -> None:
    require_engine(name)
    command = build_command(name, MODEL, ENGINES[name], port=0)
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, *command.argv],
        env={**os.environ, **command.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        pid, said = starter.stdout.readline().split(maxsplit=1)
        assert said.startswith("listening on")

        starter.kill()

    deadline = time.monotonic() + 5
    while is_running(int(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
