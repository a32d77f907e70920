"""Ending containers for certain: asked, killed, removed, and polled until they are gone."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import docker
from docker.errors import APIError, NotFound

from services.executor.host.processes import ProcessMark, WorkloadLabel, kill_workload
from services.executor.host.workload_end import end_workload
from services.executor.runtimes.docker.client import SLOW_SECONDS, ContainerEngine, inspect, text_of
from services.executor.runtimes.docker.spec import label_filters
from services.executor.runtimes.runtime import RuntimeUnavailable
from shared.logging import log
from shared.waiting import cancel_and_wait

POLL_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 0.25
# Meanwhile the kernel is asked to end what runs; a slow engine may take its time.
ANSWER_TIMEOUT_SECONDS: Final = 10.0
# After its end, for the engine to remove it.
REMOVE_SECONDS: Final = 10.0
COMPLAIN_SECONDS: Final = 5.0


async def end_labelled(
    engine: ContainerEngine,
    labels: Mapping[str, str],
    label: WorkloadLabel,
    *,
    grace_seconds: float = 0.0,
    was_used: bool = True,
) -> None:
    """End and remove all that carries `labels`; return once there is nothing.

    `was_used` False: nothing was ever started there, so an engine that is away is as good as none.
    """
    async with _killing_in_time(label, (), grace_seconds):
        await _end_labelled(engine, labels, label, grace_seconds, was_used=was_used)


async def _end_labelled(
    engine: ContainerEngine,
    labels: Mapping[str, str],
    label: WorkloadLabel,
    grace_seconds: float,
    *,
    was_used: bool,
) -> None:
    began_at = time.monotonic()
    while True:
        left_seconds = max(0.0, began_at + grace_seconds - time.monotonic())
        try:
            containers = await engine.call(lambda api: find_ids(api, labels))
        except RuntimeUnavailable:
            if not was_used:
                return
            await end_workload(label, grace_seconds=left_seconds)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        except APIError as error:
            log.error("containers_unknown", reason=text_of(error))
            await asyncio.sleep(RETRY_SECONDS)
            continue
        if not containers:
            return
        are_gone = await asyncio.gather(
            *(
                ContainerEnding(
                    engine=engine,
                    container_id=container_id,
                    label=label,
                    grace_seconds=left_seconds,
                ).run()
                for container_id in containers
            )
        )
        if not all(are_gone):
            return


@asynccontextmanager
async def _killing_in_time(
    label: WorkloadLabel, marks: tuple[ProcessMark, ...], after_seconds: float
) -> AsyncIterator[None]:
    """Meanwhile kill the processes through the kernel once they have had their time.

    An engine that hangs takes seconds to be found out, and a lease may not have them.
    """

    async def kill() -> None:
        await asyncio.sleep(after_seconds)
        while True:
            await asyncio.to_thread(kill_workload, label, marks)
            await asyncio.sleep(RETRY_SECONDS)

    killing = asyncio.create_task(kill(), name="kill_container_in_time")
    try:
        yield
    finally:
        await cancel_and_wait(killing)


def find_ids(api: docker.APIClient, labels: Mapping[str, str]) -> list[str]:
    """The containers that carry all of these labels, running or not."""
    listed = api.containers(all=True, filters=label_filters(labels))
    return [str(container["Id"]) for container in listed]


@dataclass(slots=True, kw_only=True)
class ContainerEnding:
    """One container's. While the engine is away, its processes are ended through the kernel, where
    this executor may; the container is removed as soon as the engine is back.
    """

    engine: ContainerEngine
    container_id: str
    label: WorkloadLabel
    grace_seconds: float
    marks: tuple[ProcessMark, ...] = ()
    _is_asked: bool = False
    _began_at: float = 0.0
    _complained_at: float = 0.0
    _ended_at: float | None = None

    async def run(self) -> bool:
        """Return once the engine knows no such container any more.

        False: it has ended for good, but the engine has not removed it for some seconds, as with a
        file system that is busy. Its devices are free; it is inspected again with all that is left.
        """
        async with _killing_in_time(self.label, self.marks, self.grace_seconds):
            return await self._until_gone()

    async def _until_gone(self) -> bool:
        self._began_at = self._complained_at = time.monotonic()
        while True:
            try:
                container = await self.engine.call(
                    lambda api: inspect(api, self.container_id), seconds=ANSWER_TIMEOUT_SECONDS
                )
                if container is None:
                    return True
                is_running = bool(container["State"]["Running"])
                self._ended_at = None if is_running else self._ended_at or time.monotonic()
                await self._step(is_running=is_running)
                continue
            except RuntimeUnavailable as error:
                await self._end_processes(str(error))
            except NotFound:
                return True
            except APIError as error:
                # 409: it has ended meanwhile, or is being removed already.
                if error.status_code != HTTPStatus.CONFLICT:
                    self._complain(text_of(error))
            if self._ended_at is not None and time.monotonic() - self._ended_at > REMOVE_SECONDS:
                self._complain("it has ended and cannot be removed")
                return False
            await asyncio.sleep(RETRY_SECONDS)

    async def _step(self, *, is_running: bool) -> None:
        if not is_running:
            await self.engine.call(self._remove, seconds=SLOW_SECONDS)
            return
        if self._left_seconds <= 0:
            await self.engine.call(
                lambda api: self._kill(api, "SIGKILL"), seconds=ANSWER_TIMEOUT_SECONDS
            )
            self._complain("it outlives SIGKILL")
        elif not self._is_asked:
            self._is_asked = True
            await self.engine.call(
                lambda api: self._kill(api, "SIGTERM"), seconds=ANSWER_TIMEOUT_SECONDS
            )
        await asyncio.sleep(POLL_SECONDS)

    @property
    def _left_seconds(self) -> float:
        return self._began_at + self.grace_seconds - time.monotonic()

    async def _end_processes(self, reason: str) -> None:
        self._complain(reason)
        await end_workload(self.label, self.marks, grace_seconds=max(0.0, self._left_seconds))

    def _kill(self, api: docker.APIClient, signal: str) -> None:
        api.kill(self.container_id, signal)

    def _remove(self, api: docker.APIClient) -> None:
        api.remove_container(self.container_id, v=True, force=True)

    def _complain(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._complained_at < COMPLAIN_SECONDS:
            return
        self._complained_at = now
        log.error(
            "container_outlives_its_end",
            container_id=self.container_id,
            reservation_id=str(self.label.reservation_id),
            reason=reason,
        )
