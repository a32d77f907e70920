"""What the simulated engine adds to the contract: its label, and the faults that it can play."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import pytest

from shared.engines.simulated.server import Behaviour, SimulatedEngine
from tests.support.http_server import serving
from tests.support.idle_clock import Clock
from tests.support.processes.inference_engine import running_engine

FAST: dict[str, Any] = {"ttft_seconds": 0.001, "tpot_seconds": 0.0}


def simulated(**behaviour: Any) -> AbstractAsyncContextManager[str]:  # any field
    return serving(SimulatedEngine(Behaviour(**FAST | behaviour)).app())


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=40)) as opened:
        yield opened


async def complete(
    session: aiohttp.ClientSession,
    base_url: str,
    **fields: Any,  # a free-form body
) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 3} | fields
    url = f"{base_url}/v1/chat/completions"
    async with session.post(url, json=body) as response:
        answer: dict[str, Any] = await response.json()
        return answer | {"status": response.status}


async def test_it_calls_itself_simulated_everywhere(session: aiohttp.ClientSession) -> None:
    async with simulated(model="some-model") as base_url:
        async with session.get(f"{base_url}/v1/models") as response:
            models = await response.json()
        answer = await complete(session, base_url)

    assert models["data"][0]["simulated"] is True
    assert models["data"][0]["owned_by"] == "simulated"
    assert answer["system_fingerprint"] == "simulated"


async def test_prompt_tokens_are_words_and_answer_ends(
    session: aiohttp.ClientSession,
) -> None:
    async with simulated() as base_url:
        short = await complete(session, base_url)
        ended = await complete(session, base_url, max_tokens=500)
        forced = await complete(session, base_url, max_tokens=500, ignore_eos=True)

    assert short["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert (ended["usage"]["completion_tokens"], ended["choices"][0]["finish_reason"]) == (
        64,
        "stop",
    )
    assert forced["usage"]["completion_tokens"] == 500


async def test_requests_beyond_the_slots_wait(
    session: aiohttp.ClientSession, idle_clock: Clock
) -> None:
    async with simulated(ttft_seconds=0.1, slots=2) as base_url:
        ends: list[float] = []

        async def complete_one() -> None:
            await complete(session, base_url)
            ends.append(idle_clock() - started)

        started = idle_clock()
        await asyncio.gather(*(complete_one() for _ in range(6)))

    assert ends == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3], abs=0.02)


async def test_more_devices_make_it_faster(
    session: aiohttp.ClientSession, idle_clock: Clock
) -> None:
    async with simulated(ttft_seconds=0.4, tp_size=4) as base_url:
        started = idle_clock()
        await complete(session, base_url)
        elapsed_seconds = idle_clock() - started

    assert elapsed_seconds == pytest.approx(0.1, abs=0.02)


async def test_slow_start_is_unhealthy_until_over(session: aiohttp.ClientSession) -> None:
    async with simulated(start_delay_seconds=0.3) as base_url:
        refused = await complete(session, base_url)
        statuses: list[int] = []
        async with asyncio.timeout(5):
            while not statuses or statuses[-1] != 200:
                async with session.get(f"{base_url}/health") as response:
                    statuses.append(response.status)
                await asyncio.sleep(0.02)
        answered = await complete(session, base_url)

    assert refused["status"] == 503
    assert statuses[0] == 503
    assert answered["status"] == 200


async def test_it_fails_the_set_share_of_requests(session: aiohttp.ClientSession) -> None:
    async with simulated(error_rate=0.3, seed=5) as base_url:
        statuses = [(await complete(session, base_url))["status"] for _ in range(100)]

    assert set(statuses) == {200, 500}
    assert 15 <= statuses.count(500) <= 45


async def test_it_hangs_and_dies_when_it_was_told_to(session: aiohttp.ClientSession) -> None:
    async with simulated(hang_after_requests=1) as base_url:
        first = await complete(session, base_url)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await complete(session, base_url)
    with running_engine("simulated", {"die-after-requests": 1}, model="m") as engine:
        await complete(session, engine.base_url)
        with pytest.raises(aiohttp.ClientError):
            await complete(session, engine.base_url)
        returncode = await asyncio.to_thread(engine.process.wait, 5)

    assert first["status"] == 200
    assert returncode == 1


def test_it_can_ignore_sigterm() -> None:
    with running_engine("simulated", {"ignore-sigterm": True}, model="m") as engine:
        engine.process.send_signal(signal.SIGTERM)

        with pytest.raises(subprocess.TimeoutExpired):
            engine.process.wait(0.3)


async def test_a_client_that_leaves_gives_its_slot_back(
    session: aiohttp.ClientSession, idle_clock: Clock
) -> None:
    async with simulated(ttft_seconds=0.01, tpot_seconds=0.2, slots=1) as base_url:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await complete(session, base_url, max_tokens=60)
        started = idle_clock()
        await complete(session, base_url, max_tokens=1)
        took = idle_clock() - started

    assert took < 2


@pytest.mark.parametrize(
    ("dialect", "path", "counter", "want"),
    [
        ("vllm", "/reset_prefix_cache", "vllm:prefix_cache_hits_total", (200, '{"success": %s}')),
        ("sglang", "/flush_cache", "sglang:cached_tokens_total", (200, "Cache flushed.")),
    ],
)
async def test_batching_engine_counts_prefix_hits_and_resets(
    session: aiohttp.ClientSession, dialect: str, path: str, counter: str, want: tuple[int, str]
) -> None:
    words = " ".join(f"word{place}" for place in range(40))
    prompt = {"messages": [{"role": "user", "content": words}]}
    hits, answer = [], (0, "")
    async with simulated(step_seconds=0.001, prefix_cache=True, dialect=dialect) as base_url:
        for round_no in range(3):
            if round_no == 2:
                async with session.post(f"{base_url}{path}") as reset:
                    answer = reset.status, await reset.text()
            await complete(session, base_url, **prompt)
            async with session.get(f"{base_url}/metrics") as page:
                lines = (await page.text()).splitlines()
            hits += [int(line.split()[-1]) for line in lines if line.startswith(counter)]

    assert hits == [0, 32, 32]
    assert answer == (want[0], want[1].replace("%s", "true"))


@pytest.mark.parametrize(
    ("dialect", "path", "want"),
    [
        ("vllm", "/reset_prefix_cache", (200, '{"success": false}')),
        ("sglang", "/flush_cache", (400, "Flush cache failed: requests are running.")),
    ],
)
async def test_refused_cache_reset_reads_like_engines(
    session: aiohttp.ClientSession, dialect: str, path: str, want: tuple[int, str]
) -> None:
    async with (
        simulated(step_seconds=0.001, dialect=dialect, cache_reset="refused") as base_url,
        session.post(f"{base_url}{path}") as reset,
    ):
        answer = reset.status, await reset.text()

    assert answer == want


async def test_a_request_beyond_the_kv_cache_is_refused(session: aiohttp.ClientSession) -> None:
    async with simulated(step_seconds=0.001, kv_tokens=5) as base_url:
        refused = await complete(session, base_url, max_tokens=3)
        served = await complete(session, base_url, max_tokens=2)

    assert (refused["status"], served["status"]) == (400, 200)
