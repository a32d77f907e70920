"""GPUs that are left out, as a call for them took the whole child along."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.telemetry.nvml_probe import Probe
from services.telemetry.ports import SourceAbsentError, SourceFailedError
from services.telemetry.probe_protocol import Stuck, TakeInventory
from shared.logging import log

FIRST_TRIAL_SECONDS: Final = 1.0
MAX_TRIAL_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Apart:
    uuids: tuple[str, ...]
    since: float
    pause: float
    try_at: float


class Quarantine:
    """Outlives the sources of an agent, each of which ends with its child.

    A GPU in here is tried in a child of its own, each time after a longer pause, until it answers.
    """

    def __init__(self, *, first_trial_seconds: float = FIRST_TRIAL_SECONDS) -> None:
        self._first_trial_seconds = first_trial_seconds
        self._apart: dict[int, _Apart] = {}
        self._trial: asyncio.Task[None] | None = None
        self._answering: int | None = None

    @property
    def indices(self) -> tuple[int, ...]:
        """Of the GPUs in here."""
        return tuple(self._apart)

    def blame(self, stuck: list[Stuck]) -> None:
        """After a child that hung as a whole: leave out the GPU that it was stuck in first.

        If one was left out already, it is not that GPU that all others wait for.
        """
        culprit = next((one for one in stuck if one.index >= 0), None)
        if self._apart or culprit is None:
            self._apart.clear()
            return
        log.warning("gpu_set_apart", index=culprit.index, devices=culprit.uuids)
        now = asyncio.get_running_loop().time()
        self._apart[culprit.index] = _Apart(
            culprit.uuids, now, self._first_trial_seconds, now + self._first_trial_seconds
        )

    def hung(self) -> dict[str, str]:
        """The devices in here, and why."""
        if not self._apart:
            return {}
        now = asyncio.get_running_loop().time()
        return {
            uuid: f"a driver call took the probe along {now - apart.since:.0f} s ago"
            for apart in self._apart.values()
            for uuid in apart.uuids
        }

    def released(self) -> bool:
        """Whether a GPU was let go since the last call, as it answers again."""
        index, self._answering = self._answering, None
        return index is not None and self._apart.pop(index, None) is not None

    def start_trial(self, make: Callable[[], Probe]) -> None:
        """Try a GPU in a child of its own, if it is time to and none is being tried."""
        if not self._apart or (self._trial is not None and not self._trial.done()):
            return
        now = asyncio.get_running_loop().time()
        due = next((index for index, apart in self._apart.items() if now >= apart.try_at), None)
        if due is not None:
            self._trial = asyncio.create_task(self._try(due, make()))

    async def stop_trial(self) -> None:
        """Before whoever reads is closed."""
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.cancel()
            await asyncio.wait({trial})

    async def _try(self, index: int, probe: Probe) -> None:
        apart = self._apart[index]
        try:
            await probe.start()
            found = await probe.inventory(TakeInventory(only=index))
            if found.inventory.devices and not (await probe.read()).hung:
                self._answering = index
        except (SourceAbsentError, SourceFailedError) as error:
            log.info("gpu_still_apart", index=index, reason=str(error))
        finally:
            apart.pause = min(2 * apart.pause, MAX_TRIAL_SECONDS)
            apart.try_at = asyncio.get_running_loop().time() + apart.pause
            await probe.close()
