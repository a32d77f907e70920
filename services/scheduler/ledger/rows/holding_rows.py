"""Rows of holdings, of devices and of hosts."""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from services.scheduler.domain.drift.detection import Holding
from shared.postgres.database import Connection, Row

_QUARANTINE: Final = """
UPDATE holding h SET quarantined_at = clock_timestamp() FROM device d
WHERE h.device_no = d.device_no AND h.reservation_id = $1 AND h.released_at IS NULL
    AND h.quarantined_at IS NULL
RETURNING d.device_no, d.node_id, d.uuid, true AS quarantined
"""
_RELEASE: Final = """
WITH gone AS (
    UPDATE holding SET released_at = clock_timestamp()
    WHERE reservation_id = ANY($1) AND ($2::bigint[] IS NULL OR device_no = ANY($2))
        AND released_at IS NULL
    RETURNING reservation_id, device_no),
locked AS (
    SELECT device_no FROM device WHERE device_no IN (SELECT device_no FROM gone)
    ORDER BY device_no FOR UPDATE)
UPDATE device d SET releases = d.releases + 1, released_by = gone.reservation_id
FROM gone JOIN locked USING (device_no) WHERE d.device_no = gone.device_no
RETURNING d.node_id, d.uuid, d.releases, d.released_by
"""
# Closes the host holdings of nodes on which no device is held any more, sums them by node, locks
# the nodes' counters in the order in which everybody locks them, and subtracts.
_RELEASE_HOSTS: Final = """
WITH gone AS (
    UPDATE host_holding hh SET released_at = clock_timestamp()
    WHERE hh.reservation_id = ANY($1) AND hh.released_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM holding h JOIN device d USING (device_no)
        WHERE h.reservation_id = hh.reservation_id AND d.node_id = hh.node_id
            AND h.released_at IS NULL)
    RETURNING hh.node_id, hh.cpu_milli, hh.memory_mb),
sums AS (
    SELECT node_id, sum(cpu_milli) AS cpu_milli, sum(memory_mb) AS memory_mb
    FROM gone GROUP BY node_id),
locked AS (
    SELECT u.node_id FROM node_use u JOIN sums USING (node_id) ORDER BY u.node_id FOR UPDATE OF u)
UPDATE node_use u SET cpu_milli = u.cpu_milli - sums.cpu_milli,
    memory_mb = u.memory_mb - sums.memory_mb
FROM sums JOIN locked USING (node_id) WHERE u.node_id = sums.node_id
"""
_OPEN_HOLDINGS: Final = """
SELECT d.device_no, d.node_id, d.uuid, h.quarantined_at IS NOT NULL AS quarantined
FROM holding h JOIN device d USING (device_no)
WHERE h.reservation_id = $1 AND h.released_at IS NULL ORDER BY d.device_no
"""
_HELD_ON: Final = """
SELECT h.reservation_id AS held_by, h.device_no, h.quarantined_at IS NOT NULL AS quarantined
FROM holding h JOIN device d USING (device_no)
WHERE d.node_id = $1 AND ($2::text IS NULL OR d.uuid = $2) AND h.released_at IS NULL
UNION ALL
SELECT reservation_id, NULL, quarantined_at IS NOT NULL FROM cluster_holding
WHERE cluster_id = $1 AND $2 IS NULL AND released_at IS NULL
"""
_ALL_HOLDINGS: Final = """
SELECT h.reservation_id, d.node_id, d.uuid AS device_uuid, h.epoch, r.lease_ttl_seconds,
    h.quarantined_at IS NOT NULL OR r.state NOT IN ('granted', 'active') AS quarantined
FROM holding h JOIN device d USING (device_no) JOIN reservation r USING (reservation_id)
WHERE h.released_at IS NULL
UNION ALL
SELECT h.reservation_id, h.cluster_id, NULL, h.epoch, r.lease_ttl_seconds,
    h.quarantined_at IS NOT NULL OR r.state NOT IN ('granted', 'active')
FROM cluster_holding h JOIN reservation r USING (reservation_id)
WHERE h.released_at IS NULL
ORDER BY reservation_id, device_uuid
"""


class OpenHolding(Struct, frozen=True, kw_only=True):
    """A device of a reservation that is not given back."""

    device_no: int
    node_id: NodeId
    uuid: DeviceUuid
    quarantined: bool


class HeldDevice(Struct, frozen=True, kw_only=True):
    """Which reservation holds a device, and whether that waits for its confirmed stop.

    Without a number it holds GPUs of a cluster.
    """

    held_by: UUID
    device_no: int | None
    quarantined: bool


class ReleasedDevice(Struct, frozen=True, kw_only=True):
    """A device after a confirmed release: how many it has had, and whose the last was."""

    node_id: NodeId
    uuid: DeviceUuid
    releases: int
    released_by: UUID | None


async def quarantine(connection: Connection, reservation_id: UUID) -> list[OpenHolding]:
    """Mark what a reservation holds as waiting for its confirmed stop; what was not so before."""
    return by_number(await connection.fetch(_QUARANTINE, reservation_id))


async def release(
    connection: Connection, ids: Sequence[UUID], numbers: Sequence[int] | None = None
) -> list[ReleasedDevice]:
    """Close what these reservations hold, of these devices or of all, and count the releases."""
    rows = await connection.fetch(_RELEASE, ids, numbers)
    return [ReleasedDevice(**dict(row)) for row in rows]


async def release_hosts(connection: Connection, ids: Sequence[UUID]) -> None:
    """Give back what these reservations hold of nodes on which they hold no device any more."""
    await connection.execute(_RELEASE_HOSTS, list(ids))


async def list_held_by(connection: Connection, reservation_id: UUID) -> list[OpenHolding]:
    rows = await connection.fetch(_OPEN_HOLDINGS, reservation_id)
    return [OpenHolding(**dict(row)) for row in rows]


async def list_held_on(
    connection: Connection, node_id: NodeId, device_uuid: DeviceUuid | None
) -> list[HeldDevice]:
    """Open holdings of a device, or of a whole node or cluster."""
    rows = await connection.fetch(_HELD_ON, node_id, device_uuid)
    return [HeldDevice(**dict(row)) for row in rows]


async def all_open(connection: Connection) -> tuple[Holding, ...]:
    """List open holdings. One of a reservation that is not live counts as quarantined."""
    return tuple(Holding(**dict(row)) for row in await connection.fetch(_ALL_HOLDINGS))


def by_number(rows: Iterable[Row]) -> list[OpenHolding]:
    """Make holdings of rows that are in any order."""
    return sorted((OpenHolding(**dict(row)) for row in rows), key=lambda holding: holding.device_no)
