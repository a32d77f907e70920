"""What the scheduler's events report of reservations and devices, as rows.

Each column is written by one kind of event alone, and always with the same value, so that neither
their order nor a repetition matters.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from schemas.base import Event
from schemas.gpus.device_grant import DeviceGrant
from schemas.scheduler.devices import (
    DeviceCordoned,
    DeviceFreed,
    DeviceQuarantined,
    DeviceUncordoned,
)
from schemas.scheduler.nodes import NodeRemoved
from schemas.scheduler.reservations import (
    RESERVATION_ENDS,
    ReservationEnded,
    ReservationGranted,
    ReservationQueued,
)
from services.results.domain.device_parts import hundredths_of, kind_of
from services.results.gpu_time.hours import mark
from shared.clock import utcnow
from shared.messaging.bus import Route, event_route
from shared.postgres.database import Connection, Database

WHOLE_NODE: Final = ""

INSERT_DEVICES: Final = """
INSERT INTO device (node_id, device_uuid, device_index, name, simulated)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::boolean[])
ORDER BY 1, 2 ON CONFLICT DO NOTHING
"""

UPSERT_RESERVATION: Final = """
INSERT INTO reservation AS known (reservation_id, namespace, holder, gpus, requested_at, granted_at,
                                  waited_seconds, ended_at, state, reason, expected_seconds,
                                  forecast_start_at, requester)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (reservation_id) DO UPDATE SET
    gpus = coalesce(known.gpus, excluded.gpus),
    requested_at = coalesce(known.requested_at, excluded.requested_at),
    granted_at = coalesce(known.granted_at, excluded.granted_at),
    waited_seconds = coalesce(known.waited_seconds, excluded.waited_seconds),
    ended_at = coalesce(known.ended_at, excluded.ended_at),
    state = coalesce(known.state, excluded.state),
    reason = coalesce(known.reason, excluded.reason),
    expected_seconds = coalesce(known.expected_seconds, excluded.expected_seconds),
    forecast_start_at = coalesce(known.forecast_start_at, excluded.forecast_start_at),
    requester = coalesce(known.requester, excluded.requester)
"""

HOLD: Final = """
INSERT INTO device_holding AS known
    (reservation_id, device_no, epoch, hundredths, memory_mb, kind, granted_at)
SELECT $1, device_no, $2, hundredths, memory_mb, kind, $3
FROM unnest($4::text[], $5::text[], $6::int[], $7::bigint[], $8::text[])
    AS granted (node_id, device_uuid, hundredths, memory_mb, kind)
JOIN device USING (node_id, device_uuid)
ORDER BY device_no
ON CONFLICT (reservation_id, device_no) DO UPDATE SET epoch = excluded.epoch,
    hundredths = excluded.hundredths, memory_mb = excluded.memory_mb, kind = excluded.kind,
    granted_at = excluded.granted_at
"""

# `{column}` is one of quarantined_at, freed_at and reservation_ended_at.
NOTE_TIME: Final = """
INSERT INTO device_holding AS known (reservation_id, device_no, {column})
SELECT $1, device_no, $2 FROM unnest($3::text[], $4::text[]) AS held (node_id, device_uuid)
JOIN device USING (node_id, device_uuid) ORDER BY device_no
ON CONFLICT (reservation_id, device_no) DO UPDATE SET {column} = least(known.{column}, $2)
"""

INSERT_CORDON: Final = """
INSERT INTO cordon_change (node_id, device_uuid, revision, at, cordoned)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""

LedgerEvent = (
    ReservationQueued
    | ReservationGranted
    | ReservationEnded
    | DeviceQuarantined
    | DeviceFreed
    | DeviceCordoned
    | DeviceUncordoned
    | NodeRemoved
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Hours further back than `samples_kept` are computed no more."""

    database: Database
    samples_kept: timedelta

    async def record(self, event: LedgerEvent) -> None:
        """Store what an event reports, and have the hours computed again that it changes."""
        async with self.database.transaction() as connection:
            nodes = await _record(connection, event)
            now = utcnow()
            since = max(event.occurred_at, now - self.samples_kept)
            await mark(connection, dict.fromkeys(nodes, since), now)


async def _record(connection: Connection, event: LedgerEvent) -> Iterable[str]:
    """The nodes that it concerns."""
    match event:
        case ReservationQueued():
            await _upsert(connection, event, gpus=event.request.gpus * event.request.nodes)
            return ()
        case ReservationGranted():
            await _upsert(connection, event, waited_seconds=event.waited_seconds)
            await _hold(connection, event)
            return {device.node_id for device in event.devices}
        case ReservationEnded():
            await _upsert(connection, event)
            column = "reservation_ended_at"
            await _record_time(connection, column, event, event.reservation_id, event.devices)
            return {device.node_id for device in event.devices}
        case DeviceQuarantined() | DeviceFreed():
            if event.reservation_id is None:
                return ()
            device = DeviceGrant(node_id=event.node_id, uuid=event.device_uuid, index=0, name="")
            column = "freed_at" if isinstance(event, DeviceFreed) else "quarantined_at"
            await _record_time(connection, column, event, event.reservation_id, [device])
        case DeviceCordoned() | DeviceUncordoned():
            await connection.execute(
                INSERT_CORDON,
                event.node_id,
                event.device_uuid,
                event.revision,
                event.occurred_at,
                isinstance(event, DeviceCordoned),
            )
        case NodeRemoved():
            await connection.execute(
                INSERT_CORDON, event.node_id, WHOLE_NODE, event.revision, event.occurred_at, False
            )
    return (event.node_id,)


async def _upsert(
    connection: Connection,
    event: ReservationQueued | ReservationGranted | ReservationEnded,
    *,
    gpus: int | None = None,
    waited_seconds: float | None = None,
) -> None:
    at = event.occurred_at
    end = event if isinstance(event, ReservationEnded) else None
    await connection.execute(
        UPSERT_RESERVATION,
        event.reservation_id,
        event.namespace,
        event.holder,
        gpus,
        at if isinstance(event, ReservationQueued) else None,
        at if isinstance(event, ReservationGranted) else None,
        waited_seconds,
        at if end is not None else None,
        end.state.value if end is not None else None,
        end.reason if end is not None else None,
        event.request.expected_duration_seconds if isinstance(event, ReservationQueued) else None,
        event.forecast_start_at if isinstance(event, ReservationGranted) else None,
        event.requester or None,
    )


async def _hold(connection: Connection, event: ReservationGranted) -> None:
    await _insert_devices(connection, event.devices)
    await connection.execute(
        HOLD,
        event.reservation_id,
        event.epoch,
        event.occurred_at,
        [device.node_id for device in event.devices],
        [device.uuid for device in event.devices],
        [hundredths_of(device) for device in event.devices],
        [_memory_of(device) for device in event.devices],
        [kind_of(device).value for device in event.devices],
    )


def _memory_of(device: DeviceGrant) -> int | None:
    share = device.share
    return share.reserved_memory_mb if share is not None else device.memory_total_mb


async def _record_time(
    connection: Connection,
    column: str,
    event: Event,
    reservation_id: UUID,
    devices: Iterable[DeviceGrant],
) -> None:
    granted = list(devices)
    await _insert_devices(connection, granted)
    await connection.execute(
        NOTE_TIME.format(column=column),
        reservation_id,
        event.occurred_at,
        [device.node_id for device in granted],
        [device.uuid for device in granted],
    )


async def _insert_devices(connection: Connection, devices: Iterable[DeviceGrant]) -> None:
    """Samples show more of them, and what they show replaces this."""
    granted = list(devices)
    await connection.execute(
        INSERT_DEVICES,
        [device.node_id for device in granted],
        [device.uuid for device in granted],
        [device.index for device in granted],
        [device.name for device in granted],
        [device.simulated for device in granted],
    )


def build_routes(facts: Facts) -> list[Route]:
    events: tuple[type[Event], ...] = (
        ReservationQueued,
        ReservationGranted,
        *RESERVATION_ENDS,
        DeviceQuarantined,
        DeviceFreed,
        DeviceCordoned,
        DeviceUncordoned,
        NodeRemoved,
    )
    return [event_route(facts.record, *events, durable="results_record_ledger")]
