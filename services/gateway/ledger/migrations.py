"""The tables of the gateway. Texts are only ever appended."""

from typing import Final

# `json`, not `jsonb`: an engine's log line may hold what jsonb refuses.
MIGRATIONS: Final = (
    """
CREATE TABLE event (
    cursor bigserial PRIMARY KEY,
    message_id uuid NOT NULL UNIQUE,
    subject text NOT NULL,
    type text NOT NULL,
    occurred_at timestamptz NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now(),
    task_id text,
    experiment_id text,
    body json NOT NULL);
CREATE INDEX event_task ON event (task_id, cursor) WHERE task_id IS NOT NULL;
CREATE INDEX event_experiment ON event (experiment_id, cursor) WHERE experiment_id IS NOT NULL;
CREATE INDEX event_type ON event (type, cursor);
CREATE INDEX event_stored ON event (stored_at);
""",
    """
ALTER TABLE event ADD COLUMN reservation_id text;
UPDATE event SET reservation_id = split_part(subject, '.', 5)
    WHERE type LIKE 'scheduler.reservation%';
CREATE INDEX event_reservation ON event (reservation_id, cursor)
    WHERE reservation_id IS NOT NULL;
""",
    """
CREATE TABLE token (
    token_id uuid PRIMARY KEY,
    token_sha256 text NOT NULL UNIQUE,
    name text NOT NULL,
    role text NOT NULL,
    namespaces text[] NOT NULL CHECK (cardinality(namespaces) > 0),
    from_file boolean NOT NULL DEFAULT false,
    requests_per_second float8,
    body_limit_bytes bigint,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz);
CREATE INDEX token_created ON token (created_at, token_id);
CREATE TABLE audit (
    audit_id bigserial PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    token_id uuid,
    caller text NOT NULL,
    address text NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    status int);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_token ON audit (token_id, audit_id) WHERE token_id IS NOT NULL;
""",
    """
CREATE TABLE login (
    login_sha256 text PRIMARY KEY,
    token_id uuid NOT NULL REFERENCES token ON DELETE CASCADE,
    ends_at timestamptz NOT NULL);
""",
    # Other installations' tasks; `archive` is packed already.
    """
CREATE TABLE imported (
    subject_id uuid PRIMARY KEY,
    kind text NOT NULL,
    task_id uuid NOT NULL,
    task_name text NOT NULL,
    namespace text NOT NULL,
    experiment_ids uuid[] NOT NULL,
    exported_at timestamptz NOT NULL,
    exported_by text NOT NULL,
    imported_at timestamptz NOT NULL DEFAULT now(),
    content_sha256 text NOT NULL,
    task json NOT NULL,
    experiments json NOT NULL,
    archive bytea NOT NULL);
ALTER TABLE imported ALTER COLUMN archive SET STORAGE EXTERNAL;
CREATE INDEX imported_task ON imported (task_id);
CREATE INDEX imported_experiments ON imported USING gin (experiment_ids);
CREATE INDEX imported_order ON imported (imported_at, subject_id);
""",
    # The text, not the value: json that holds \\u0000 can be kept but not taken apart.
    """
ALTER TABLE event ADD COLUMN namespace text;
UPDATE event SET namespace = substring(body::text FROM '"namespace":"([^"]*)"')
    WHERE type LIKE 'scheduler.reservation%' OR type LIKE 'orchestrator.%'
        OR type = 'gateway.custom';
UPDATE event e SET namespace = known.namespace FROM (
    SELECT DISTINCT ON (task_id) task_id, namespace FROM event
    WHERE task_id IS NOT NULL AND namespace IS NOT NULL ORDER BY task_id, cursor) known
    WHERE e.task_id = known.task_id AND e.namespace IS NULL;
""",
    """
ALTER TABLE audit ADD COLUMN before json, ADD COLUMN after json;
CREATE INDEX audit_caller ON audit (caller, audit_id);
""",
    # An archive in parts; those that came before are whole, in its own column.
    """
CREATE TABLE imported_part (
    subject_id uuid NOT NULL REFERENCES imported ON DELETE CASCADE,
    number int NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (subject_id, number));
ALTER TABLE imported_part ALTER COLUMN content SET STORAGE EXTERNAL;
ALTER TABLE imported ALTER COLUMN archive DROP NOT NULL;
""",
    # Codes that log a browser in once, and whose account asked for it, as its client said.
    """
CREATE TABLE login_link (
    code_sha256 text PRIMARY KEY,
    token_id uuid NOT NULL REFERENCES token ON DELETE CASCADE,
    account text NOT NULL,
    ends_at timestamptz NOT NULL);
ALTER TABLE login ADD COLUMN account text NOT NULL DEFAULT '';
""",
    # What came over NATS, by its event; `proved`: the caller is who it says.
    """
ALTER TABLE audit ADD COLUMN message_id uuid UNIQUE,
    ADD COLUMN proved boolean NOT NULL DEFAULT true;
""",
)
