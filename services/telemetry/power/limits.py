"""Caps the power of devices, locks their clocks, and takes everything back."""

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
from services.telemetry.power.journal import Cap, CapKey, PowerJournal, Setting
from shared.errors import RefusedError
from shared.logging import log
from shared.waiting import wait_for

FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 30.0
_KINDS: Final = {
    Setting.POWER_LIMIT: (HealthKind.POWER_LIMIT_CHANGED, HealthKind.POWER_LIMIT_RESTORED),
    Setting.SM_CLOCK: (HealthKind.SM_CLOCK_LOCKED, HealthKind.SM_CLOCK_RESTORED),
}

RequireHolder = Callable[[UUID, str], Awaitable[None]]
HasEnded = Callable[[UUID], bool]


class PowerLimits:
    """A cap, of power or of the clock, ends with its reservation, with the agent, or at the start
    after a crash, unless its reservation then still holds the device: what runs there is measured
    under the cap.

    What cannot be restored now is retried until it can.
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
        self._left_over = {k for k, cap in self._caps.items() if cap.reservation_id is not None}
        self._due = set(self._caps) - self._left_over
        self._one_change = asyncio.Lock()
        self._wake = asyncio.Event()
        self._last_failure = ""

    async def apply(self, command: SetPowerLimit) -> None:
        """Set what the command has, or take both back where it has none. Raises RefusedError."""
        if command.reservation_id is not None:
            await self._require_holder(command.reservation_id, command.device_uuid)
        async with self._one_change:
            try:
                if caps := _caps_of(command):
                    for cap in caps:
                        await self._cap(command, cap)
                else:
                    await self._restore_on_request(command)
            except OSError as error:
                # Uncapped is safe; a cap that the journal lacks would outlive a crash.
                raise RefusedError(
                    ErrorCode.INTERNAL, f"the power journal cannot be written: {error}"
                ) from error
        if command.reservation_id is not None and self._has_ended(command.reservation_id):
            self.reservation_ended(command.reservation_id)

    def reservation_ended(self, reservation_id: UUID) -> None:
        """Have its caps restored."""
        ended = {k for k, cap in self._caps.items() if cap.reservation_id == reservation_id}
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

    async def _cap(self, command: SetPowerLimit, cap: Cap) -> None:
        previous = self._caps.get(cap.key)
        _require_own(previous, command)
        cap = msgspec.structs.replace(
            cap, original_w=self._present_w(cap.key) if previous is None else previous.original_w
        )
        await self._store(cap)
        try:
            replaced_w = await self._drive(cap.key, cap.value)
        except RefusedError as error:
            await self._undo(cap.key, previous, is_unknown=error.code is ErrorCode.UNAVAILABLE)
            raise
        self._due.discard(cap.key)
        if previous is None and cap.original_w is None and replaced_w is not None:
            await self._store(msgspec.structs.replace(cap, original_w=replaced_w))
        self._report(cap, cap.value, is_restored=False)

    async def _drive(self, key: CapKey, value: float | None) -> float | None:
        """Set a value, with None the device's own; return the power limit before."""
        uuid, setting = key
        if setting is Setting.POWER_LIMIT:
            return await self._agent.set_power_limit(uuid, value)
        await self._agent.set_sm_clock(uuid, None if value is None else round(value))
        return None

    async def _undo(self, key: CapKey, previous: Cap | None, *, is_unknown: bool) -> None:
        """Drop a cap that the driver did not set; restore one that it may have set."""
        if is_unknown:
            self._due.add(key)
            self._wake.set()
        elif previous is None:
            await self._drop(key)
        else:
            await self._store(previous)

    async def _restore_on_request(self, command: SetPowerLimit) -> None:
        uuid = command.device_uuid
        keys = [key for key in self._caps if key[0] == uuid]
        for key in keys:
            _require_own(self._caps[key], command)
        for key in keys:
            await self._restore(key)
        if not keys and all(facts.uuid != uuid for facts in self._agent.devices.facts):
            raise RefusedError(
                ErrorCode.NOT_FOUND, f"there is no device {uuid}", path="$.device_uuid"
            )

    async def _keep_left_over(self) -> bool:
        """Set what a killed agent had set for reservations that still hold their devices; the rest
        is due. Return whether all of it is decided: the scheduler may not answer yet.
        """
        for key in sorted(self._left_over):
            cap = self._caps.get(key)
            if cap is not None and cap.reservation_id is not None and key not in self._due:
                try:
                    await self._require_holder(cap.reservation_id, cap.device_uuid)
                    await self._drive(key, cap.value)
                except RefusedError as error:
                    if error.code is ErrorCode.UNAVAILABLE:
                        continue
                    self._due.add(key)
            self._left_over.discard(key)
        return not self._left_over

    async def _restore_due(self) -> bool:
        """Restore what is due; return True if nothing is left to restore."""
        for key in sorted(self._due):
            try:
                await self._restore(key)
            except (RefusedError, OSError) as error:
                if str(error) != self._last_failure:
                    uuid, setting = key
                    log.warning("setting_not_restored", device=uuid, of=setting, error=str(error))
                self._last_failure = str(error)
        return not self._due

    async def _restore(self, key: CapKey) -> None:
        cap = self._caps[key]
        await self._drive(key, cap.original_w)
        self._due.discard(key)
        self._report(cap, cap.original_w, is_restored=True)
        await self._drop(key)

    async def _store(self, cap: Cap) -> None:
        caps = {**self._caps, cap.key: cap}
        await self._journal.save(caps)
        self._caps = caps

    async def _drop(self, key: CapKey) -> None:
        self._caps = {other: cap for other, cap in self._caps.items() if other != key}
        await self._journal.save(self._caps)

    def _present_w(self, key: CapKey) -> float | None:
        """The power limit that the newest reading has; None for a clock."""
        if key[1] is not Setting.POWER_LIMIT or (newest := self._agent.newest) is None:
            return None
        return next((gpu.power_limit_w for gpu in newest.gpus if gpu.uuid == key[0]), None)

    def _report(self, cap: Cap, value: float | None, *, is_restored: bool) -> None:
        setting = cap.key[1]
        kind = _KINDS[setting][is_restored]
        log.info("setting_changed", device=cap.device_uuid, value=value, change=kind)
        self._publisher.queue_change(
            Change(
                kind,
                cap.device_uuid,
                "the device's default" if value is None else _in_words(setting, value),
                reservation_id=cap.reservation_id,
                power_limit_w=value if setting is Setting.POWER_LIMIT else None,
                sm_clock_mhz=cap.sm_clock_mhz if not is_restored else None,
            )
        )


def _caps_of(command: SetPowerLimit) -> list[Cap]:
    """Return each cap that the command sets: each has its own owner and its own end."""
    limit = Cap(
        device_uuid=command.device_uuid,
        reservation_id=command.reservation_id,
        watts=command.power_limit_w,
    )
    lock = msgspec.structs.replace(limit, watts=None, sm_clock_mhz=command.sm_clock_mhz)
    return [cap for cap in (limit, lock) if cap.value is not None]


def _in_words(setting: Setting, value: float) -> str:
    return f"{value:g} W" if setting is Setting.POWER_LIMIT else f"{value:g} MHz"


def _require_own(current: Cap | None, command: SetPowerLimit) -> None:
    """A reservation must not change what an administrator set. Raises RefusedError."""
    if current is None or command.reservation_id is None or current.reservation_id is not None:
        return
    raise RefusedError(
        ErrorCode.FORBIDDEN,
        f"an administrator has limited {command.device_uuid} to "
        f"{_in_words(current.key[1], current.value or 0)}",
        path="$.reservation_id",
    )
