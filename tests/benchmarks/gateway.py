"""How many clients one gateway serves, and how late.

`make bench NAME=gateway`; `python -m tests.benchmarks.gateway 100` with fewer clients. The gateway
is a process of its own. This one publishes a node's samples, answers for owners and holds every
client, as raw frames: on two cores it has the other one. Litestar and uvicorn alone
(`bare_gateway`) are measured alike, with the same bytes, in the same run.

The last line is one JSON object:

`ws_p99_ms`: from the publication of a sample, at 10 Hz, to each of 1,000 clients of `/ws/metrics`.
`ws_lost`: samples that a client was not sent, because a newer one had replaced them.
`view_age_p99_s`: how old the newest sample that a client has is at any moment, at 1 Hz.
`requests_per_s`: `GET /api/v1/tasks`, a page of 20, over 32 connections that all ask the same, as
open pages do after an event. `different_request_cpu_ms`: each asks with a `limit` of its own.
`ws_cores`, `ws_sample_us`, `request_cpu_ms`: processor time of the gateway: for the clients at
10 Hz, for one sample to one of them, and for one request. `ws_client_cores` is what all clients
and the publisher together take, in this process. `bare_...` are the same figures of the peer.

`token_request_cpu_ms` and `oidc_request_cpu_ms`: the same request by a token of the platform and by
an access token of an OpenID provider, in turns at one gateway; `oidc_request_cpu_over_token` is the
median of their ratios, and `oidc_request_p50_over_token` that of the median times.
"""

import asyncio
import base64
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, cast

import aiohttp
import nats
import psutil
import uvloop
from typing_extensions import override

from schemas.base import subject_for
from schemas.orchestrator.views import ListTasks, TaskList
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import NatsServer, PostgresServer, eventually, short_directory
from tests.benchmarks.bare_gateway import FRAMES
from tests.benchmarks.processor_time import cpu_seconds
from tests.support.fakes.openid_provider import AUDIENCE, CLIENT, local_provider
from tests.support.ports import free_port
from tests.support.worlds.gateway import Owners, make_sample, make_task_view

CLIENTS: Final = 1000
SECONDS: Final = 10
CONNECTIONS: Final = 32
PAGE: Final = 20
LOOK_SECONDS: Final = 0.05
TURNS: Final = 5
TURN_SECONDS: Final = 3.0
START_SECONDS: Final = 120
SEQUENCE: Final = re.compile(rb'"sequence":(\d+)')
PING: Final = 0x89
PONG: Final = 0x8A
MASK_OF_ZEROS: Final = bytes(4)
LENGTH: Final = re.compile(rb"content-length: (\d+)", re.IGNORECASE)

Publish = Callable[[int], Awaitable[None]]


class Follower(asyncio.Protocol):
    """A WebSocket's frames, as raw as they come: a client library would be what is measured."""

    def __init__(self, port: int, path: str = "/ws/metrics") -> None:
        self.port = port
        self.path = path
        self.is_open = False
        self.newest = 0
        self.frame = b""
        self.received: list[tuple[int, float]] = []
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._transport.write(request.encode())

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.is_open:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self.is_open, self._buffer = True, rest
        while (size := self._frame_size()) is not None and len(self._buffer) >= size:
            if self._buffer[0] == PING and self._transport is not None:
                # With what the ping said: a server that waits for it hangs up in the end.
                said = bytes(self._buffer[2:size])
                self._transport.write(bytes((PONG, 0x80 | len(said))) + MASK_OF_ZEROS + said)
            self.on_frame(bytes(self._buffer[4:size]))
            del self._buffer[:size]

    def on_frame(self, frame: bytes) -> None:
        if (match := SEQUENCE.search(frame)) is not None:
            self.newest = int(match[1])
            self.frame = frame
            self.received.append((self.newest, time.perf_counter()))

    def _frame_size(self) -> int | None:
        if len(self._buffer) < 4:
            return None
        length = self._buffer[1]
        return length + 2 if length < 126 else int.from_bytes(self._buffer[2:4], "big") + 4


class Asker(asyncio.Protocol):
    """The same request again as soon as it is answered."""

    def __init__(self, port: int, token: str | None = None, query: str = "") -> None:
        login = f"Authorization: Bearer {token}\r\n" if token is not None else ""
        place = f"Host: 127.0.0.1:{port}\r\n{login}"
        self.request = f"GET /api/v1/tasks{query} HTTP/1.1\r\n{place}\r\n".encode()
        self.answered = 0
        self.seconds: list[float] = []
        self._sent_at = 0.0
        self.body = b""
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is none by name
        self._sent_at = time.perf_counter()
        self._transport.write(self.request)

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        assert head.startswith(b"HTTP/1.1 200"), self._buffer
        length = LENGTH.search(head)
        assert length is not None
        if len(body) == int(length[1]):
            self.answered += 1
            now = time.perf_counter()
            self.seconds.append(now - self._sent_at)
            self._sent_at = now
            self.body = bytes(body)
            self._buffer.clear()
            assert self._transport is not None
            self._transport.write(self.request)


@dataclass(frozen=True)
class Server:
    """A process that serves HTTP, seen from outside."""

    port: int
    process: psutil.Process

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process)


@asynccontextmanager
async def a_server(log: Path, port: int, *command: str, **variables: str) -> AsyncIterator[Server]:
    with log.open("wb") as output:
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", *command],
            env={**os.environ, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        async with aiohttp.ClientSession() as session:

            async def answers() -> bool:
                try:
                    async with session.get(f"http://127.0.0.1:{port}/healthz") as response:
                        return response.status == 200
                except aiohttp.ClientError:
                    assert process.poll() is None, f"{command} ended: {log}"
                    return False

            await eventually(answers, within_seconds=START_SECONDS, what="a server")
        yield Server(port, psutil.Process(process.pid))
    finally:
        process.kill()  # it would wait for the clients
        process.wait()


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


async def publish_for(
    seconds: float, first: int, rate: float, publish: Publish
) -> dict[int, float]:
    """When each sample was published."""
    sent: dict[int, float] = {}
    began = time.perf_counter()
    for number in range(int(seconds * rate)):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        sent[first + number] = time.perf_counter()
        await publish(first + number)
    return sent


async def connect(port: int, clients: int) -> list[Follower]:
    loop = asyncio.get_running_loop()
    followers = []
    for _ in range(clients):
        _, follower = await loop.create_connection(lambda: Follower(port), "127.0.0.1", port)
        followers.append(follower)
    await eventually(
        lambda: all(each.is_open for each in followers),
        within_seconds=START_SECONDS,
        what="every client",
    )
    return followers


async def measure_fast(
    server: Server,
    followers: list[Follower],
    publish: Publish,
    first: int = 1,
    seconds: float = SECONDS,
) -> dict[str, float]:
    before, own_before, began = server.cpu_seconds(), time.process_time(), time.perf_counter()
    for follower in followers:
        follower.received.clear()
    sent = await publish_for(seconds, first, 10.0, publish)
    last = max(sent)
    await eventually(
        lambda: all(each.newest == last for each in followers),
        within_seconds=START_SECONDS,
        what="the last sample at every client",
    )
    taken, cpu = time.perf_counter() - began, server.cpu_seconds() - before
    own_cpu = time.process_time() - own_before
    late = [at - sent[number] for each in followers for number, at in each.received]
    lost = sum(len(sent) - len({number for number, _ in each.received}) for each in followers)
    return {
        "ws_p99_ms": round(p99(late) * 1000, 1),
        "ws_lost": lost,
        "ws_cores": round(cpu / taken, 2),
        "ws_sample_us": round(cpu / len(late) * 1e6, 1),
        "ws_client_cores": round(own_cpu / taken, 2),
    }


async def measure_age(followers: list[Follower], publish: Publish) -> float:
    first = 10_000
    publishing = asyncio.create_task(publish_for(SECONDS, first, 1.0, publish))
    await eventually(
        lambda: all(each.newest >= first for each in followers),
        within_seconds=START_SECONDS,
        what="the first sample at every client",
    )
    looks: list[tuple[float, list[int]]] = []
    while not publishing.done():
        await asyncio.sleep(LOOK_SECONDS)
        looks.append((time.perf_counter(), [each.newest for each in followers]))
    sent = await publishing
    return p99([at - sent[number] for at, seen in looks for number in seen])


async def measure_requests(
    server: Server,
    token: str | None = None,
    seconds: float = SECONDS,
    queries: Sequence[str] = ("",) * CONNECTIONS,
) -> tuple[dict[str, float], bytes]:
    """The figures, and an answer."""
    loop = asyncio.get_running_loop()
    before, began = server.cpu_seconds(), time.perf_counter()
    connections = [
        await loop.create_connection(
            partial(Asker, server.port, token, query), "127.0.0.1", server.port
        )
        for query in queries
    ]
    await asyncio.sleep(seconds)
    taken, cpu = time.perf_counter() - began, server.cpu_seconds() - before
    for transport, _ in connections:
        transport.close()
    askers = [asker for _, asker in connections]
    answered = sum(asker.answered for asker in askers)
    figures = {
        "requests_per_s": round(answered / taken),
        "request_cpu_ms": round(cpu / answered * 1000, 3),
        "request_p50_ms": round(
            statistics.median(each for asker in askers for each in asker.seconds) * 1000, 3
        ),
    }
    return figures, next(asker.body for asker in askers if asker.body)


async def measure_sign_in(
    home: Path, nats_url: str, dsn: str, turn_seconds: float = TURN_SECONDS
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return each turn's figures of a request by a token of the platform, and by an access token of
    a provider.
    """
    port = free_port()
    mapping = home / "mapping.toml"
    mapping.write_text('[[rule]]\nuser = "root"\nrole = "admin"\n')
    async with (
        local_provider() as provider,
        a_server(
            home / "sign-in.log",
            port,
            "services.gateway",
            GPUSTEWARD_NATS_URL=nats_url,
            GPUSTEWARD_POSTGRES_DSN=dsn,
            GPUSTEWARD_GATEWAY_PORT=str(port),
            GPUSTEWARD_GATEWAY_REQUESTS_PER_SECOND="0",
            GPUSTEWARD_GATEWAY_OIDC_ISSUER=provider.issuer,
            GPUSTEWARD_GATEWAY_OIDC_CLIENT_ID=CLIENT,
            GPUSTEWARD_GATEWAY_OIDC_AUDIENCE=AUDIENCE,
            GPUSTEWARD_GATEWAY_OIDC_MAPPING_FILE=str(mapping),
            GPUSTEWARD_DATA_DIR=str(home),
        ) as server,
        aiohttp.ClientSession() as session,
    ):
        provider.add("root")
        by_provider = provider.access_token("root")
        async with session.post(
            f"http://127.0.0.1:{port}/api/v1/tokens",
            json={"name": "bench", "role": "admin"},
            headers={"Authorization": f"Bearer {by_provider}"},
        ) as response:
            token = (await response.json())["secret"]
        await measure_requests(server, token, 2.0)
        turns = []
        for _ in range(TURNS):
            one, _ = await measure_requests(server, token, turn_seconds)
            other, _ = await measure_requests(server, by_provider, turn_seconds)
            turns.append((one, other))
    return turns


def sign_in_figures(turns: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, float]:
    """Return the medians of all turns, and of their ratios."""

    def median_of(name: str, which: int) -> float:
        return statistics.median(turn[which][name] for turn in turns)

    def ratio_of(name: str) -> float:
        return round(statistics.median(turn[1][name] / turn[0][name] for turn in turns), 3)

    return {
        "token_request_cpu_ms": median_of("request_cpu_ms", 0),
        "oidc_request_cpu_ms": median_of("request_cpu_ms", 1),
        "oidc_request_cpu_over_token": ratio_of("request_cpu_ms"),
        "oidc_request_p50_over_token": ratio_of("request_p50_ms"),
    }


@asynccontextmanager
async def services(home: Path) -> AsyncIterator[tuple[NatsServer, PostgresServer, Owners]]:
    """Yield the servers behind a gateway, and owners that answer for a page of tasks."""
    async with AsyncExitStack() as stack:
        bus, postgres = NatsServer(home / "nats"), PostgresServer(home)
        for server in (bus, postgres):
            await server.start()
            stack.push_async_callback(server.stop)
        owners = Owners(await nats.connect(bus.authenticated_url))
        stack.push_async_callback(owners.client.close)
        await owners.answer(
            ListTasks, TaskList(tasks=tuple(make_task_view(new_id()) for _ in range(PAGE)))
        )
        yield bus, postgres, owners


def our_server(home: Path, nats_url: str, dsn: str) -> AbstractAsyncContextManager[Server]:
    """Return a gateway to be started."""
    port = free_port()
    return a_server(
        home / "gateway.log",
        port,
        "services.gateway",
        GPUSTEWARD_NATS_URL=nats_url,
        GPUSTEWARD_POSTGRES_DSN=dsn,
        GPUSTEWARD_GATEWAY_PORT=str(port),
        GPUSTEWARD_DATA_DIR=str(home),
    )


def bare_server(home: Path, nats_url: str, answer: bytes) -> AbstractAsyncContextManager[Server]:
    """Return its peer to be started, which answers with these bytes."""
    port = free_port()
    (home / "answer").write_bytes(answer)
    command = (str(port), nats_url, str(home / "answer"))
    return a_server(home / "bare.log", port, "tests.benchmarks.bare_gateway", *command)


def sample_publisher(owners: Owners) -> Publish:
    """Return what publishes a node's sample of a number."""

    async def publish(number: int) -> None:
        sample = make_sample(number)
        await owners.client.publish(subject_for(sample), encode(sample))
        await owners.client.flush()

    return publish


def frame_publisher(owners: Owners, frame: bytes) -> Publish:
    """Return what publishes a frame that the gateway sent, with another number, to its peer."""

    async def publish(number: int) -> None:
        await owners.client.publish(FRAMES, SEQUENCE.sub(b'"sequence":%d' % number, frame))
        await owners.client.flush()

    return publish


async def measure(home: Path, clients: int) -> dict[str, float]:
    async with services(home) as (bus, postgres, owners):
        url, publish = bus.authenticated_url, sample_publisher(owners)
        async with our_server(home, url, await postgres.take_database()) as server:
            figures, answer = await measure_requests(server)
            pages = [f"?limit={PAGE + number}" for number in range(CONNECTIONS)]
            different, _ = await measure_requests(server, queries=pages)
            figures["different_request_cpu_ms"] = different["request_cpu_ms"]
            print(figures, flush=True)
            followers = await connect(server.port, clients)
            figures |= await measure_fast(server, followers, publish)
            print(figures, flush=True)
            figures["view_age_p99_s"] = round(await measure_age(followers, publish), 3)
        figures |= sign_in_figures(await measure_sign_in(home, url, await postgres.take_database()))
        print(figures, flush=True)
        async with bare_server(home, url, answer) as server:
            bare, _ = await measure_requests(server)
            bare |= await measure_fast(
                server,
                await connect(server.port, clients),
                frame_publisher(owners, followers[0].frame),
            )
    return {**figures, **{f"bare_{name}": value for name, value in bare.items()}}


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CLIENTS
    with (
        short_directory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        print(json.dumps(runner.run(measure(directory, count))))
