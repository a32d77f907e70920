"""Starts, supervises and stops the MPS daemon of each device."""

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from schemas.telemetry.readings import DeviceFacts, GpuSampled
from services.telemetry.domain.holdings import Holdings
from services.telemetry.domain.mps_modes import MpsAction, MpsSeen, mps_action
from services.telemetry.mps.control import Daemon, MpsControl, MpsFailed
from shared.logging import log
from shared.mps import daemon_listens

POLL_SECONDS: Final = 2.0
FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0

_NVIDIA: Final = re.compile(r"GPU-[\w-]+")


@dataclass(slots=True)
class _Watched:
    """One device. `retry_at` is on the loop's clock; a daemon that stayed up resets the pause."""

    daemon: Daemon | None = None
    is_adopted: bool = False
    has_died: bool = False
    idle_since: float | None = None
    retry_at: float = 0.0
    pause_seconds: float = FIRST_RETRY_SECONDS
    began_at: float = 0.0
    logged: str = ""


@dataclass(slots=True)
class MpsDaemons:
    """A daemon outlives the agent that started it, and so its clients do; the next agent finds it.

    `facts` and `fresh` are the agent's devices and newest sample, None if it is old.
    """

    control: MpsControl
    is_wanted: bool
    settle_seconds: float
    holdings: Holdings
    facts: Callable[[], Iterable[DeviceFacts]]
    fresh: Callable[[], GpuSampled | None]
    _watched: dict[str, _Watched] = field(default_factory=dict)

    @property
    def all_listen(self) -> bool:
        """True if every GPU that could be shared has its daemon."""
        uuids = [facts.uuid for facts in self._devices() if not facts.mig_enabled]
        return (
            self.is_wanted
            and bool(uuids)
            and all(daemon_listens(self.control.pipe_dir_of(uuid)) for uuid in uuids)
        )

    async def run(self) -> None:
        """Keep every device in the mode that the settings want, until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(POLL_SECONDS)

    async def poll(self) -> None:
        """Inspect every device once; what is due is done."""
        sample = self.fresh()
        for facts in list(self._devices()):
            watched = self._watched.setdefault(facts.uuid, _Watched())
            await self._watch(facts.uuid, watched)
            if not self.is_wanted and watched.daemon is None:
                continue
            now = _now()
            if not self._is_empty(facts.uuid, sample):
                watched.idle_since = None
            elif watched.idle_since is None:
                watched.idle_since = now
            state = MpsSeen(
                is_wanted=self.is_wanted,
                is_ours=watched.daemon is not None,
                has_died=watched.has_died,
                is_listening=daemon_listens(self.control.pipe_dir_of(facts.uuid)),
                host_listens=daemon_listens(self.control.pipe_dir),
                mig_enabled=facts.mig_enabled,
                idle_seconds=None if watched.idle_since is None else now - watched.idle_since,
            )
            action, why_not = mps_action(state, self.settle_seconds)
            if why_not and why_not != watched.logged:
                log.info("mps_mode_stays", device=facts.uuid, wanted=self.is_wanted, why=why_not)
            watched.logged = why_not
            if action is not MpsAction.NONE and now >= watched.retry_at:
                await self._act(action, facts.uuid, watched)

    async def _watch(self, uuid: str, watched: _Watched) -> None:
        """Adopt what an earlier agent started, once; notice the end of one."""
        if not watched.is_adopted:
            watched.is_adopted = True
            watched.daemon = await asyncio.to_thread(self.control.find, uuid)
            if watched.daemon is not None:
                watched.began_at = _now()
                log.info("mps_daemon_adopted", device=uuid, pid=watched.daemon.pid)
        if watched.daemon is not None and not watched.daemon.is_alive:
            log.warning("mps_daemon_died", device=uuid, pid=watched.daemon.pid)
            watched.daemon.close()
            watched.daemon, watched.has_died = None, True
            if _now() - watched.began_at > LAST_RETRY_SECONDS:
                watched.pause_seconds = FIRST_RETRY_SECONDS
            _back_off(watched)

    async def _act(self, action: MpsAction, uuid: str, watched: _Watched) -> None:
        try:
            if action is MpsAction.START:
                watched.daemon = await self.control.start(uuid)
                watched.began_at, watched.has_died = _now(), False
                log.info("mps_daemon_started", device=uuid, pid=watched.daemon.pid)
            elif watched.daemon is not None:
                await self.control.stop(uuid, watched.daemon)
                log.info("mps_daemon_stopped", device=uuid, pid=watched.daemon.pid)
                watched.daemon.close()
                watched.daemon, watched.has_died = None, False
        except MpsFailed as error:
            log.warning("mps_daemon_failed", device=uuid, action=action.value, error=str(error))
            # What was started and never listened is found at the next poll.
            watched.is_adopted = watched.daemon is not None
            _back_off(watched)

    def _is_empty(self, uuid: str, sample: GpuSampled | None) -> bool:
        """Unknown is never empty."""
        if sample is None or not self.holdings.is_known or uuid in self.holdings.devices:
            return False
        return any(gpu.uuid == uuid and gpu.processes == () for gpu in sample.gpus)

    def _devices(self) -> Iterable[DeviceFacts]:
        """NVIDIA's whole GPUs that are there."""
        for facts in self.facts():
            if not facts.simulated and facts.parent_uuid is None and _NVIDIA.fullmatch(facts.uuid):
                yield facts


def _back_off(watched: _Watched) -> None:
    watched.retry_at = _now() + watched.pause_seconds
    watched.pause_seconds = min(watched.pause_seconds * 2, LAST_RETRY_SECONDS)


def _now() -> float:
    return asyncio.get_running_loop().time()
