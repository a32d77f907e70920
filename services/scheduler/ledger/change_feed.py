"""What an engine in memory needs of the ledger: everything once, then what has changed since.

Every poll returns the database's snapshot that it was made in. Whatever a later poll finds that was
not visible in that snapshot is new, in whatever order transactions have committed.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Self
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import DeviceUuid, NodeId
from schemas.gpus.gpu_request import WHOLE, GpuRequest
from schemas.gpus.mig import MigLayout
from schemas.scheduler.devices import CordonCause
from schemas.scheduler.reservations import ReservationState
from schemas.telemetry.readings import HealthState, HostFacts
from services.scheduler.domain.labels import OperatorLabels, effective
from services.scheduler.domain.model.fleet import Part
from services.scheduler.domain.model.namespaces import Quota
from services.scheduler.ledger.rows import quota_rows
from services.scheduler.ledger.timeline import TIMELINE
from shared.postgres.database import Connection, Row, from_json

_RESERVATIONS: Final = """
SELECT r.reservation_id, r.namespace, r.state, r.arrival,
    (r.request || CASE WHEN r.idle_preemptible THEN '{"preemptible": true, "priority": -1000}'
        ELSE '{}' END::jsonb)::text AS request,
    r.requested_at, r.wait_deadline_at, r.granted_at, r.preempting_until, r.preempted_for,
    r.state = 'queued' AND EXISTS (SELECT 1 FROM reservation victim
        WHERE victim.preempted_for = r.reservation_id AND victim.preempted_by = 'guarantee')
        AS has_reclaimed,
    ARRAY(SELECT h.device_no FROM holding h WHERE h.reservation_id = r.reservation_id
        AND h.released_at IS NULL ORDER BY h.device_no) AS numbers,
    ARRAY(SELECT h.hundredths FROM holding h WHERE h.reservation_id = r.reservation_id
        AND h.released_at IS NULL ORDER BY h.device_no) AS parts
FROM reservation r
"""
# Triggers write a row into `change` for whatever decisions depend on. `new` are those rows that
# were not visible in the snapshot $1, but for the transactions $2, whose changes the caller made
# itself. The rest of `polled` is what time alone has brought, by the database's clock. There is a
# row for each changed reservation, or one without. LIMIT has each looked up by its key, also by a
# plan that was made while the table was small.
_POLL: Final = f"""
WITH new AS MATERIALIZED (
    SELECT reservation_id, device_no, node_id, namespace FROM change
    WHERE xid >= pg_snapshot_xmin($1::text::pg_snapshot)
        AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot)
        AND xid <> ALL($2::text[]::xid8[])),
polled AS MATERIALIZED (SELECT pg_current_snapshot()::text AS snapshot, {TIMELINE} AS timeline,
    statement_timestamp() AS now,
    ARRAY(SELECT DISTINCT device_no FROM new WHERE device_no IS NOT NULL) AS device_nos,
    ARRAY(SELECT DISTINCT node_id FROM new WHERE node_id IS NOT NULL) AS node_ids,
    ARRAY(SELECT DISTINCT namespace FROM new WHERE namespace IS NOT NULL) AS namespaces,
    ARRAY(SELECT reservation_id FROM reservation
        WHERE lease_expires_at <= statement_timestamp()) AS expired,
    ARRAY(SELECT reservation_id FROM reservation
        WHERE preempting_until <= statement_timestamp()) AS preempted,
    least((SELECT min(lease_expires_at) FROM reservation WHERE lease_expires_at IS NOT NULL),
        (SELECT min(preempting_until) FROM reservation WHERE preempting_until IS NOT NULL))
        AS next_end_at)
SELECT polled.*, changed.* FROM polled LEFT JOIN (
    SELECT found.* FROM (SELECT DISTINCT reservation_id AS id FROM new) AS ids,
        LATERAL ({_RESERVATIONS} WHERE r.reservation_id = ids.id LIMIT 1) AS found) AS changed
    ON true
"""
_READ_ONE_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_POSITION: Final = f"""
SELECT pg_current_snapshot()::text AS snapshot, {TIMELINE} AS timeline,
    statement_timestamp() AS now
"""
_OPEN_RESERVATIONS: Final = f"""
{_RESERVATIONS} WHERE r.reservation_id IN (
    SELECT q.reservation_id FROM reservation q WHERE q.state = 'queued'
    UNION SELECT h.reservation_id FROM holding h WHERE h.released_at IS NULL)
"""
_DEVICES: Final = """
SELECT d.device_no, d.node_id, d.uuid, d.index, d.name, d.memory_total_mb, d.simulated, d.health,
    d.health_detail, d.cordoned, d.cordon_cause, d.cordon_reason, d.cordon_set_by, d.cordoned_at,
    d.quiet_since, d.compute_capability, d.numa_node, d.link_groups, d.mig_enabled, d.parent_uuid,
    d.mig_profile, d.mig_layout, d.removed, d.releases, d.released_by, h.reservation_id,
    h.hundredths, h.quarantined_at IS NOT NULL AS quarantined
FROM device d LEFT JOIN holding h ON h.device_no = d.device_no AND h.released_at IS NULL
"""
_ALL_DEVICES: Final = f"{_DEVICES} WHERE NOT d.removed"
_CHANGED_DEVICES: Final = f"{_DEVICES} WHERE d.device_no = ANY($1)"
# A cluster is a node without devices, which no decision of the engine needs.
_NODES: Final = """
SELECT n.node_id, n.labels, n.operator_labels, n.host, n.inventory_at IS NOT NULL AS inventoried,
    extract(epoch FROM clock_timestamp() - n.first_seen_at)::float8 AS known_seconds, n.lost,
    n.admitted, n.removed
FROM node n
"""
_CHANGED_NODES: Final = f"{_NODES} WHERE n.node_id = ANY($1) AND n.source <> 'kubernetes'"
_ALL_NODES: Final = f"""
{_NODES} WHERE NOT n.removed AND n.source <> 'kubernetes' ORDER BY n.node_id
"""
_DELETE: Final = """
WITH gone AS (
    DELETE FROM change WHERE change_id IN (
        SELECT change_id FROM change WHERE changed_at < now() - $1 * interval '1 second'
        ORDER BY change_id LIMIT $2)
    RETURNING 1)
SELECT count(*) FROM gone
"""

# An engine that has not polled for longer than CHANGES_SECONDS may have missed some.
CHANGES_SECONDS: Final = 180.0


class Position(Struct, frozen=True, kw_only=True):
    """Up to where the ledger was read; `now` is the database's. Beyond it, changes can be told only
    on the same timeline: another gives the same transaction ids again.
    """

    snapshot: str
    timeline: int
    now: datetime


class Changes(Struct, frozen=True, kw_only=True):
    """What is new, and what time alone has brought; `now` is the database's."""

    snapshot: str
    timeline: int
    now: datetime
    device_nos: list[int]
    node_ids: list[NodeId]
    namespaces: list[str] = []
    expired: list[UUID]
    preempted: list[UUID]
    next_end_at: datetime | None


class ReservationRow(Struct, frozen=True, kw_only=True):
    """A reservation as decisions need it. `numbers` are the devices that it holds, and `parts` the
    hundredths of each, unless it holds them as a whole.
    """

    reservation_id: UUID
    namespace: str
    state: ReservationState
    request: GpuRequest
    arrival: int
    requested_at: datetime
    wait_deadline_at: datetime
    granted_at: datetime | None
    preempting_until: datetime | None
    preempted_for: UUID | None
    has_reclaimed: bool = False
    numbers: tuple[int, ...]
    parts: tuple[int, ...] = ()

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Make one from a row of `_RESERVATIONS`."""
        is_shared = any(part < WHOLE for part in row["parts"])
        plain = {name: row[name] for name in cls.__struct_fields__}
        return cls(
            **plain
            | {
                "state": ReservationState(row["state"]),
                "request": from_json(row["request"], GpuRequest),
                "numbers": tuple(row["numbers"]),
                "parts": tuple(row["parts"]) if is_shared else (),
            }
        )


class DeviceRow(Struct, frozen=True, kw_only=True):
    """A device with its open holding, if there is one; with `parts` if several share it.

    `releases` counts its confirmed releases, of which `released_by` was the last. `quiet_since`:
    well since the loss that it is cordoned for.
    """

    device_no: int
    node_id: NodeId
    uuid: DeviceUuid
    index: int
    name: str
    memory_total_mb: int | None
    simulated: bool
    health: HealthState
    health_detail: str | None
    cordoned: bool
    cordon_cause: CordonCause
    cordon_reason: str
    cordon_set_by: str
    cordoned_at: datetime | None
    quiet_since: datetime | None
    compute_capability: str | None
    numa_node: int | None
    link_groups: tuple[int, ...]
    mig_enabled: bool | None
    parent_uuid: str | None
    mig_profile: str | None
    mig_layout: MigLayout | None
    removed: bool
    releases: int
    released_by: UUID | None
    reservation_id: UUID | None
    quarantined: bool
    parts: tuple[Part, ...] = ()

    def with_holding(self, reservation_id: UUID, hundredths: int | None) -> "DeviceRow":
        """The device with one more holding: a part of it, or None for all."""
        if hundredths is None:
            return replace(self, reservation_id=reservation_id)
        return self.with_parts(Part(reservation_id, hundredths))

    def with_parts(self, *more: Part) -> Self:
        parts = sorted((*self.parts, *more), key=lambda part: part.holder.int)
        return replace(self, reservation_id=parts[0].holder, parts=tuple(parts))

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> list[Self]:
        """Make devices from rows of `_DEVICES`, which has a row for each holding."""
        device_by_number: dict[int, Self] = {}
        for row in rows:
            device, device_before = cls._from_row(row), device_by_number.get(row["device_no"])
            if device_before is not None:
                quarantined = device_before.quarantined or device.quarantined
                device = replace(device.with_parts(*device_before.parts), quarantined=quarantined)
            device_by_number[device.device_no] = device
        return list(device_by_number.values())

    @classmethod
    def _from_row(cls, row: Row) -> Self:
        fields = dict(row)
        hundredths, layout = fields.pop("hundredths"), row["mig_layout"]
        is_shared = hundredths is not None and hundredths < WHOLE
        return cls(
            **fields
            | {
                "parts": (Part(row["reservation_id"], hundredths),) if is_shared else (),
                "health": HealthState(row["health"]),
                "mig_layout": from_json(layout, MigLayout) if layout is not None else None,
                "cordon_cause": CordonCause(row["cordon_cause"]),
                "link_groups": tuple(row["link_groups"]),
            }
        )


class NodeRow(Struct, frozen=True, kw_only=True):
    """A node, first seen `known_seconds` ago. `inventoried`: it has reported its devices.

    `labels` are those that count.
    """

    node_id: NodeId
    labels: dict[str, str]
    host: HostFacts | None
    inventoried: bool
    known_seconds: float
    lost: bool
    admitted: bool
    removed: bool

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Make one from a row of `_NODES`."""
        fields = dict(row)
        host, operator = row["host"], from_json(fields.pop("operator_labels"), OperatorLabels)
        return cls(
            **fields
            | {
                "labels": effective(from_json(row["labels"], dict[str, str]), operator),
                "host": from_json(host, HostFacts) if host is not None else None,
            }
        )


class Rows(Struct, frozen=True, kw_only=True):
    """Rows as they are now."""

    reservations: Sequence[ReservationRow] = ()
    devices: Sequence[DeviceRow] = ()
    nodes: Sequence[NodeRow] = ()
    quotas: Sequence[Quota] = ()


async def poll(
    connection: Connection, snapshot: str, own_xids: Sequence[str] = ()
) -> tuple[Changes, Rows]:
    """Return what transactions other than `own_xids` have changed since the snapshot of an earlier
    poll, and the rows as they are now: newer changes may show, and show again.
    """
    polled = await connection.fetch(_POLL, snapshot, list(own_xids))
    changes = Changes(**{name: polled[0][name] for name in Changes.__struct_fields__})

    async def fetch(statement: str, ids: Sequence[object]) -> Sequence[Row]:
        return await connection.fetch(statement, ids) if ids else ()

    devices = await fetch(_CHANGED_DEVICES, changes.device_nos)
    nodes = await fetch(_CHANGED_NODES, changes.node_ids)
    return changes, Rows(
        reservations=[
            ReservationRow.from_row(row) for row in polled if row["reservation_id"] is not None
        ],
        devices=DeviceRow.from_rows(devices),
        nodes=[NodeRow.from_row(row) for row in nodes],
        quotas=await quota_rows.find(connection, changes.namespaces) if changes.namespaces else (),
    )


async def read_all(connection: Connection) -> tuple[Position, Rows]:
    """Read everything that decisions depend on, and the position from which changes go on.

    To be called first in its transaction.
    """
    await connection.execute(_READ_ONE_SNAPSHOT)
    [position] = await connection.fetch(_POSITION)
    reservations = await connection.fetch(_OPEN_RESERVATIONS)
    rows = Rows(
        reservations=[ReservationRow.from_row(row) for row in reservations],
        devices=await read_devices(connection),
        nodes=await read_nodes(connection),
        quotas=await quota_rows.find_all(connection),
    )
    return Position(**dict(position)), rows


async def read_devices(connection: Connection) -> list[DeviceRow]:
    return DeviceRow.from_rows(await connection.fetch(_ALL_DEVICES))


async def read_nodes(connection: Connection) -> list[NodeRow]:
    """Return every node, in order."""
    return [NodeRow.from_row(row) for row in await connection.fetch(_ALL_NODES)]


async def delete(connection: Connection, older_than_seconds: float, limit: int) -> int:
    """Delete changes that every engine has polled; how many."""
    return int(await connection.fetchval(_DELETE, older_than_seconds, limit))
