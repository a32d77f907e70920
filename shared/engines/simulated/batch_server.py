"""The batching engine in time: its steps one after the other, its counters, its cache reset."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from shared.engines.simulated.batch import (
    BatchedRequest,
    BatchScheduler,
    BatchSpeed,
)
from shared.engines.simulated.flags import CacheReset, Dialect


@dataclass(slots=True)
class BatchRunner:
    """Steps follow each other without a gap while there are requests; lateness does not add up."""

    speed: BatchSpeed
    scheduler: BatchScheduler = field(init=False)
    _tokens: dict[BatchedRequest, asyncio.Queue[None]] = field(default_factory=dict)
    _stepping: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.scheduler = BatchScheduler(self.speed)

    async def generate(
        self, prompt: Sequence[str], output_tokens: int
    ) -> AsyncGenerator[int, None]:
        """Yield each token's index when its step is over."""
        request = BatchedRequest(prompt=prompt, output_tokens=output_tokens)
        tokens = self._tokens[request] = asyncio.Queue()
        self.scheduler.add(request)
        if self._stepping is None:
            self._stepping = asyncio.create_task(self._step())
        try:
            for index in range(output_tokens):
                await tokens.get()
                yield index
        finally:
            del self._tokens[request]
            self.scheduler.remove(request)
            if not self._tokens and self._stepping is not None:
                self._stepping.cancel()
                self._stepping = None

    async def _step(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        # Requests that arrive together are admitted together.
        await asyncio.sleep(0)
        while (step := self.scheduler.step()) is not None:
            due += step.seconds
            await asyncio.sleep(max(0.0, due - loop.time()))
            for request in step.emitting:
                if (tokens := self._tokens.get(request)) is not None:
                    tokens.put_nowait(None)
            # A client that got its last token may send the next request before the next step.
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class BatchRoutes:
    """`/metrics` and the cache reset, as vLLM or SGLang have them."""

    runner: BatchRunner
    model: str
    dialect: Dialect = Dialect.VLLM
    cache_reset: CacheReset = CacheReset.WORKS

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/metrics", self.metrics)
        if self.cache_reset is CacheReset.ABSENT:
            return
        if self.dialect is Dialect.VLLM:
            app.router.add_post("/reset_prefix_cache", self.reset)
        else:
            app.router.add_route("*", "/flush_cache", self.reset)

    async def reset(self, _: web.Request) -> web.Response:
        """VLLM says in the body whether it did; SGLang answers 400 while it serves requests."""
        if self.cache_reset is CacheReset.WORKS:
            success = self.runner.scheduler.reset_prefix_cache()
        else:
            success = self.cache_reset is CacheReset.IGNORED
        if self.dialect is Dialect.VLLM:
            return web.json_response({"success": success})
        text = "Cache flushed." if success else "Flush cache failed: requests are running."
        return web.Response(text=text, status=200 if success else 400)

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self.page())

    def page(self) -> str:
        """Prometheus text."""
        lines = [
            f'{self.dialect}:{name}{{model_name="{self.model}"}} {value}'
            for name, value in self._values().items()
        ]
        return "\n".join(["# simulated", *lines, ""])

    def _values(self) -> dict[str, float]:
        now = self.runner.scheduler
        running, waiting = len(now.running), len(now.waiting)
        kv_share = now.kv_tokens_used / now.speed.kv_tokens if now.speed.kv_tokens else 0.0
        if self.dialect is Dialect.VLLM:
            return {
                "num_requests_running": running,
                "num_requests_waiting": waiting,
                "kv_cache_usage_perc": kv_share,
                "num_preemptions_total": now.preemptions,
                "prefix_cache_queries_total": now.prefix_queries,
                "prefix_cache_hits_total": now.prefix_hits,
                "prompt_tokens_total": now.prompt_tokens,
                "generation_tokens_total": now.generated_tokens,
            }
        return {
            "num_running_reqs": running,
            "num_queue_reqs": waiting,
            "token_usage": kv_share,
            "num_retracted_requests_total": now.preemptions,
            "cached_tokens_total": now.prefix_hits,
            "prompt_tokens_total": now.prompt_tokens,
            "generation_tokens_total": now.generated_tokens,
        }
