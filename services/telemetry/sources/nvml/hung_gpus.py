"""GPUs that are left out because a call for one of them made the whole child hang."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.telemetry.sources.nvml.probe import Probe
from services.telemetry.sources.nvml.protocol import Stuck, TakeInventory
from services.telemetry.sources.source import SourceAbsentError, SourceFailedError
from shared.logging import log
from shared.waiting import cancel_and_wait

FIRST_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0


@dataclass(slots=True)
class _IsolatedGpu:
    uuids: tuple[str, ...]
    since: float
    pause: float
    retry_at: float


class HungGpuIsolation:
    """Outlives the sources of an agent, each of which ends with its child.

    An isolated GPU is retried in a child of its own, after growing pauses, until it answers.
    """

    def __init__(self, *, first_retry_seconds: float = FIRST_RETRY_SECONDS) -> None:
        self._first_retry_seconds = first_retry_seconds
        self._isolated: dict[int, _IsolatedGpu] = {}
        self._retry: asyncio.Task[None] | None = None
        self._recovered: int | None = None

    @property
    def indices(self) -> tuple[int, ...]:
        """The indices of the isolated GPUs."""
        return tuple(self._isolated)

    def isolate_first(self, stuck: list[Stuck]) -> None:
        """After a child that hung as a whole: leave out the GPU that it was stuck in first.

        If one was isolated already and the child hung anyway, that GPU was not the cause: it is
        released.
        """
        culprit = next((gpu for gpu in stuck if gpu.index >= 0), None)
        if self._isolated or culprit is None:
            self._isolated.clear()
            return
        log.warning("gpu_isolated", index=culprit.index, devices=culprit.uuids)
        now = asyncio.get_running_loop().time()
        self._isolated[culprit.index] = _IsolatedGpu(
            culprit.uuids, now, self._first_retry_seconds, now + self._first_retry_seconds
        )

    def hung(self) -> dict[str, str]:
        """The isolated devices, each with the reason."""
        if not self._isolated:
            return {}
        now = asyncio.get_running_loop().time()
        return {
            uuid: f"a driver call hung the whole probe {now - gpu.since:.0f} s ago"
            for gpu in self._isolated.values()
            for uuid in gpu.uuids
        }

    def pop_recovered(self) -> bool:
        """Return True if a GPU answered its retry since the last call; it is no longer isolated."""
        index, self._recovered = self._recovered, None
        return index is not None and self._isolated.pop(index, None) is not None

    def retry_soon(self, make: Callable[[], Probe]) -> None:
        """Start the retry of a GPU that is due, unless one runs."""
        if not self._isolated or (self._retry is not None and not self._retry.done()):
            return
        now = asyncio.get_running_loop().time()
        due = next((index for index, gpu in self._isolated.items() if now >= gpu.retry_at), None)
        if due is not None:
            self._retry = asyncio.create_task(self._try_gpu(due, make()))

    async def stop_retry(self) -> None:
        """Before the source is closed."""
        retry, self._retry = self._retry, None
        if retry is not None:
            await cancel_and_wait(retry)

    async def _try_gpu(self, index: int, probe: Probe) -> None:
        gpu = self._isolated[index]
        try:
            await probe.start()
            taken_inventory = await probe.inventory(TakeInventory(only=index))
            if taken_inventory.inventory.devices and not (await probe.read()).hung:
                self._recovered = index
        except (SourceAbsentError, SourceFailedError) as error:
            log.info("gpu_still_hung", index=index, reason=str(error))
        finally:
            gpu.pause = min(2 * gpu.pause, MAX_RETRY_SECONDS)
            gpu.retry_at = asyncio.get_running_loop().time() + gpu.pause
            await probe.close()
