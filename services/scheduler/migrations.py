"""The ledger's tables. A text is a version: texts are only ever appended."""

from typing import Final

MIGRATIONS: Final = (
    """
CREATE TABLE leader (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    term bigint NOT NULL,
    holder uuid,
    expires_at timestamptz NOT NULL);
INSERT INTO leader (term, expires_at) VALUES (0, '-infinity');

CREATE TABLE epoch (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    value bigint NOT NULL);
INSERT INTO epoch (value) VALUES (0);

CREATE TABLE node (
    node_id text PRIMARY KEY,
    source text NOT NULL DEFAULT 'none',
    boot_id uuid,
    past_boot_ids uuid[] NOT NULL DEFAULT '{}',
    inventory_revision bigint NOT NULL DEFAULT -1,
    health_revision bigint NOT NULL DEFAULT -1,
    inventory_at timestamptz,
    labels jsonb NOT NULL DEFAULT '{}',
    host jsonb,
    cordoned boolean NOT NULL DEFAULT false,
    executor_seen_at timestamptz,
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    event_revision bigint NOT NULL DEFAULT 0);

CREATE TABLE device (
    device_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id text NOT NULL REFERENCES node,
    uuid text NOT NULL,
    index int NOT NULL,
    name text NOT NULL,
    memory_total_mb bigint,
    simulated boolean NOT NULL,
    health text NOT NULL,
    health_detail text,
    cordoned boolean NOT NULL DEFAULT false,
    -- Confirmed releases so far and whose the last was: readings from before it do not count.
    releases bigint NOT NULL DEFAULT 0,
    released_by uuid,
    UNIQUE (node_id, uuid));

CREATE TABLE reservation (
    reservation_id uuid PRIMARY KEY,
    arrival bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    namespace text NOT NULL,
    holder text NOT NULL,
    request jsonb NOT NULL,
    state text NOT NULL,
    revision bigint NOT NULL,
    requested_at timestamptz NOT NULL,
    wait_deadline_at timestamptz NOT NULL,
    granted_at timestamptz,
    ended_at timestamptz,
    epoch bigint UNIQUE,
    node_id text REFERENCES node,
    devices jsonb NOT NULL DEFAULT '[]',
    lease_ttl_seconds float8 NOT NULL,
    lease_expires_at timestamptz,
    reasons jsonb NOT NULL DEFAULT '[]',
    reason text NOT NULL DEFAULT '');
CREATE INDEX reservation_queued ON reservation (arrival) WHERE state = 'queued';
CREATE INDEX reservation_leased ON reservation (lease_expires_at)
    WHERE lease_expires_at IS NOT NULL;

-- A holding is open while released_at is null. Time is no part of the exclusion: a clock that jumps
-- frees nothing.
CREATE TABLE holding (
    reservation_id uuid NOT NULL REFERENCES reservation,
    device_no bigint NOT NULL REFERENCES device,
    epoch bigint NOT NULL,
    cells int8multirange NOT NULL,
    granted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    quarantined_at timestamptz,
    released_at timestamptz,
    PRIMARY KEY (reservation_id, device_no),
    CHECK (NOT isempty(cells)
        AND cells <@ int8multirange(int8range(device_no * 10000, (device_no + 1) * 10000))),
    EXCLUDE USING gist (cells WITH &&) WHERE (released_at IS NULL));
CREATE INDEX holding_open ON holding (device_no) WHERE released_at IS NULL;
""",
    """
ALTER TABLE device ADD COLUMN compute_capability text, ADD COLUMN numa_node int,
    ADD COLUMN mig_enabled boolean, ADD COLUMN parent_uuid text,
    ADD COLUMN cordon_reason text NOT NULL DEFAULT '';
-- The agent said that it stops; silence from then on is no loss.
ALTER TABLE node ADD COLUMN stopped boolean NOT NULL DEFAULT false;

-- Faults that were acted on: told again they change nothing, also after an uncordon.
CREATE TABLE fault (
    node_id text NOT NULL REFERENCES node,
    event_id uuid NOT NULL,
    boot_id uuid NOT NULL,
    device_uuid text,
    reason text NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (node_id, event_id));

CREATE TABLE drift (
    drift_id uuid PRIMARY KEY,
    kind text NOT NULL,
    node_id text NOT NULL REFERENCES node,
    device_uuid text,
    reservation_id uuid,
    since_at timestamptz NOT NULL,
    ended_at timestamptz,
    action text NOT NULL,
    detail text NOT NULL,
    pids bigint[] NOT NULL DEFAULT '{}');
-- One open drift of a kind about one thing, whoever tells it and however often.
CREATE UNIQUE INDEX drift_open ON drift (kind, node_id, coalesce(device_uuid, ''),
    coalesce(reservation_id, '00000000-0000-0000-0000-000000000000')) WHERE ended_at IS NULL;
CREATE INDEX drift_ended ON drift (ended_at) WHERE ended_at IS NOT NULL;
""",
)
