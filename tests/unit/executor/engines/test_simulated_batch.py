"""The simulated engine's batching: closed forms, and the rules of batch, KV cache and prefixes."""

import asyncio
from typing import Any

import pytest

from shared.engines.simulated.batch import (
    BatchedRequest,
    BatchScheduler,
    BatchSpeed,
)
from shared.engines.simulated.batch_server import BatchRunner
from shared.engines.simulated.server import Behaviour
from tests.support.known_servers.batch_truth import (
    closed_loop,
    idle_tpot_seconds,
    idle_ttft_seconds,
    open_loop,
)
from tests.support.virtual_time import run_virtually


def make_speed(**overrides: Any) -> BatchSpeed:  # any field
    fields: dict[str, Any] = {
        "step_seconds": 0.01,
        "prefill_token_seconds": 0.0001,
        "kv_token_seconds": 0.000001,
    }
    return BatchSpeed(**fields | overrides)


def request(name: str, prompt: int = 32, output: int = 4) -> BatchedRequest:
    words = [f"{name}{place}" for place in range(prompt)]
    return BatchedRequest(prompt=words, output_tokens=output)


def serve_all(scheduler: BatchScheduler) -> float:
    seconds = 0.0
    while (step := scheduler.step()) is not None:
        seconds += step.seconds
    return seconds


def test_lone_request_takes_closed_form_time() -> None:
    speed = make_speed()

    [alone] = closed_loop(speed, (100, 50), clients=1, requests=1, travel_seconds=0)

    assert alone.ttft == pytest.approx(idle_ttft_seconds(speed, 100))
    assert alone.e2e == pytest.approx(alone.ttft + 49 * idle_tpot_seconds(speed, 100, 50))


def test_simultaneous_prompts_delay_each_other() -> None:
    speed = make_speed()

    burst = open_loop(speed, (100, 10), [0.0] * 8, 0)

    assert {round(each.ttft, 6) for each in burst} == {round(0.01 + 800 * 0.0001, 6)}


def test_a_long_prompt_is_computed_in_pieces() -> None:
    scheduler = BatchScheduler(make_speed(batch_tokens=64))
    scheduler.add(request("a", prompt=150, output=1))

    steps = [scheduler.step() for _ in range(4)]

    assert [step is not None and len(step.emitting) for step in steps] == [0, 0, 1, False]


def test_full_kv_cache_preempts_last_but_serves_it() -> None:
    scheduler = BatchScheduler(make_speed(kv_tokens=80))
    first, second = request("a", output=20), request("b", output=20)
    scheduler.add(first)
    scheduler.add(second)

    serve_all(scheduler)

    assert scheduler.preemptions == 1
    assert (first.generated, second.generated) == (20, 20)
    assert scheduler.generated_tokens == 40
    assert scheduler.kv_tokens_used == 0


def test_known_prefix_is_computed_once_until_reset() -> None:
    scheduler = BatchScheduler(make_speed(prefix_cache=True, kv_token_seconds=0))
    taken = []
    for reset in (False, False, True):
        if reset:
            assert scheduler.reset_prefix_cache()
        scheduler.add(request("same", prompt=64, output=1))
        taken.append(serve_all(scheduler))

    # Of 64 tokens, 48 are in whole blocks before the last token.
    assert taken == pytest.approx([0.0164, 0.0116, 0.0164])
    assert (scheduler.prefix_queries, scheduler.prefix_hits) == (192, 48)


def test_a_reset_while_requests_run_is_refused() -> None:
    scheduler = BatchScheduler(make_speed(prefix_cache=True))
    scheduler.add(request("a"))

    assert not scheduler.reset_prefix_cache()


def test_a_batch_size_is_compiled_once() -> None:
    scheduler = BatchScheduler(make_speed(compile_seconds=1.0, prefill_token_seconds=0))

    scheduler.add(request("a", output=2))
    first = serve_all(scheduler)
    scheduler.add(request("b", output=2))
    second = serve_all(scheduler)

    assert first - second == pytest.approx(1.0)


def test_real_time_run_matches_timing_rules() -> None:
    """The runner on the loop's clock against the rules alone, from idle to far beyond the slots."""
    speed = make_speed(slots=4, kv_tokens=400)
    travel = 0.001
    arrivals = [0.0137 * place for place in range(60)]
    want = open_loop(speed, (40, 12), arrivals, travel)

    async def measure() -> list[tuple[float, float]]:
        runner, loop = BatchRunner(speed), asyncio.get_running_loop()

        async def one(name: int) -> tuple[float, float]:
            await asyncio.sleep(arrivals[name] + travel)
            first = None
            async for _ in runner.generate([f"{name}-{place}" for place in range(40)], 12):
                first = first or loop.time()
            assert first is not None
            sent = arrivals[name]
            return first + travel - sent, loop.time() + travel - sent

        return await asyncio.gather(*map(one, range(60)))

    got = run_virtually(measure())

    assert sorted(got) == [pytest.approx(each) for each in sorted((w.ttft, w.e2e) for w in want)]


def test_more_devices_divide_what_a_step_takes() -> None:
    assert Behaviour().batch_speed is None

    speed = Behaviour(step_seconds=0.02, prefill_token_seconds=0.002, tp_size=2).batch_speed

    assert speed is not None
    assert (speed.step_seconds, speed.prefill_token_seconds) == (0.01, 0.001)
