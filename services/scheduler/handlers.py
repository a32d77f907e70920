"""Commands on reservations and devices: checked, applied once, answered after the commit."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from schemas.base import Command, NodeId
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.executor import FenceReservation
from schemas.scheduler import (
    CancelReservation,
    Cordon,
    DeviceCordoned,
    DeviceUncordoned,
    Drain,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    Uncordon,
)
from services.scheduler import checks, ledger, store
from services.scheduler.decider import Decider
from services.scheduler.intake import Intake
from services.scheduler.leadership import pause_decisions
from shared.commands import once
from shared.database import Connection, Database
from shared.errors import RefusedError
from shared.logging import log


@dataclass(frozen=True, slots=True)
class Commands:
    """Handlers of every command, and of the answers to the scheduler's own."""

    database: Database
    intake: Intake
    decider: Decider

    async def request(self, command: RequestReservation) -> Reply:
        """Queue a request, or reject it if it can never fit. Any scheduler may take it."""
        return await self.intake.submit(command)

    async def renew(self, command: RenewReservation) -> Reply:
        """Extend a lease; refuse everybody whose grant is over or is not the newest."""
        return await self.intake.submit(command)

    async def release(self, command: ReleaseReservation) -> Reply:
        """Free the devices if their stop is confirmed, else quarantine them and ask for it."""
        return await self.intake.submit(command)

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
                checks.check_text(getattr(command, name, None) or "", f"$.{name}")
            return await apply(connection)

        reply = await once(self.database, command, apply_checked)
        self.decider.wake()
        return reply


async def _cancel(connection: Connection, command: CancelReservation) -> Accepted:
    found = await store.find(connection, command.reservation_id, lock=True)
    stored = checks.known(found, command.reservation_id)
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


async def _check_device(connection: Connection, node_id: NodeId, device_uuid: str | None) -> None:
    await store.check_node(connection, node_id)
    if device_uuid is not None and not await connection.fetchval(
        "SELECT 1 FROM device WHERE node_id = $1 AND uuid = $2", node_id, device_uuid
    ):
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"no device {device_uuid} on {node_id}", path="$.device_uuid"
        )
