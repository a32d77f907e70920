"""The built-in load generator against servers that behave, misbehave and vanish."""

import asyncio
import contextlib
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec
from shared.benchmarks.builtin.generator import run_benchmark
from shared.benchmarks.chat_server import LoadLimits
from shared.benchmarks.levels.request_columns import unpack_requests
from shared.benchmarks.metrics import distribution
from shared.benchmarks.tools.adapter import LoadPhase, ModelNotServed, Progress, ServerUnreachable
from shared.benchmarks.traffic import UnsupportedTraffic
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from tests.support.http_server import serving
from tests.support.idle_clock import Clock
from tests.support.processes.inference_engine import running_engine

MODEL = "m"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def simulated(**behaviour: Any) -> AbstractAsyncContextManager[str]:  # any field
    fast: dict[str, Any] = {"model": MODEL, "ttft_seconds": 0.002, "tpot_seconds": 0.0, "slots": 64}
    return serving(SimulatedEngine(Behaviour(**fast | behaviour)).app())


def make_spec(**overrides: Any) -> BenchmarkSpec:  # any field
    few: dict[str, Any] = {
        "traffic_scenarios": ("D(8,4)",),
        "max_requests_per_level": 6,
        "warmup_requests": 0,
    }
    return BenchmarkSpec(**few | overrides)


async def measure(
    base_url: str, spec: BenchmarkSpec, **options: Any
) -> BenchmarkResult:  # passed on
    return await run_benchmark(spec, base_url=base_url, model_name=MODEL, **options)


def answering(handler: Handler) -> AbstractAsyncContextManager[str]:
    """A server whose chat completions are `handler`'s."""

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", handler)
    return serving(app)


@asynccontextmanager
async def answering_bytes(*pieces: bytes, chunked: bool = True) -> AsyncIterator[str]:
    """A server that answers with these pieces, each in a packet of its own, and closes."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
    models = b'{"data":[{"id":"m"}]}'
    end = (b"",) if chunked else ()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if request.startswith(b"GET"):
            length = b"Content-Length: %d\r\n\r\n" % len(models)
            writer.write(b"HTTP/1.1 200 OK\r\n" + length + models)
        else:
            writer.write(head + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
            for piece in (*pieces, *end):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                await asyncio.sleep(0.001)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with asyncio.TaskGroup() as group:
        server = await asyncio.start_server(
            lambda reader, writer: group.create_task(serve(reader, writer)), "127.0.0.1", 0
        )
        async with server:
            yield "http://{}:{}".format(*server.sockets[0].getsockname())


TOKEN = 'data: {"choices":[{"delta":{"content":"né😀"},"finish_reason":null}]}'.encode()
FINISH = b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}'
DONE = b"data: [DONE]"
ENDING_USAGE = USAGE.replace(b'"completion_tokens":4', b'"completion_tokens":21')
ANSWER = [TOKEN, TOKEN, TOKEN, TOKEN, FINISH, USAGE, DONE]


async def test_every_scenario_is_run_at_every_concurrency() -> None:
    spec = make_spec(traffic_scenarios=("D(8,4)", "U(2,5)/(1,3)"), num_concurrency=(1, 3))
    async with simulated() as base_url:
        result = await measure(base_url, spec)

    levels = [(level.scenario, level.num_concurrency) for level in result.levels]
    assert levels == [("D(8,4)", 1), ("D(8,4)", 3), ("U(2,5)/(1,3)", 1), ("U(2,5)/(1,3)", 3)]
    assert {level.num_completed_requests for level in result.levels} == {6}
    assert result.metrics.total_completed_requests == 24
    assert result.metrics.success_rate == 1.0
    assert (result.tool, result.simulated) == ("builtin", True)
    exact = result.levels[0].stats
    assert exact.num_input_tokens is not None
    assert exact.num_output_tokens is not None
    assert (exact.num_input_tokens.min, exact.num_input_tokens.max) == (8, 8)
    assert (exact.num_output_tokens.min, exact.num_output_tokens.max) == (4, 4)


async def test_the_measured_times_are_the_servers(
    idle_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that computing does not hold up, here and in the generator."""
    monkeypatch.setattr(time, "perf_counter", idle_clock)
    first_after: list[float] = []
    last_after: list[float] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        arrived = idle_clock()
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(0.1)
        first_after.append(idle_clock() - arrived)
        for _ in range(20):
            await response.write(TOKEN + b"\n\n")
            await asyncio.sleep(0.01)
        last_after.append(idle_clock() - arrived)
        await response.write(b"\n\n".join([TOKEN, FINISH, ENDING_USAGE, DONE, b""]))
        return response

    spec = make_spec(traffic_scenarios=("D(8,21)",), max_requests_per_level=4, num_concurrency=(2,))
    async with answering(answer) as base_url:
        stats = (await measure(base_url, spec)).levels[0].stats

    first, last = statistics.fmean(first_after), statistics.fmean(last_after)
    assert stats.ttft is not None
    assert stats.tpot is not None
    assert stats.e2e_latency is not None
    assert stats.ttft.mean == pytest.approx(first, abs=0.002)
    assert stats.tpot.mean == pytest.approx((last - first) / 20, rel=0.01)
    assert stats.e2e_latency.mean == pytest.approx(last, abs=0.002)


async def test_exactly_the_wanted_number_is_in_flight() -> None:
    held: list[asyncio.Event] = []
    most_held, arrived = 0, asyncio.Semaphore(0)

    async def hold(_: web.Request) -> web.StreamResponse:
        nonlocal most_held
        let_go = asyncio.Event()
        held.append(let_go)
        most_held = max(most_held, len(held))
        arrived.release()
        await let_go.wait()
        return web.Response(body=b"\n\n".join([*ANSWER, b""]))

    async with answering(hold) as base_url, asyncio.timeout(40):
        spec = make_spec(num_concurrency=(4,), max_requests_per_level=20)
        running = asyncio.create_task(measure(base_url, spec))
        for _ in range(4):
            await arrived.acquire()
        for _ in range(16):
            held.pop(0).set()
            await arrived.acquire()
        for let_go in held:
            let_go.set()
        result = await running

    assert most_held == 4
    assert arrived.locked()
    assert result.metrics.total_completed_requests == 20


async def test_the_warm_up_is_sent_and_not_counted() -> None:
    prompts: list[str] = []
    seen: list[Progress] = []

    async def count(request: web.Request) -> web.StreamResponse:
        prompts.append((await request.json())["messages"][0]["content"])
        await asyncio.sleep(0.05 if len(prompts) <= 5 else 0)
        return web.Response(body=b"\n\n".join([*ANSWER, b""]))

    async with answering(count) as base_url:
        before = datetime.now(UTC)
        spec = make_spec(warmup_requests=5, num_concurrency=(2,))
        result = await measure(base_url, spec, on_progress=seen.append)
        after = datetime.now(UTC)

    level = result.levels[0]
    # Load goes on until the last measured request is answered.
    assert len(prompts) >= 11
    assert len(set(prompts)) == len(prompts)
    assert level.num_requests == 6
    assert level.started_at - before >= timedelta(seconds=0.1)
    assert level.started_at <= level.finished_at <= after
    assert level.finished_at - level.started_at == timedelta(seconds=level.run_duration)
    assert [one.phase for one in seen[:2]] == [LoadPhase.WARMING_UP, LoadPhase.MEASURING]
    assert [one.completed for one in seen[1:]] == [0, 1, 2, 3, 4, 5, 6]
    assert {(one.total, one.failed, one.level_no, one.levels_total) for one in seen} == {
        (6, 0, 1, 1)
    }


async def test_level_ends_in_time_and_drains_requests() -> None:
    spec = make_spec(
        max_time_per_level_seconds=0.5, max_requests_per_level=10_000, num_concurrency=(2,)
    )
    arrivals: list[float] = []
    ends: list[float] = []

    async def answer(_: web.Request) -> web.StreamResponse:
        arrivals.append(time.perf_counter())
        await asyncio.sleep(0.1)
        ends.append(time.perf_counter())
        return web.Response(body=b"\n\n".join([*ANSWER, b""]))

    async with answering(answer) as base_url:
        called = time.perf_counter()
        level = (await measure(base_url, spec)).levels[0]
        took = time.perf_counter() - called

    # Each answer within the time is followed by a request: ten on a machine that is not loaded.
    # The time begins between the call and the first request.
    surely = sum(end - called < 0.35 for end in ends)
    perhaps = sum(end - arrivals[0] < 0.65 for end in ends)
    assert 2 + surely <= len(arrivals) <= 2 + perhaps
    assert level.num_requests == level.num_completed_requests == len(arrivals)
    assert 0.5 <= level.run_duration <= took


async def test_requests_outlasting_the_drain_time_out() -> None:
    spec = make_spec(
        max_time_per_level_seconds=0.1, max_requests_per_level=10_000, num_concurrency=(2,)
    )
    async with simulated(ttft_seconds=30) as base_url:
        result = await measure(base_url, spec, limits=LoadLimits(drain_seconds=0.1))

    assert result.levels[0].error_codes_frequency == {"timeout": 2}
    assert result.metrics.mean_e2e_latency is None


async def test_a_server_that_hangs_is_a_timeout() -> None:
    limits = LoadLimits(request_seconds=0.15)
    async with simulated(hang_after_requests=4) as base_url:
        level = (await measure(base_url, make_spec(), limits=limits)).levels[0]

    assert level.num_completed_requests == 4
    assert level.error_codes_frequency == {"timeout": 2}


async def test_the_error_rate_is_true() -> None:
    async with simulated(error_rate=0.5, cut_rate=0.2, seed=3) as base_url:
        spec = make_spec(max_requests_per_level=60, num_concurrency=(8,))
        level = (await measure(base_url, spec)).levels[0]

    codes = level.error_codes_frequency
    assert set(codes) == {"500", "disconnected"}
    assert 20 <= codes["500"] <= 40
    assert level.num_completed_requests + sum(codes.values()) == level.num_requests == 60
    assert level.error_rate == sum(codes.values()) / 60
    assert level.requests is not None
    rows = unpack_requests(level.requests)
    assert Counter(row.error for row in rows if row.error) == codes
    assert all(row.e2e_latency is not None for row in rows)
    spread = distribution([row.ttft for row in rows if row.ttft is not None])
    assert spread is not None and level.stats.ttft is not None  # noqa: PT018  # both for mypy
    assert spread.p99 == pytest.approx(level.stats.ttft.p99, abs=1e-6)


async def test_dying_server_shows_in_the_error_rate() -> None:
    parameters = {"ttft-seconds": 0.002, "tpot-seconds": 0, "die-after-requests": 10}
    with running_engine("simulated", parameters, model=MODEL) as engine:
        spec = make_spec(max_requests_per_level=25, num_concurrency=(2,))
        level = (await measure(engine.base_url, spec)).levels[0]

    assert 9 <= level.num_completed_requests <= 10
    assert set(level.error_codes_frequency) == {"connect", "disconnected"}
    assert level.num_requests == 25
    assert level.error_rate == level.num_error_requests / 25


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("piece_bytes", [1, 7, 100_000])
async def test_an_answer_is_read_however_it_is_cut(line_end: bytes, piece_bytes: int) -> None:
    lines = [b": ping", *ANSWER] if piece_bytes > 1 else [b": ping", TOKEN, TOKEN, USAGE, DONE]
    body = b"".join(line + line_end * 2 for line in lines)
    pieces = [body[start : start + piece_bytes] for start in range(0, len(body), piece_bytes)]
    async with answering_bytes(*pieces) as base_url:
        level = (await measure(base_url, make_spec(max_requests_per_level=1))).levels[0]

    assert level.error_codes_frequency == {}
    assert level.stats.num_output_tokens is not None
    assert level.stats.num_output_tokens.sum == 4
    assert not level.tokens_estimated


@pytest.mark.parametrize(
    ("lines", "chunked", "want"),
    [
        pytest.param([TOKEN, TOKEN], True, "truncated", id="ended early"),
        pytest.param([TOKEN, TOKEN], False, "truncated", id="closed early without chunks"),
        pytest.param([TOKEN, b"data: {oops", DONE], True, "malformed", id="broken JSON"),
        pytest.param([b"data: 7", DONE], True, "malformed", id="JSON that is no chunk"),
        pytest.param([FINISH, USAGE, DONE], True, "empty", id="no content"),
        pytest.param(
            [TOKEN, b'data: {"error":{"code":500,"message":"oom"}}'], True, "server_error", id="oom"
        ),
    ],
)
async def test_bad_answer_is_an_error(lines: list[bytes], chunked: bool, want: str) -> None:
    async with answering_bytes(*(line + b"\n\n" for line in lines), chunked=chunked) as base_url:
        level = (await measure(base_url, make_spec(max_requests_per_level=2))).levels[0]

    assert level.error_codes_frequency == {want: 2}
    assert level.num_completed_requests == 0


async def test_a_stream_cut_inside_a_chunk_is_an_error() -> None:
    cut = TOKEN + b"\n\n" + TOKEN[:20]
    async with answering_bytes(b"ffff\r\n" + cut, chunked=False) as base_url:
        level = (await measure(base_url, make_spec(max_requests_per_level=1))).levels[0]

    assert level.num_error_requests == 1


async def test_tokens_without_usage_are_estimated() -> None:
    async with simulated(usage=False) as base_url:
        level = (await measure(base_url, make_spec())).levels[0]

    assert level.tokens_estimated
    assert level.stats.num_input_tokens is not None
    assert level.stats.num_output_tokens is not None
    assert level.stats.num_input_tokens.mean == 8
    assert level.stats.num_output_tokens.mean == 4


async def test_free_form_parameters_reach_the_server() -> None:
    bodies: list[dict[str, Any]] = []

    async def keep(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        return web.Response(body=b"\n\n".join([*ANSWER, b""]))

    async with answering(keep) as base_url:
        spec = make_spec(additional_params={"temperature": "0.0", "x": {"y": 1}})
        await measure(base_url, spec)

    assert {body["temperature"] for body in bodies} == {0.0}
    assert bodies[0]["x"] == {"y": 1}
    assert bodies[0]["stream_options"] == {"include_usage": True}
    assert bodies[0]["ignore_eos"] is True
    assert bodies[0]["max_tokens"] == 4


async def test_cancelling_closes_every_connection() -> None:
    open_requests = 0
    all_open, all_closed = asyncio.Event(), asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        nonlocal open_requests
        open_requests += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(TOKEN + b"\n\n")
        if open_requests == 8:
            all_open.set()
        try:
            await asyncio.Event().wait()
        finally:
            open_requests -= 1
            if not open_requests:
                all_closed.set()
        return response

    tasks_before = asyncio.all_tasks()
    async with answering(hang) as base_url:
        spec = make_spec(num_concurrency=(8,), max_requests_per_level=100)
        running = asyncio.create_task(measure(base_url, spec))
        async with asyncio.timeout(40):
            await all_open.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with asyncio.timeout(30):
            await all_closed.wait()
    assert asyncio.all_tasks() == tasks_before


async def test_unserved_model_is_found_before_the_load() -> None:
    async with simulated(model="another") as base_url:
        with pytest.raises(ModelNotServed, match=r"expected 'm' at http.*serves \['another'\]"):
            await measure(base_url, make_spec())


async def test_endless_model_list_is_refused() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 2**20)

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("/endless/v1/models")

    app = web.Application()
    app.router.add_get("/endless/v1/models", endless)
    app.router.add_get("/elsewhere/v1/models", elsewhere)
    async with serving(app) as base_url:
        with pytest.raises(ServerUnreachable, match="at most 8 MiB"):
            await measure(f"{base_url}/endless", make_spec())
        with pytest.raises(ServerUnreachable, match="status 302"):
            await measure(f"{base_url}/elsewhere", make_spec())


async def test_missing_server_is_found_before_the_load() -> None:
    async with simulated() as base_url:
        pass
    with pytest.raises(ServerUnreachable, match="/v1/models"):
        await measure(base_url, make_spec())


@pytest.mark.parametrize(
    "overrides",
    [
        {"task": "text-to-embeddings"},
        {"traffic_scenarios": ("E(5)", "D(1,1)")},
        {"additional_params": {"stream": False}},
    ],
)
async def test_unmeasurable_is_refused_before_sending(
    overrides: dict[str, Any],
) -> None:
    with pytest.raises(UnsupportedTraffic):
        await measure("http://127.0.0.1:9", make_spec(**overrides))


@pytest.mark.long
async def test_a_real_model_is_measured() -> None:
    parameters = {"threads": 1, "parallel": 2, "ctx-size": 1024}
    with running_engine("llamacpp", parameters, model="smollm2-135m") as engine:
        spec = make_spec(
            traffic_scenarios=("D(16,8)",),
            num_concurrency=(1, 2),
            max_requests_per_level=2,
            warmup_requests=1,
            additional_params={"temperature": 0.0},
        )
        result = await run_benchmark(
            spec, base_url=engine.base_url, model_name="smollm2-135m", seed=1
        )

    assert not result.simulated
    assert result.metrics.success_rate == 1.0
    for level in result.levels:
        stats = level.stats
        assert stats.ttft is not None
        assert stats.e2e_latency is not None
        assert stats.num_output_tokens is not None
        assert stats.num_input_tokens is not None
        assert stats.num_output_tokens.sum == 16
        assert 0 < stats.ttft.min < stats.e2e_latency.min
        assert stats.num_input_tokens.max - stats.num_input_tokens.min <= 2
    assert result.levels[0].stats.num_input_tokens is not None
    template_tokens = result.levels[0].stats.num_input_tokens.mean - 16
    assert 20 <= template_tokens <= 40


async def test_long_prompt_does_not_block_the_program() -> None:
    """Made in a thread and in pieces: on the event loop it took a second for each four million."""
    spec = make_spec(traffic_scenarios=("D(400000,1)",), max_requests_per_level=1)
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.002)
            longest = max(longest, loop.time() - before)

    async def swallow(request: web.Request) -> web.StreamResponse:
        async for _ in request.content.iter_any():
            pass
        return web.Response(body=b"\n\n".join([*ANSWER, b""]))

    async with answering(swallow) as base_url:
        ticking = asyncio.create_task(tick())
        started = time.perf_counter()
        result = await measure(base_url, spec)
        took_seconds = time.perf_counter() - started
        ticking.cancel()

    assert result.metrics.total_completed_requests == 1
    # A share, not a time: whatever else this machine does slows both.
    assert longest < 0.5 * took_seconds
