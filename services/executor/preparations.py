"""Makes ready what experiments that wait for GPUs will need: their image, their model's weights."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from schemas.executor.attempts import AttemptPhase, AttemptProgressed, Runtime
from schemas.orchestrator.experiments import StartsWaiting, WaitingStart
from services.executor.domain.preparation import is_measuring, needs, spares_memory
from services.executor.engines.model_configs import HUB_CACHES, hub_caches
from services.executor.engines.weight_files import weight_files
from services.executor.host.own_thread import in_own_thread
from services.executor.host.page_cache import CHUNK_BYTES, read_into_page_cache
from services.executor.runtimes.engine_process import own_variables
from services.executor.runtimes.runtime import EngineRuntime
from services.executor.settings import ExecutorSettings
from shared.clock import utcnow
from shared.logging import log
from shared.messaging.bus import Bus
from shared.waiting import cancel_and_wait

POLL_SECONDS: Final = 1.0


@dataclass(slots=True, kw_only=True)
class Preparations:
    """One at a time, each once while it is wanted. What fails is reported, and left to the start.

    Nothing is stored: an executor that was restarted receives again what waits, and begins again.
    `phases` are those of the attempts that run here.
    """

    settings: ExecutorSettings
    bus: Bus
    runtimes: Mapping[Runtime, EngineRuntime]
    phases: Callable[[], Iterable[AttemptPhase]]
    _starts: tuple[WaitingStart, ...] = ()
    _previous_starts: tuple[WaitingStart, ...] = ()
    _received: asyncio.Event = field(default_factory=asyncio.Event)
    _over: set[tuple[str, ...]] = field(default_factory=set)
    _read_bytes: dict[str, int] = field(default_factory=dict)  # by model
    _work: asyncio.Task[None] | None = None
    _start: WaitingStart | None = None

    async def run(self) -> None:
        """Prepare until cancelled."""
        subscription = await self.bus.listen(StartsWaiting, self.receive, key=self.settings.node_id)
        try:
            while True:
                self._received.clear()
                over = self._over
                start = next(
                    (
                        waiting_start
                        for waiting_start in self._starts
                        if needs(waiting_start.engine) not in over
                    ),
                    None,
                )
                if start is None:
                    await self._received.wait()
                    continue
                await self._attend(start)
        finally:
            await subscription.unsubscribe()

    async def receive(self, waiting: StartsWaiting) -> None:
        """Take the starts that wait now, and end preparations that nobody needs any more.

        One ends when it is missing for the second time: if it was granted meanwhile, its attempt
        has joined the pull by then.
        """
        self._previous_starts, self._starts = self._starts, waiting.starts
        needed_keys = {needs(start.engine) for start in (*self._starts, *self._previous_starts)}
        models = {start.engine.model for start in (*self._starts, *self._previous_starts)}
        self._over &= needed_keys
        self._read_bytes = {
            model: size for model, size in self._read_bytes.items() if model in models
        }
        start = self._start
        if self._work is not None and start is not None and needs(start.engine) not in needed_keys:
            self._work.cancel()
        self._received.set()

    async def _attend(self, start: WaitingStart) -> None:
        self._start = start
        self._work = asyncio.create_task(self._prepare(start), name="prepare_start")
        try:
            await asyncio.wait({self._work})
        finally:
            await cancel_and_wait(self._work)
            self._work = None
        self._over.add(needs(start.engine))

    async def _prepare(self, start: WaitingStart) -> None:
        engine, began_at = start.engine, time.monotonic()
        notes: list[str] = []
        try:
            await self._until_unmeasured()
            notes.append(await self.runtimes[engine.runtime].prepare(engine))
            notes.append(await self._read_weights(engine.model))
        except Exception as error:  # noqa: BLE001  # whatever it is, the start may do better
            log.warning(
                "preparation_failed", engine=engine.engine, model=engine.model, error=str(error)
            )
            notes.append(f"not all could be made ready: {error}")
        sentence = "; ".join(filter(None, notes))
        if not sentence:
            return
        seconds = time.monotonic() - began_at
        log.info("start_prepared", engine=engine.engine, did=sentence, seconds=round(seconds, 1))
        await self._publish(start, f"while it waited, on {self.settings.node_id}: {sentence}")

    async def _read_weights(self, model: str) -> str:
        if model in self._read_bytes:
            return ""
        self._read_bytes[model] = 0
        caches = hub_caches(self.settings, own_variables(HUB_CACHES))
        roots = self.settings.model_root_paths
        files = await in_own_thread(partial(weight_files, model, roots, caches), "find_weights")
        for file in files:
            if not await self._read(model, file):
                break
        size = self._read_bytes.get(model, 0)
        return f"{size >> 20} MB of weights were read into memory" if size else ""

    async def _read(self, model: str, file: Path) -> bool:
        """Read a file into the page cache; return whether all of it found room."""
        offset = 0
        while True:
            await self._until_unmeasured()
            wanted_bytes = sum(self._read_bytes.values()) + CHUNK_BYTES
            available_bytes = psutil.virtual_memory().available
            percent = self.settings.prepare_memory_percent
            if not spares_memory(wanted_bytes, available_bytes, percent):
                return False
            count = await in_own_thread(partial(read_into_page_cache, file, offset), "read_weights")
            if not count:
                return True
            offset += count
            self._read_bytes[model] = self._read_bytes.get(model, 0) + count

    async def _until_unmeasured(self) -> None:
        if self.settings.prepare_waiting == "always":
            return
        while True:
            if not is_measuring(self.phases()):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _publish(self, start: WaitingStart, message: str) -> None:
        await self.bus.publish_live(
            AttemptProgressed(
                observed_at=utcnow(),
                executor_id=self.settings.node_id,
                experiment_id=start.experiment_id,
                attempt_id=start.attempt_id,
                task_id=start.task_id,
                phase=AttemptPhase.PULLING,
                fraction=0.0,
                message=message,
            )
        )
