"""Has Postgres itself write down what the scheduler commits, and lets its clock be moved.

Triggers, because a history taken from the service's own columns would share the service's errors.
"""

import time
from collections.abc import Iterator
from typing import Any

import asyncpg

from schemas.scheduler.reservations import ReservationState
from tests.support.history.records import Freed, Held, LeaseSet, LedgerRow, Moved, Quarantined

# A function that is found before pg_catalog's gives the scheduler another clock, and nobody else.
CLOCK = """
CREATE SCHEMA skew;
CREATE TABLE skew.clock (ahead interval NOT NULL);
INSERT INTO skew.clock VALUES ('0');
CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp() + (SELECT ahead FROM skew.clock)';
CREATE FUNCTION skew.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
    'SELECT pg_catalog.statement_timestamp() + (SELECT ahead FROM skew.clock)';
CREATE FUNCTION skew.now() RETURNS timestamptz LANGUAGE sql STABLE AS
    'SELECT pg_catalog.now() + (SELECT ahead FROM skew.clock)';
GRANT USAGE ON SCHEMA skew TO PUBLIC;
GRANT SELECT ON skew.clock TO PUBLIC;
CREATE FUNCTION skew.log_in() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'gpusteward-scheduler' THEN
        PERFORM set_config('search_path', 'scheduler, skew, pg_catalog', false);
    END IF;
END $$;
CREATE EVENT TRIGGER skewed ON login EXECUTE FUNCTION skew.log_in();
"""

AUDIT = """
CREATE SCHEMA audit;
CREATE TABLE audit.line (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at float8 NOT NULL DEFAULT extract(epoch FROM pg_catalog.clock_timestamp()),
    kind text NOT NULL, reservation_id uuid NOT NULL, device_no bigint, epoch bigint,
    before text, after text, revision bigint,
    transaction bigint NOT NULL DEFAULT txid_current());
CREATE FUNCTION audit.on_reservation() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.state <> OLD.state THEN
        INSERT INTO audit.line (kind, reservation_id, before, after, revision, epoch)
        VALUES ('moved', NEW.reservation_id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END,
            NEW.state, NEW.revision, NEW.epoch);
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.lease_expires_at IS DISTINCT FROM OLD.lease_expires_at
            AND NEW.lease_expires_at IS NOT NULL THEN
        INSERT INTO audit.line (kind, reservation_id) VALUES ('lease', NEW.reservation_id);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION audit.on_holding() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
DECLARE word text;
BEGIN
    IF TG_OP = 'INSERT' THEN word := 'held';
    ELSIF NEW.released_at IS NOT NULL AND OLD.released_at IS NULL THEN word := 'freed';
    ELSIF NEW.quarantined_at IS NOT NULL AND OLD.quarantined_at IS NULL THEN word := 'quarantined';
    ELSE RETURN NULL;
    END IF;
    INSERT INTO audit.line (kind, reservation_id, device_no, epoch)
    VALUES (word, NEW.reservation_id, NEW.device_no, NEW.epoch);
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT OR UPDATE ON scheduler.reservation
    FOR EACH ROW EXECUTE FUNCTION audit.on_reservation();
CREATE TRIGGER audited AFTER INSERT OR UPDATE ON scheduler.holding
    FOR EACH ROW EXECUTE FUNCTION audit.on_holding();
"""

LINES = """
SELECT l.*, d.node_id, d.uuid FROM audit.line l
LEFT JOIN scheduler.device d USING (device_no) ORDER BY number
"""

UNSETTLED = """
SELECT (SELECT count(*) FROM scheduler.reservation WHERE state IN
    ('queued', 'granted', 'active', 'releasing')) AS open,
    (SELECT count(*) FROM scheduler.holding WHERE released_at IS NULL) AS held,
    (SELECT count(*) FROM scheduler.outbox WHERE published_at IS NULL) AS untold
"""


async def execute(dsn: str, statement: str, *arguments: object) -> None:
    """One statement, past the scheduler."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement, *arguments)
    finally:
        await connection.close()


async def move_clock(dsn: str, seconds: float) -> None:
    """Move the scheduler's clock forward, or back if negative."""
    await execute(
        dsn, "UPDATE skew.clock SET ahead = ahead + $1 * interval '1 second'", float(seconds)
    )


async def unsettled(dsn: str) -> dict[str, int]:
    """What keeps the ledger from being at rest; only numbers above 0."""
    connection = await asyncpg.connect(dsn)
    try:
        row = await connection.fetchrow(UNSETTLED)
    finally:
        await connection.close()
    return {name: number for name, number in (row or {}).items() if number}


async def count_grants(dsn: str) -> int:
    """All that were committed, ended ones too."""
    connection = await asyncpg.connect(dsn)
    try:
        granted: int = await connection.fetchval(
            "SELECT count(*) FROM audit.line WHERE kind = 'moved' AND after = 'granted'"
        )
    finally:
        await connection.close()
    return granted


async def cordoned_nodes(dsn: str) -> list[str]:
    """Nodes of which a device is out of service."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT DISTINCT node_id FROM scheduler.device WHERE cordoned"
        )
    finally:
        await connection.close()
    return [row["node_id"] for row in rows]


async def open_reservations(dsn: str) -> list[Any]:
    """Ids of what has not ended."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT reservation_id FROM scheduler.reservation"
            " WHERE state IN ('queued', 'granted', 'active', 'releasing')"
        )
    finally:
        await connection.close()
    return [row["reservation_id"] for row in rows]


async def read_ledger(dsn: str) -> list[LedgerRow]:
    """What was committed, in order, with its times on the monotonic clock."""
    connection = await asyncpg.connect(dsn)
    try:
        lines = await connection.fetch(LINES)
    finally:
        await connection.close()
    return list(_records(lines, time.monotonic() - time.time()))


def _records(lines: list[Any], offset: float) -> Iterator[LedgerRow]:
    kinds = {"held": Held, "quarantined": Quarantined, "freed": Freed}
    for line in lines:
        common = {
            "at": line["at"] + offset,
            "number": line["number"],
            "reservation_id": line["reservation_id"],
            "transaction": line["transaction"],
        }
        if line["kind"] == "moved":
            before = line["before"]
            yield Moved(
                **common,
                before=ReservationState(before) if before is not None else None,
                after=ReservationState(line["after"]),
                revision=line["revision"],
                epoch=line["epoch"],
            )
        elif line["kind"] == "lease":
            yield LeaseSet(**common)
        else:
            device = (line["node_id"], line["uuid"])
            yield kinds[line["kind"]](**common, device=device, epoch=line["epoch"])
