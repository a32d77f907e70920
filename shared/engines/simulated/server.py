"""A simulated OpenAI-compatible engine: no model, settable speed and settable faults.

`python -m shared.engines.simulated.server --ttft-seconds 0.05`. It calls itself
simulated in `/v1/models` and in every `system_fingerprint`. Its prompt tokens are words. With
`--step-seconds` it batches: times follow from the load (`simulated_batch.py`).
"""

import argparse
import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

import msgspec
from aiohttp import web

from shared.engines.flags import server_parser
from shared.engines.simulated.batch import ANSWER_WORD, BatchSpeed
from shared.engines.simulated.batch_server import BatchRoutes, BatchRunner
from shared.engines.simulated.behaviour import answer_words, compile_once
from shared.engines.simulated.flags import FLAGS, CacheReset, Dialect
from shared.engines.simulated.ranks import LOST_STATUS, Leader, Place, RankLost, follow, say
from shared.engines.simulated.requests import (
    ChatRequest,
    EmbeddingsRequest,
    RerankRequest,
    WholeRequest,
)
from shared.lifecycle import die_with_parent
from shared.tls.contexts import make_server_context

FINGERPRINT: Final = "simulated"
MAX_BODY_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What the engine pretends. `None` for a count means never."""

    model: str = "simulated"
    ttft_seconds: float = 0.02
    tpot_seconds: float = 0.002
    item_seconds: float = 0.0
    slots: int = 8
    tp_size: int = 1
    error_rate: float = 0.0
    cut_rate: float = 0.0
    hang_after_requests: int | None = None
    die_after_requests: int | None = None
    start_delay_seconds: float = 0.0
    start_compile_seconds: float = 0.0
    ignore_sigterm: bool = False
    usage: bool = True
    piece_tokens: int = 1
    reasoning_field: str = ""
    seed: int = 0
    answer_drift: float = 0.0
    adapters: int = 0
    step_seconds: float | None = None
    prefill_token_seconds: float = 0.0
    kv_token_seconds: float = 0.0
    compile_seconds: float = 0.0
    kv_tokens: int | None = None
    batch_tokens: int = 2048
    prefix_cache: bool = False
    dialect: str = Dialect.VLLM
    cache_reset: str = CacheReset.WORKS

    @property
    def batch_speed(self) -> BatchSpeed | None:
        """The timing model of its batches; None if it does not batch."""
        if self.step_seconds is None:
            return None
        return BatchSpeed(
            step_seconds=self.step_seconds / self.tp_size,
            prefill_token_seconds=self.prefill_token_seconds / self.tp_size,
            kv_token_seconds=self.kv_token_seconds / self.tp_size,
            compile_seconds=self.compile_seconds,
            slots=self.slots,
            kv_tokens=self.kv_tokens,
            batch_tokens=self.batch_tokens,
            prefix_cache=self.prefix_cache,
        )


@dataclass(slots=True)
class SimulatedEngine:
    """The handlers of one engine. Constructed inside the event loop that serves it."""

    behaviour: Behaviour
    leader: Leader | None = None
    _served: int = 0
    _ready_at: float = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _random: random.Random = field(init=False)
    _batch: BatchRunner | None = None

    def __post_init__(self) -> None:
        self._ready_at = asyncio.get_running_loop().time() + self.behaviour.start_delay_seconds
        self._slots = asyncio.Semaphore(self.behaviour.slots)
        self._random = random.Random(self.behaviour.seed)  # noqa: S311  # faults are to be repeatable
        if (speed := self.behaviour.batch_speed) is not None:
            self._batch = BatchRunner(speed)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_post("/v1/embeddings", self.embed)
        app.router.add_post("/v1/rerank", self.rerank)
        if self.behaviour.cache_reset != CacheReset.ABSENT:
            app.router.add_post("/reset", self.reset)
        if self._batch is not None:
            BatchRoutes(
                self._batch,
                self.behaviour.model,
                Dialect(self.behaviour.dialect),
                CacheReset(self.behaviour.cache_reset),
            ).add_to(app)
        return app

    async def health(self, _: web.Request) -> web.Response:
        """200 once the start delay is over and all ranks are there, 503 before."""
        if self._is_starting:
            return _error(503, "loading (simulated)", "unavailable_error")
        return web.json_response({"status": "ok", "simulated": True})

    async def reset(self, _: web.Request) -> web.Response:
        """Forget what was asked before; 503 while it is asked, or where a refusal was wanted."""
        is_done = self.behaviour.cache_reset != CacheReset.REFUSED
        if self._batch is not None and self.behaviour.cache_reset == CacheReset.WORKS:
            is_done = self._batch.scheduler.reset_prefix_cache()
        return web.json_response({"success": is_done}, status=200 if is_done else 503)

    async def models(self, _: web.Request) -> web.Response:
        names = [
            self.behaviour.model,
            *(f"adapter-{number}" for number in range(1, self.behaviour.adapters + 1)),
        ]
        models = [
            {"id": name, "object": "model", "owned_by": FINGERPRINT, "simulated": True}
            for name in names
        ]
        return web.json_response({"object": "list", "data": models})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """A chat completion of the wanted length at the set speed, or the fault that is due."""
        return await self._serve(request, ChatRequest)

    async def embed(self, request: web.Request) -> web.StreamResponse:
        """A vector for each input, all at once."""
        return await self._serve(request, EmbeddingsRequest)

    async def rerank(self, request: web.Request) -> web.StreamResponse:
        """A score for each document, all at once."""
        return await self._serve(request, RerankRequest)

    async def _serve(
        self,
        request: web.Request,
        kind: type[ChatRequest] | type[EmbeddingsRequest] | type[RerankRequest],
    ) -> web.StreamResponse:
        if self._is_starting:
            return _error(503, "loading (simulated)", "unavailable_error")
        try:
            body = msgspec.json.decode(await request.read(), type=kind)
        except msgspec.DecodeError as error:
            return _error(400, str(error), "invalid_request_error")
        self._served += 1
        if _is_beyond(self._served, self.behaviour.hang_after_requests):
            await asyncio.Event().wait()
        if self._random.random() < self.behaviour.error_rate:
            return _error(500, "an error that was asked for (simulated)", "server_error")
        is_cut = self._random.random() < self.behaviour.cut_rate
        is_last = _is_beyond(self._served, self.behaviour.die_after_requests)
        if self._batch is not None:
            if not self._batch.scheduler.fits(len(body.prompt), _count_answer(body)):
                return _error(400, "longer than the KV cache (simulated)", "invalid_request_error")
            return await self._reply(request, body, is_cut=is_cut, is_last=is_last)
        async with self._slots:
            return await self._reply(request, body, is_cut=is_cut, is_last=is_last)

    async def _reply(
        self,
        request: web.Request,
        body: ChatRequest | EmbeddingsRequest | RerankRequest,
        *,
        is_cut: bool,
        is_last: bool,
    ) -> web.StreamResponse:
        if not isinstance(body, ChatRequest):
            return await self._answer_whole(request, body, is_cut=is_cut, is_last=is_last)
        answer = self._stream if body.stream else self._answer
        return await answer(request, body, is_cut=is_cut, is_last=is_last)

    async def _answer_whole(
        self, request: web.Request, body: WholeRequest, *, is_cut: bool, is_last: bool
    ) -> web.StreamResponse:
        async for _ in self._tokens(body):
            if is_cut or is_last:
                _break_off(request, is_last=is_last)
        results = body.make_results() | {"model": self.behaviour.model}
        if self.behaviour.usage:
            tokens = len(body.prompt)
            results["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
        return web.json_response(results | {"system_fingerprint": FINGERPRINT})

    @property
    def _is_starting(self) -> bool:
        is_alone = self.leader is not None and not self.leader.complete.is_set()
        return is_alone or asyncio.get_running_loop().time() < self._ready_at

    async def _answer(
        self, request: web.Request, chat: ChatRequest, *, is_cut: bool, is_last: bool
    ) -> web.StreamResponse:
        async for index in self._tokens(chat):
            if (is_cut or is_last) and index == chat.completion_tokens // 2:
                _break_off(request, is_last=is_last)
        message = {
            "role": "assistant",
            "content": answer_words(
                chat.prompt, chat.completion_tokens, self.behaviour.answer_drift
            ),
        }
        choice = {"index": 0, "message": message, "finish_reason": chat.finish_reason}
        body = self._frame("chat.completion", [choice]) | {"usage": chat.usage}
        return web.json_response(body)

    async def _stream(
        self, request: web.Request, chat: ChatRequest, *, is_cut: bool, is_last: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        piece_tokens = self.behaviour.piece_tokens
        whole_piece = self._piece(min(piece_tokens, chat.completion_tokens))
        waiting = 0
        try:
            async with aclosing(self._tokens(chat)) as tokens:
                async for index in tokens:
                    if (is_cut or is_last) and index == chat.completion_tokens // 2:
                        _break_off(request, is_last=is_last)
                        return response
                    waiting += 1
                    if waiting == piece_tokens:
                        await response.write(whole_piece)
                        waiting = 0
                    elif index == chat.completion_tokens - 1:
                        await response.write(self._piece(waiting))
        except ConnectionResetError:  # over TLS the handler may hear of it before it is cancelled
            return response
        end = self._event([{"index": 0, "delta": {}, "finish_reason": chat.finish_reason}])
        if self.behaviour.usage and chat.stream_options and chat.stream_options.include_usage:
            end += self._event([], usage=chat.usage)
        await response.write(end + b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _piece(self, tokens: int) -> bytes:
        delta = {self.behaviour.reasoning_field or "content": f" {ANSWER_WORD}" * tokens}
        return self._event([{"index": 0, "delta": delta, "finish_reason": None}])

    def _tokens(self, body: ChatRequest | WholeRequest) -> AsyncGenerator[int, None]:
        """Yield each token's index at the time at which it is due, one for an answer that comes
        whole.
        """
        count = _count_answer(body)
        if self._batch is None:
            return self._at_fixed_speed(count, body.num_items)
        return self._batch.generate(body.prompt, count)

    async def _at_fixed_speed(self, count: int, num_items: int) -> AsyncGenerator[int, None]:
        """Lateness does not add up."""
        loop = asyncio.get_running_loop()
        tpot_seconds = self.behaviour.tpot_seconds / self.behaviour.tp_size
        first_seconds = self.behaviour.ttft_seconds + num_items * self.behaviour.item_seconds
        due = loop.time() + first_seconds / self.behaviour.tp_size
        for index in range(count):
            wait_seconds = due - loop.time()
            if wait_seconds > 0:
                await asyncio.sleep(wait_seconds)
            yield index
            due += tpot_seconds

    def _event(self, choices: list[dict[str, Any]], **extra: object) -> bytes:
        frame = self._frame("chat.completion.chunk", choices) | extra
        return b"data: " + msgspec.json.encode(frame) + b"\n\n"

    def _frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"simulated-{self._served}",
            "object": kind,
            "created": 0,
            "model": self.behaviour.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }


def _count_answer(body: ChatRequest | WholeRequest) -> int:
    return body.completion_tokens if isinstance(body, ChatRequest) else 1


def _is_beyond(count: int, limit: int | None) -> bool:
    return limit is not None and count > limit


def _break_off(request: web.Request, *, is_last: bool) -> None:
    if is_last:
        os._exit(1)
    if request.transport is not None:
        request.transport.abort()


def _error(status: int, message: str, kind: str) -> web.Response:
    body = {"error": {"code": status, "message": message, "type": kind}}
    return web.json_response(body, status=status)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal ends the process.

    Prints `listening on http://HOST:PORT`, or `https:`, when the socket is open.
    """
    parser = server_parser("simulated_server", "A simulated OpenAI-compatible engine.", FLAGS)
    parser.add_argument(
        "--model", default="simulated", help="name of the model that it pretends to serve"
    )
    parser.add_argument("--nnodes", type=int, default=1, help="how many ranks serve together")
    parser.add_argument("--node-rank", type=int, default=0, help="which of them this is")
    parser.add_argument("--dist-init-addr", default=None, help="HOST:PORT where they meet rank 0")
    parser.add_argument("--ssl-keyfile", default=None, help="its key, for HTTPS")
    parser.add_argument("--ssl-certfile", default=None, help="its certificate, for HTTPS")
    options = parser.parse_args(argv)
    behaviour = _behaviour(options)
    place = None
    if options.nnodes > 1:
        try:
            place = Place.parse(options.node_rank, options.nnodes, options.dist_init_addr or "")
        except ValueError as error:
            parser.error(str(error))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN if behaviour.ignore_sigterm else signal.SIG_DFL)
    die_with_parent()
    try:
        files = (options.ssl_certfile, options.ssl_keyfile)
        context = make_server_context(*map(Path, files)) if all(files) else None
        asyncio.run(_run(behaviour, options.host, options.port, place, context))
    except RankLost as error:
        say(str(error))
        return LOST_STATUS
    return 0


def _behaviour(options: argparse.Namespace) -> Behaviour:
    options_given = {
        flag.name.replace("-", "_"): getattr(options, flag.name.replace("-", "_")) for flag in FLAGS
    }
    set_options = {name: value for name, value in options_given.items() if value is not None}
    return Behaviour(model=options.alias or options.model, **set_options)


async def _run(
    behaviour: Behaviour, host: str, port: int, place: Place | None, context: SSLContext | None
) -> None:
    compile_once(behaviour.model, behaviour.start_compile_seconds)
    if place is None:
        await _serve(SimulatedEngine(behaviour), host, port, context)
    elif place.rank:
        await asyncio.sleep(behaviour.start_delay_seconds)
        await follow(place)
    else:
        leader = Leader(place)
        engine = SimulatedEngine(behaviour, leader)
        await asyncio.gather(leader.lead(), _serve(engine, host, port, context))


async def _serve(engine: SimulatedEngine, host: str, port: int, context: SSLContext | None) -> None:
    # A request whose client has gone must give its slot back.
    runner = web.AppRunner(engine.app(), handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port, ssl_context=context).start()
    bound_host, bound_port = runner.addresses[0][:2]
    say(f"listening on http{'s' if context else ''}://{bound_host}:{bound_port}")
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
