"""What the load generator itself can take on this host, from a server that computes nothing.

`python -m shared.benchmarks.builtin.client_ceiling` is that server: it prints its address.
"""

import asyncio
import contextlib
import os
import random
import sys
from typing import Final

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.arrivals import Load
from shared.benchmarks.builtin.level_load import LevelLoad
from shared.benchmarks.builtin.load_processes import run_parts
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.child_server import run_server
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.tools.adapter import BenchmarkFailed
from shared.benchmarks.traffic import parse_scenario
from shared.lifecycle import die_with_parent

MODEL: Final = "m"
ANSWER_TOKENS: Final = 256
REQUESTS: Final = 200
CLIENTS: Final = 16
LEVEL_SECONDS: Final = 5.0
MAX_DEFAULT: Final = 8
_TITLE: Final = "the server to measure the load generator with"
_MODULE: Final = "shared.benchmarks.builtin.client_ceiling"


def default_processes() -> int:
    """A quarter of the processors that we may use, 1 to 8: the engine needs them too."""
    return max(1, min(MAX_DEFAULT, len(os.sched_getaffinity(0)) // 4))


async def ceiling_tokens_per_s(processes: int = 1, pieces: int = ANSWER_TOKENS) -> float:
    """Streamed tokens per second, of answers that come in so many pieces. Raises BenchmarkFailed.

    Each token by itself is what an engine sends, and what costs most.
    """
    spec = BenchmarkSpec(max_requests_per_level=REQUESTS, max_time_per_level_seconds=LEVEL_SECONDS)
    load, scenario = Load(CLIENTS), f"D(16,{ANSWER_TOKENS})"
    async with (
        run_server(_TITLE, _MODULE, str(pieces)) as base_url,
        ChatServer(base_url=base_url, model_name=MODEL) as server,
    ):
        if processes > 1:
            outcome = await run_parts(server, scenario, load, spec, 0, processes, _ignore)
        else:
            level = LevelLoad(
                server=server,
                load=load,
                sizes=parse_scenario(scenario),
                rng=random.Random(0),  # noqa: S311  # no secret
                spec=spec,
                on_change=lambda: None,
            )
            await level.run()
            outcome = level.outcome()
    answered = [record for record in outcome.records if isinstance(record.outcome, RequestSample)]
    if not answered:
        raise BenchmarkFailed("the load generator could not be measured: nothing was answered")
    seconds = max(record.ended for record in answered) - outcome.started
    return len(answered) * ANSWER_TOKENS / max(seconds, 1e-3)


def _ignore(completed: int, failed: int) -> None: ...


async def _serve(pieces: int) -> None:
    """Answers at once with what a stream looks like."""
    token = b'data: {"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'
    usage = b'{"prompt_tokens":16,"completion_tokens":%d}' % ANSWER_TOKENS
    end = b'data: {"choices":[],"usage":' + usage + b"}\n\ndata: [DONE]\n\n"
    models = b'{"data":[{"id":"%s"}]}' % MODEL.encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /v1/models"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(models))
                writer.write(models)
            elif head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                for _ in range(pieces):
                    writer.write(token * (ANSWER_TOKENS // pieces))
                    await writer.drain()
                    await asyncio.sleep(0)
                writer.write(end)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sys.stdout.write("http://{}:{}\n".format(*server.sockets[0].getsockname()))
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    die_with_parent()
    asyncio.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
