"""What Litestar and uvicorn alone take for what the gateway does: its peer in the benchmark.

`python -m tests.benchmarks.bare_gateway PORT NATS_URL ANSWER`: what comes on `FRAMES` goes as it is
to every client of `/ws/metrics`, and `GET /api/v1/tasks` is answered by the file's bytes.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import nats
import uvicorn
import uvloop
from litestar import Litestar, MediaType, Response, WebSocket, get, websocket
from litestar.exceptions import WebSocketDisconnect
from nats.aio.msg import Msg

FRAMES: Final = "bare.frames"


async def serve(port: int, nats_url: str, answer: bytes) -> None:
    newest, arrived = "", asyncio.Event()

    async def on_frame(message: Msg) -> None:
        nonlocal newest, arrived
        newest = message.data.decode()
        before, arrived = arrived, asyncio.Event()
        before.set()

    @websocket("/ws/metrics")
    async def follow(socket: WebSocket[Any, Any, Any]) -> None:
        await socket.accept()
        try:
            sent = newest
            while True:
                while sent is newest:  # one may have come while the one before it was sent
                    await arrived.wait()
                sent = newest
                await socket.send_text(sent)
        except WebSocketDisconnect:
            return

    @get("/api/v1/tasks")
    async def tasks() -> Response[bytes]:
        return Response(answer, media_type=MediaType.JSON)

    @get("/healthz")
    async def healthz() -> str:
        return "ok"

    client = await nats.connect(nats_url)
    await client.subscribe(FRAMES, cb=on_frame)
    config = uvicorn.Config(
        Litestar([follow, tasks, healthz], logging_config=None, openapi_config=None),
        port=port,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        lifespan="off",
        access_log=False,
        log_config=None,
    )
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).read_bytes()))
