"""Commands on reservations and devices: checked, applied once, answered after the commit."""

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from schemas.base import Command, NodeId
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.executor import FenceReservation
from schemas.gpu_request import GpuRequest
from schemas.scheduler import (
    CancelReservation,
    Cordon,
    DeviceCordoned,
    DeviceUncordoned,
    Drain,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationState,
    Uncordon,
)
from services.scheduler import ledger, store
from services.scheduler.decider import Decider
from services.scheduler.leadership import pause_decisions
from services.scheduler.store import Reservation
from shared.commands import once
from shared.database import Connection, Database
from shared.errors import RefusedError
from shared.logging import log

LONGEST_WAIT_SECONDS: Final = 366 * 24 * 3600.0
_FLOATS: Final = (
    "max_utilization_percent",
    "wait_timeout_seconds",
    "lease_ttl_seconds",
    "expected_duration_seconds",
    "cpu_count",
)
HELD_ON_LEASE: Final = frozenset({ReservationState.GRANTED, ReservationState.ACTIVE})


@dataclass(frozen=True, slots=True)
class Commands:
    """Handlers of every command, and of the answers to the scheduler's own."""

    database: Database
    decider: Decider

    async def request(self, command: RequestReservation) -> Reply:
        """Queue a request, or reject it if it can never fit. Any scheduler may take it."""
        return await self._once(command, lambda connection: self._request(connection, command))

    async def renew(self, command: RenewReservation) -> Reply:
        """Extend a lease; refuse everybody whose grant is over or is not the newest."""
        return await once(self.database, command, lambda connection: _renew(connection, command))

    async def release(self, command: ReleaseReservation) -> Reply:
        """Free the devices if their stop is confirmed, else quarantine them and ask for it."""
        return await self._once(command, lambda connection: _release(connection, command))

    async def cancel(self, command: CancelReservation) -> Reply:
        """End a reservation in whatever state it is."""
        return await self._once(command, lambda connection: _cancel(connection, command))

    async def cordon(self, command: Cordon) -> Reply:
        """Grant nothing new there."""
        return await self._once(command, lambda connection: _cordon(connection, command))

    async def uncordon(self, command: Uncordon) -> Reply:
        """Grant there again; an administrator may also vouch that quarantined holders stopped."""
        return await self._once(command, lambda connection: _uncordon(connection, command))

    async def drain(self, command: Drain) -> Reply:
        """Cordon a node and cancel what is granted there."""
        return await self._once(command, lambda connection: _drain(connection, command))

    async def fenced(self, connection: Connection, command: Command, reply: Reply) -> None:
        """A node's answer to a fence: accepted is the confirmation that its devices waited for."""
        if not isinstance(command, FenceReservation):
            return
        if not isinstance(reply, Accepted):
            log.error(
                "fence_refused",
                reservation_id=str(command.reservation_id),
                node_id=command.executor_id,
                code=reply.code.value,
                message=reply.message,
            )
            return
        stored = await store.find(connection, command.reservation_id, lock=True)
        if stored is not None and stored.quarantined:
            now = await store.database_now(connection)
            await ledger.free(
                connection,
                stored,
                now,
                "the node confirmed the stop",
                only_node=command.executor_id,
            )

    async def _once(
        self, command: Command, apply: Callable[[Connection], Awaitable[Accepted]]
    ) -> Reply:
        async def apply_checked(connection: Connection) -> Accepted:
            for name in ("reason", "device_uuid"):
                _check_texts(getattr(command, name, None) or "", f"$.{name}")
            return await apply(connection)

        reply = await once(self.database, command, apply_checked)
        self.decider.wake()
        return reply

    async def _request(self, connection: Connection, command: RequestReservation) -> Accepted:
        _check_request(command)
        is_new = await store.insert_request(connection, command)
        stored = await _known(connection, command.reservation_id)
        if is_new:
            position = await store.queue_position(connection, stored)
            await ledger.announce_queued(connection, stored, position)
        else:
            _check_same(stored, command)
        return Accepted(command_id=command.command_id, revision=stored.revision)


async def _renew(connection: Connection, command: RenewReservation) -> Accepted:
    stored = await _known(connection, command.reservation_id)
    if stored.state is ReservationState.QUEUED:
        raise RefusedError(
            ErrorCode.CONFLICT, f"reservation {stored.reservation_id} is not granted yet"
        )
    now = await store.database_now(connection)
    expired = stored.lease_expires_at is None or stored.lease_expires_at <= now
    if stored.state not in HELD_ON_LEASE or expired:
        what = "its lease ran out" if stored.state in HELD_ON_LEASE else f"is {stored.state.value}"
        raise RefusedError(ErrorCode.LEASE_LOST, f"reservation {stored.reservation_id}: {what}")
    _check_epoch(stored, command.epoch)
    renewed = await ledger.renew(connection, stored, activate=command.activate)
    return Accepted(
        command_id=command.command_id,
        revision=renewed.revision,
        lease_ttl_seconds=renewed.lease_ttl_seconds,
        epoch=renewed.epoch,
    )


async def _release(connection: Connection, command: ReleaseReservation) -> Accepted:
    stored = await _known(connection, command.reservation_id)
    _check_epoch(stored, command.epoch)
    now = await store.database_now(connection)
    if stored.state in HELD_ON_LEASE and not command.stopped:
        stored = await ledger.begin_release(connection, stored, command.reason)
    elif stored.state in HELD_ON_LEASE:
        stored = await ledger.give_back(connection, stored, now, command.reason)
    # Of a gang each node speaks for itself.
    elif command.stopped and stored.quarantined and len(stored.node_ids) == 1:
        stored = await ledger.free(connection, stored, now, "its holder confirmed the stop")
    return Accepted(command_id=command.command_id, revision=stored.revision, epoch=stored.epoch)


async def _cancel(connection: Connection, command: CancelReservation) -> Accepted:
    stored = await _known(connection, command.reservation_id)
    now = await store.database_now(connection)
    ended = await ledger.cancel(connection, stored, now, command.reason)
    return Accepted(command_id=command.command_id, revision=ended.revision, epoch=ended.epoch)


async def _cordon(connection: Connection, command: Cordon) -> Accepted:
    await pause_decisions(connection)
    await _check_device(connection, command.node_id, command.device_uuid)
    changed = await ledger.set_cordon(
        connection, command.node_id, command.device_uuid, cordoned=True, reason=command.reason
    )
    revision = await ledger.stage_device_events(
        connection, DeviceCordoned, changed, None, command.reason
    )
    return Accepted(command_id=command.command_id, revision=revision)


async def _uncordon(connection: Connection, command: Uncordon) -> Accepted:
    await pause_decisions(connection)
    await _check_device(connection, command.node_id, command.device_uuid)
    if command.confirm_stopped:
        await _confirm_stopped(connection, command)
    changed = await ledger.set_cordon(
        connection, command.node_id, command.device_uuid, cordoned=False
    )
    revision = await ledger.stage_device_events(
        connection, DeviceUncordoned, changed, None, command.reason
    )
    return Accepted(command_id=command.command_id, revision=revision)


async def _confirm_stopped(connection: Connection, command: Uncordon) -> None:
    rows = await connection.fetch(
        "SELECT h.reservation_id, h.device_no FROM holding h JOIN device d USING (device_no)"
        " WHERE d.node_id = $1 AND ($2::text IS NULL OR d.uuid = $2)"
        " AND h.released_at IS NULL AND h.quarantined_at IS NOT NULL",
        command.node_id,
        command.device_uuid,
    )
    numbers = {row["device_no"] for row in rows}
    now = await store.database_now(connection)
    found = await store.find_locked(connection, {row["reservation_id"] for row in rows})
    for stored in found.values():
        await ledger.free(
            connection, stored, now, command.reason or "confirmed by hand", only=numbers
        )


async def _drain(connection: Connection, command: Drain) -> Accepted:
    await pause_decisions(connection)
    await _check_device(connection, command.node_id, None)
    rows = await connection.fetch(
        "SELECT DISTINCT r.reservation_id FROM holding h JOIN device d USING (device_no)"
        " JOIN reservation r USING (reservation_id) WHERE d.node_id = $1"
        " AND h.released_at IS NULL AND r.state IN ('granted', 'active')",
        command.node_id,
    )
    now = await store.database_now(connection)
    found = await store.find_locked(connection, [row["reservation_id"] for row in rows])
    for stored in found.values():
        await ledger.cancel(connection, stored, now, command.reason or "the node is drained")
    changed = await ledger.set_cordon(
        connection, command.node_id, None, cordoned=True, reason=command.reason or "drained"
    )
    revision = await ledger.stage_device_events(
        connection, DeviceCordoned, changed, None, command.reason
    )
    return Accepted(command_id=command.command_id, revision=revision)


async def _known(connection: Connection, reservation_id: UUID) -> Reservation:
    stored = await store.find(connection, reservation_id, lock=True)
    if stored is None:
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"no reservation {reservation_id}",
            path="$.reservation_id",
        )
    return stored


async def _check_device(connection: Connection, node_id: NodeId, device_uuid: str | None) -> None:
    if not await connection.fetchval("SELECT 1 FROM node WHERE node_id = $1", node_id):
        raise RefusedError(ErrorCode.NOT_FOUND, f"no node {node_id}", path="$.node_id")
    if device_uuid is not None and not await connection.fetchval(
        "SELECT 1 FROM device WHERE node_id = $1 AND uuid = $2", node_id, device_uuid
    ):
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"no device {device_uuid} on {node_id}", path="$.device_uuid"
        )


def _check_epoch(stored: Reservation, epoch: int) -> None:
    if stored.epoch is None:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"reservation {stored.reservation_id} is {stored.state.value} and was never granted",
        )
    if epoch != stored.epoch:
        raise RefusedError(
            ErrorCode.STALE_EPOCH,
            f"expected epoch {stored.epoch} of reservation {stored.reservation_id}, got {epoch}",
            path="$.epoch",
        )


def _check_same(stored: Reservation, command: RequestReservation) -> None:
    before = (stored.namespace, stored.holder, stored.request)
    if before != (command.namespace, command.holder, command.request):
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"reservation {stored.reservation_id} was requested before with another body",
            path="$.reservation_id",
        )


def _check_request(command: RequestReservation) -> None:
    request = command.request
    if request.wait_timeout_seconds > LONGEST_WAIT_SECONDS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {LONGEST_WAIT_SECONDS:.0f} s",
            path="$.request.wait_timeout_seconds",
        )
    for name in _FLOATS:
        value = getattr(request, name)
        if value is not None and not math.isfinite(value):
            raise RefusedError(
                ErrorCode.BAD_REQUEST, "expected a finite number", path=f"$.request.{name}"
            )
    _check_texts(command.holder, "$.holder")
    _check_all_texts(request)


def _check_all_texts(request: GpuRequest) -> None:
    for name in ("device_uuids", "gpu_models"):
        values: Iterable[str] = getattr(request, name)
        for place, value in enumerate(values):
            _check_texts(value, f"$.request.{name}[{place}]")


def _check_texts(text: str, path: str) -> None:
    """Postgres stores every character but this one."""
    if "\x00" in text:
        raise RefusedError(ErrorCode.BAD_REQUEST, "expected text without NUL", path=path)
