"""Applies decisions of the engine in one transaction: a few statements for any number of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Final
from uuid import UUID

from schemas.base import Event, NodeId
from schemas.gpus.device_grant import CELLS_PER_DEVICE
from schemas.scheduler.reservations import ReservationState
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.model.inputs import CPU_PARTS
from services.scheduler.domain.placement.decisions import (
    Decision,
    Grant,
    Preempt,
    Rejection,
    TimeOut,
)
from services.scheduler.domain.placement.eligibility import share_kind
from services.scheduler.domain.placement.reasons import NEVER_FITS, WAIT_TIMED_OUT
from services.scheduler.ledger import events
from services.scheduler.ledger.device_cells import FreeCells, Range, multirange
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.ledger.rows import holder_rows, label_rows, reservation_rows
from services.scheduler.ledger.rows.reservation_rows import Ending, Reservation
from services.scheduler.ledger.timeline import draw_epochs
from services.scheduler.ledger.transitions import LedgerChanged, device_grants, end_all
from shared.postgres.database import Connection, to_json
from shared.postgres.outbox import stage
from shared.postgres.writes import Writes

Stored = Mapping[UUID, Reservation]

# Locks in order, each step once it has all rows of the one before: the leader's row, reservations,
# devices. Every value is of a locked row, so none is from before a wait. Then draws epochs: none if
# a device is out of service, has another MIG profile than decided, or was put into MIG mode.
_LOCK: Final = f"""
, stored AS MATERIALIZED (
    SELECT {reservation_rows.COLUMNS} FROM reservation r
    WHERE r.reservation_id = ANY($5) AND EXISTS (SELECT FROM leadership)
    ORDER BY r.reservation_id FOR UPDATE),
devices AS MATERIALIZED (
    SELECT device_no, mig_profile, cordoned OR removed OR health <> 'ok'
        OR (mig_enabled IS TRUE AND parent_uuid IS NULL) AS blocked
    FROM device WHERE device_no = ANY($6) AND (SELECT count(*) FROM stored) > 0
    ORDER BY device_no FOR UPDATE),
drawn AS (
    UPDATE epoch SET {draw_epochs("$8")} WHERE $8 > 0 AND (
        SELECT count(*) FROM unnest($6::bigint[], $7::text[]) AS decided (device_no, mig_profile)
        JOIN devices USING (device_no)
        WHERE NOT blocked AND devices.mig_profile IS NOT DISTINCT FROM decided.mig_profile)
    = cardinality($6::bigint[]) RETURNING value)
SELECT stored.*, leadership.xid, (SELECT value FROM drawn) AS last_epoch
FROM leadership LEFT JOIN stored ON true
"""
_CELLS_IN_USE: Final = """
SELECT device_no, cells FROM holding WHERE device_no = ANY($1) AND released_at IS NULL
"""
# Opens holdings, each on the cells that the exclusion constraint guards.
_HOLD: Final = f"""
INSERT INTO holding (reservation_id, device_no, epoch, cells)
SELECT reservation_id, device_no, epoch, coalesce(cells::int8multirange, int8multirange(
    int8range(device_no * {CELLS_PER_DEVICE}, (device_no + 1) * {CELLS_PER_DEVICE})))
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[])
    AS new (reservation_id, device_no, epoch, cells)
"""
_GRANT: Final = """
UPDATE reservation r SET state = 'granted', revision = r.revision + 1, granted_at = $5,
    epoch = new.epoch, node_id = new.node_id, devices = new.devices::jsonb, reasons = '[]',
    lease_expires_at = clock_timestamp() + r.lease_ttl_seconds * interval '1 second'
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[])
    AS new (reservation_id, epoch, node_id, devices)
WHERE r.reservation_id = new.reservation_id
"""
_HOLD_HOST: Final = """
INSERT INTO host_holding (reservation_id, node_id, cpu_milli, memory_mb)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[])
"""
# Adds what is granted of each node to its counters, nodes in order; the table's checks refuse more
# than there is. A limit is renewed only where CPUs (or memory) are granted, so that a host that has
# shrunk fails no grant that takes none.
_USE_HOSTS: Final = """
INSERT INTO node_use AS used (node_id, cpu_milli, cpu_limit_milli, memory_mb, memory_limit_mb)
SELECT n.node_id, sum(new.cpu_milli),
    coalesce(((n.host->>'cpu_count')::float8 * 1000)::bigint, 0), sum(new.memory_mb),
    coalesce((n.host->>'memory_total_mb')::bigint, 0)
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS new (node_id, cpu_milli, memory_mb)
JOIN node n USING (node_id) GROUP BY n.node_id, n.host ORDER BY n.node_id
ON CONFLICT (node_id) DO UPDATE SET cpu_milli = used.cpu_milli + excluded.cpu_milli,
    memory_mb = used.memory_mb + excluded.memory_mb,
    cpu_limit_milli = CASE WHEN excluded.cpu_milli > 0 THEN excluded.cpu_limit_milli
        ELSE used.cpu_limit_milli END,
    memory_limit_mb = CASE WHEN excluded.memory_mb > 0 THEN excluded.memory_limit_mb
        ELSE used.memory_limit_mb END
"""
_PREEMPT: Final = """
UPDATE reservation r SET revision = r.revision + 1, preempting_until = new.until_at,
    preempted_for = new.preempted_for, preempted_by = new.preempted_by
FROM unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $4::text[])
    AS new (reservation_id, until_at, preempted_for, preempted_by)
WHERE r.reservation_id = new.reservation_id
"""


async def apply(
    connection: Connection,
    writes: Writes,
    leadership: Leadership,
    decisions: Sequence[Decision],
    now: datetime,
) -> str:
    """Write the decisions and their events; the caller sends the writes and commits. Return the
    transaction's id.

    Raises LeadershipLost, LedgerChanged if the ledger is not what was decided on any more, and
    asyncpg's violations of integrity if devices or hosts are held already.
    """
    grants = [decision for decision in decisions if isinstance(decision, Grant)]
    device_by_number = {s.device.number: s.device for g in grants for s in g.placed.devices}
    rows = await leadership.check_and_fetch(
        connection,
        _LOCK,
        [decision.reservation_id for decision in decisions],
        list(device_by_number),
        [device.mig_profile for device in device_by_number.values()],
        len(grants),
        is_decision=True,
    )
    # Nothing decided on waits for a confirmed stop: `_check` refuses what does.
    stored = {
        row["reservation_id"]: reservation_rows.Reservation.from_row(row)
        for row in rows
        if row["reservation_id"] is not None
    }
    if len(stored) < len(decisions):
        raise LedgerChanged("a reservation is gone")
    await _end(
        connection,
        writes,
        [d for d in decisions if isinstance(d, Rejection | TimeOut)],
        stored,
        now,
    )
    await _preempt(writes, [d for d in decisions if isinstance(d, Preempt)], stored, now)
    await _grant(connection, writes, grants, stored, rows[0]["last_epoch"], now)
    xid: str = rows[0]["xid"]
    return xid


async def _grant(
    connection: Connection,
    writes: Writes,
    grants: Sequence[Grant],
    stored: Stored,
    last_epoch: int | None,
    now: datetime,
) -> None:
    if not grants:
        return
    for grant in grants:
        _check(stored[grant.reservation_id], ReservationState.QUEUED)
    new_holdings = [(g.reservation_id, n) for g in grants for n in sorted(g.placed.numbers)]
    if last_epoch is None:
        raise LedgerChanged("a device is not in service any more, or not what it was")
    await _check_share_kinds(connection, grants)
    next_epochs = count(last_epoch - len(grants) + 1)
    epochs = {grant.reservation_id: next(next_epochs) for grant in grants}
    cells = await _take_cells(connection, grants, new_holdings)
    new_cells = [cells[reservation_id].get(number) for reservation_id, number in new_holdings]
    devices = {g.reservation_id: device_grants(g.placed, cells[g.reservation_id]) for g in grants}
    await writes.execute(
        _HOLD,
        [reservation_id for reservation_id, _ in new_holdings],
        [number for _, number in new_holdings],
        [epochs[reservation_id] for reservation_id, _ in new_holdings],
        [multirange(ranges) if ranges is not None else None for ranges in new_cells],
    )
    await writes.execute(
        _GRANT,
        list(epochs),
        list(epochs.values()),
        [grant.placed.node_id for grant in grants],
        [to_json(devices[grant.reservation_id]) for grant in grants],
        now,
    )
    await _hold_hosts(connection, grants, stored)
    await stage(
        writes,
        *(
            events.granted_event(
                stored[g.reservation_id], now, epochs[g.reservation_id], devices[g.reservation_id]
            )
            for g in grants
        ),
    )


async def _check_share_kinds(connection: Connection, grants: Sequence[Grant]) -> None:
    """Raises LedgerChanged if shares of a node are not enforced as was decided on.

    The devices are locked, and what enforces their shares changes only under these locks.
    """
    divided = {n.node_id: n for grant in grants for n in grant.placed.nodes if n.parts}
    if not divided:
        return
    for node_id, labels in (await label_rows.labels(connection, list(divided))).items():
        decided = divided[node_id]
        kind = share_kind(decided.devices[0].device, Node(node_id=node_id, labels=labels))
        if kind is not decided.share_kind:
            raise LedgerChanged(f"shares of {node_id} are {kind}, not {decided.share_kind}")


async def _take_cells(
    connection: Connection, grants: Sequence[Grant], new_holdings: Sequence[tuple[UUID, int]]
) -> dict[UUID, dict[int, list[Range]]]:
    """Take the first free cells of each device granted in part, by reservation and device number.

    The devices are locked. Raises LedgerChanged if others hold too much of a device.
    """
    parts = {grant.reservation_id: grant.placed.parts for grant in grants}
    divided = {number for parts_of in parts.values() for number in parts_of}
    cells: dict[UUID, dict[int, list[Range]]] = {reservation_id: {} for reservation_id in parts}
    if not divided:
        return cells
    free = {number: FreeCells.of_device(number) for number in divided}
    for number, ranges in await connection.fetch(_CELLS_IN_USE, list(divided)):
        free[number].remove((cell_range.lower, cell_range.upper) for cell_range in ranges)
    for reservation_id, number in new_holdings:
        part = parts[reservation_id].get(number)
        if part is None:
            continue
        cells_taken = free[number].take(part)
        if cells_taken is None:
            raise LedgerChanged(f"less than {part} hundredths of device {number} are free")
        cells[reservation_id][number] = cells_taken
    return cells


async def _hold_hosts(connection: Connection, grants: Sequence[Grant], stored: Stored) -> None:
    rows: list[tuple[UUID, NodeId, int, int]] = []
    for grant in grants:
        request = stored[grant.reservation_id].request
        cpu = round((request.cpu_count or 0) * CPU_PARTS)
        memory = request.host_memory_mb or 0
        if cpu or memory:
            rows += [
                (grant.reservation_id, node_id, cpu, memory) for node_id in grant.placed.node_ids
            ]
    if rows:
        ids, nodes, cpus, memories = (list(column) for column in zip(*rows, strict=True))
        await connection.execute(_USE_HOSTS, nodes, cpus, memories)
        await connection.execute(_HOLD_HOST, ids, nodes, cpus, memories)


async def _end(
    connection: Connection,
    writes: Writes,
    ends: Sequence[Rejection | TimeOut],
    stored: Stored,
    now: datetime,
) -> None:
    endings = []
    for decision in ends:
        stored_reservation = stored[decision.reservation_id]
        _check(stored_reservation, ReservationState.QUEUED)
        timed_out = isinstance(decision, TimeOut)
        # Stored as they are, for those who may be told more; the event is for its namespace.
        named_reasons = await holder_rows.name_holders(
            connection, decision.reasons, now, {stored_reservation.namespace}
        )
        endings.append(
            Ending(
                stored=stored_reservation,
                state=ReservationState.TIMED_OUT if timed_out else ReservationState.REJECTED,
                reason=WAIT_TIMED_OUT if timed_out else NEVER_FITS,
                reasons=decision.reasons,
                told_reasons=named_reasons,
            )
        )
    await end_all(writes, endings, now)


async def _preempt(
    writes: Writes, preempts: Sequence[Preempt], stored: Stored, now: datetime
) -> None:
    if not preempts:
        return
    staged: list[Event] = []
    for decision in preempts:
        stored_reservation = stored[decision.reservation_id]
        _check(stored_reservation, ReservationState.GRANTED, ReservationState.ACTIVE)
        if stored_reservation.epoch is None or stored_reservation.node_id is None:
            raise LedgerChanged(f"reservation {stored_reservation.reservation_id} holds nothing")
        staged.append(
            events.preempting(stored_reservation, now, stored_reservation.epoch, decision)
        )
    await writes.execute(
        _PREEMPT,
        [decision.reservation_id for decision in preempts],
        [decision.until_at for decision in preempts],
        [decision.for_reservation_id for decision in preempts],
        [decision.cause.value for decision in preempts],
    )
    await stage(writes, *staged)


def _check(stored: Reservation, *states: ReservationState) -> None:
    if stored.state not in states:
        raise LedgerChanged(f"reservation {stored.reservation_id} is {stored.state.value}")
