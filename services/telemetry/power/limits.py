"""Caps the power of devices, and restores every limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import msgspec

from schemas.errors import ErrorCode
from schemas.telemetry.readings import HealthKind, SetPowerLimit
from services.telemetry.agent import Agent
from services.telemetry.domain.health import Change
from services.telemetry.event_publisher import EventPublisher
from services.telemetry.power.journal import PowerCap, PowerJournal
from shared.errors import RefusedError
from shared.logging import log
from shared.waiting import wait_for

FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 30.0

RequireHolder = Callable[[UUID, str], Awaitable[None]]
HasEnded = Callable[[UUID], bool]


class PowerLimits:
    """A cap ends with its reservation, with the agent, or at the start after a crash, unless its
    reservation then still holds the device: what runs there is measured under the cap.

    A limit that cannot be restored now is retried until it can.
    """

    def __init__(
        self,
        agent: Agent,
        publisher: EventPublisher,
        journal: PowerJournal,
        *,
        require_holder: RequireHolder,
        has_ended: HasEnded,
    ) -> None:
        self._agent = agent
        self._publisher = publisher
        self._journal = journal
        self._require_holder = require_holder
        self._has_ended = has_ended
        self._caps = journal.load()
        self._left_over = {u for u, cap in self._caps.items() if cap.reservation_id is not None}
        self._due = set(self._caps) - self._left_over
        self._one_change = asyncio.Lock()
        self._wake = asyncio.Event()
        self._last_failure = ""

    async def apply(self, command: SetPowerLimit) -> None:
        """PowerCap, or take a cap back. Raises RefusedError."""
        if command.reservation_id is not None:
            await self._require_holder(command.reservation_id, command.device_uuid)
        async with self._one_change:
            try:
                if command.power_limit_w is None:
                    await self._restore_on_request(command)
                else:
                    await self._cap(command, command.power_limit_w)
            except OSError as error:
                # Uncapped is safe; a cap that the journal lacks would outlive a crash.
                raise RefusedError(
                    ErrorCode.INTERNAL, f"the power journal cannot be written: {error}"
                ) from error
        if command.reservation_id is not None and self._has_ended(command.reservation_id):
            self.reservation_ended(command.reservation_id)

    def reservation_ended(self, reservation_id: UUID) -> None:
        """Have its caps restored."""
        ended = {u for u, cap in self._caps.items() if cap.reservation_id == reservation_id}
        if ended:
            self._due |= ended
            self._wake.set()

    async def run(self) -> None:
        """Restore what is due, and keep what is not, until cancelled."""
        pause = FIRST_RETRY_SECONDS
        while True:
            self._wake.clear()
            async with self._one_change:
                done = await self._keep_left_over() & await self._restore_due()
            if await wait_for(self._wake, None if done else pause):
                pause = FIRST_RETRY_SECONDS
            else:
                pause = min(pause * 2, LAST_RETRY_SECONDS)

    async def stop(self) -> None:
        """Restore everything; what the driver does not restore stays in the journal."""
        async with self._one_change:
            self._due = set(self._caps)
            await self._restore_due()

    async def _cap(self, command: SetPowerLimit, watts: float) -> None:
        uuid, before = command.device_uuid, self._caps.get(command.device_uuid)
        _require_own(before, command)
        cap = PowerCap(
            device_uuid=uuid,
            watts=watts,
            original_w=self._present_limit(uuid) if before is None else before.original_w,
            reservation_id=command.reservation_id,
        )
        await self._store(cap)
        try:
            replaced_w = await self._agent.set_power_limit(uuid, watts)
        except RefusedError as error:
            await self._undo(uuid, before, is_unknown=error.code is ErrorCode.UNAVAILABLE)
            raise
        self._due.discard(uuid)
        if before is None and cap.original_w is None:
            await self._store(msgspec.structs.replace(cap, original_w=replaced_w))
        self._report(HealthKind.POWER_LIMIT_CHANGED, cap, watts)

    async def _undo(self, uuid: str, before: PowerCap | None, *, is_unknown: bool) -> None:
        """Drop a cap that the driver did not set; restore one that it may have set."""
        if is_unknown:
            self._due.add(uuid)
            self._wake.set()
        elif before is None:
            await self._drop(uuid)
        else:
            await self._store(before)

    async def _restore_on_request(self, command: SetPowerLimit) -> None:
        uuid = command.device_uuid
        _require_own(self._caps.get(uuid), command)
        if uuid in self._caps:
            await self._restore(uuid)
        elif all(facts.uuid != uuid for facts in self._agent.devices.facts):
            raise RefusedError(
                ErrorCode.NOT_FOUND, f"there is no device {uuid}", path="$.device_uuid"
            )

    async def _keep_left_over(self) -> bool:
        """Set what a killed agent had set for reservations that still hold their devices; the rest
        is due. Return whether all of it is decided: the scheduler may not answer yet.
        """
        for uuid in sorted(self._left_over):
            cap = self._caps.get(uuid)
            if cap is not None and cap.reservation_id is not None and uuid not in self._due:
                try:
                    await self._require_holder(cap.reservation_id, uuid)
                    await self._agent.set_power_limit(uuid, cap.watts)
                except RefusedError as error:
                    if error.code is ErrorCode.UNAVAILABLE:
                        continue
                    self._due.add(uuid)
            self._left_over.discard(uuid)
        return not self._left_over

    async def _restore_due(self) -> bool:
        """Whether nothing is left to restore."""
        for uuid in sorted(self._due):
            try:
                await self._restore(uuid)
            except (RefusedError, OSError) as error:
                if str(error) != self._last_failure:
                    log.warning("power_limit_not_restored", device=uuid, error=str(error))
                self._last_failure = str(error)
        return not self._due

    async def _restore(self, uuid: str) -> None:
        cap = self._caps[uuid]
        await self._agent.set_power_limit(uuid, cap.original_w)
        self._due.discard(uuid)
        self._report(HealthKind.POWER_LIMIT_RESTORED, cap, cap.original_w)
        await self._drop(uuid)

    async def _store(self, cap: PowerCap) -> None:
        caps = {**self._caps, cap.device_uuid: cap}
        await self._journal.save(caps)
        self._caps = caps

    async def _drop(self, uuid: str) -> None:
        self._caps = {key: cap for key, cap in self._caps.items() if key != uuid}
        await self._journal.save(self._caps)

    def _present_limit(self, uuid: str) -> float | None:
        newest = self._agent.newest
        gpus = () if newest is None else newest.gpus
        return next((gpu.power_limit_w for gpu in gpus if gpu.uuid == uuid), None)

    def _report(self, kind: HealthKind, cap: PowerCap, watts: float | None) -> None:
        log.info("power_limit_set", device=cap.device_uuid, watts=watts, change=kind)
        self._publisher.queue_change(
            Change(
                kind,
                cap.device_uuid,
                "the device's default" if watts is None else f"{watts:g} W",
                reservation_id=cap.reservation_id,
                power_limit_w=watts,
            )
        )


def _require_own(before: PowerCap | None, command: SetPowerLimit) -> None:
    """A reservation must not change an administrator's limit. Raises RefusedError."""
    if before is None or command.reservation_id is None or before.reservation_id is not None:
        return
    raise RefusedError(
        ErrorCode.FORBIDDEN,
        f"an administrator has limited {command.device_uuid} to {before.watts:g} W",
        path="$.reservation_id",
    )
