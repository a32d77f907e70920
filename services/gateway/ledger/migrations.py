"""The tables of the gateway. A text is a version: the first is that of release 0.1.0, and texts are
only ever appended.
"""

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
    namespace text,
    task_id text,
    experiment_id text,
    reservation_id text,
    body json NOT NULL);
CREATE INDEX event_task ON event (task_id, cursor) WHERE task_id IS NOT NULL;
CREATE INDEX event_experiment ON event (experiment_id, cursor) WHERE experiment_id IS NOT NULL;
CREATE INDEX event_reservation ON event (reservation_id, cursor)
    WHERE reservation_id IS NOT NULL;
CREATE INDEX event_type ON event (type, cursor);
CREATE INDEX event_stored ON event (stored_at);

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

CREATE TABLE login (
    login_sha256 text PRIMARY KEY,
    token_id uuid NOT NULL REFERENCES token ON DELETE CASCADE,
    account text NOT NULL DEFAULT '',
    ends_at timestamptz NOT NULL);

-- Codes that log a browser in once, and whose account asked for it, as its client said.
CREATE TABLE login_link (
    code_sha256 text PRIMARY KEY,
    token_id uuid NOT NULL REFERENCES token ON DELETE CASCADE,
    account text NOT NULL,
    ends_at timestamptz NOT NULL);

-- Codes that give a new node its credentials of the bus, once.
CREATE TABLE node_invitation (
    node_id text PRIMARY KEY,
    code_sha256 text NOT NULL,
    ends_at timestamptz NOT NULL);

-- `message_id` is the event of what came over NATS; `proved`: the caller is who it says.
CREATE TABLE audit (
    audit_id bigserial PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    token_id uuid,
    caller text NOT NULL,
    address text NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    status int,
    before json,
    after json,
    message_id uuid UNIQUE,
    proved boolean NOT NULL DEFAULT true);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_token ON audit (token_id, audit_id) WHERE token_id IS NOT NULL;
CREATE INDEX audit_caller ON audit (caller, audit_id);

-- Other installations' tasks; their archives are packed already, and lie in parts.
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
    experiments json NOT NULL);
CREATE INDEX imported_task ON imported (task_id);
CREATE INDEX imported_experiments ON imported USING gin (experiment_ids);
CREATE INDEX imported_order ON imported (imported_at, subject_id);

CREATE TABLE imported_part (
    subject_id uuid NOT NULL REFERENCES imported ON DELETE CASCADE,
    number int NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (subject_id, number));
ALTER TABLE imported_part ALTER COLUMN content SET STORAGE EXTERNAL;
""",
    # By which login, and sign-ins. Of refused ones an address has one row a minute and reason.
    """
ALTER TABLE audit
    ADD COLUMN kind text NOT NULL DEFAULT 'change',
    ADD COLUMN login text NOT NULL DEFAULT '',
    ADD COLUMN count int NOT NULL DEFAULT 1,
    ADD COLUMN reason text NOT NULL DEFAULT '';
CREATE UNIQUE INDEX audit_refused ON audit (at, address, reason, caller) WHERE kind = 'refused';
CREATE INDEX audit_order ON audit (at, audit_id);
DROP INDEX audit_at;
""",
    """
-- Who signed in at the provider, and with what it is asked again. `claimed_until`: a gateway asks.
CREATE TABLE sign_in (
    sign_in_id uuid PRIMARY KEY,
    issuer text NOT NULL,
    subject text NOT NULL,
    name text NOT NULL,
    groups text[] NOT NULL,
    client_id text NOT NULL,
    access_token text NOT NULL,
    refresh_token text NOT NULL,
    id_token text NOT NULL,
    began_at timestamptz NOT NULL DEFAULT now(),
    checked_at timestamptz NOT NULL DEFAULT now(),
    claimed_until timestamptz,
    refusal text);

ALTER TABLE token ADD COLUMN sign_in_id uuid REFERENCES sign_in ON DELETE CASCADE;
ALTER TABLE token ADD COLUMN is_session boolean NOT NULL DEFAULT false;
ALTER TABLE token ADD COLUMN person text NOT NULL DEFAULT '';
CREATE INDEX token_sign_in ON token (sign_in_id) WHERE sign_in_id IS NOT NULL;

-- A browser that went to the provider, and a code that somebody is to confirm there.
CREATE TABLE sign_in_attempt (
    state_sha256 text PRIMARY KEY,
    browser_sha256 text NOT NULL,
    nonce text NOT NULL,
    verifier text NOT NULL,
    redirect_url text NOT NULL,
    place text NOT NULL,
    ends_at timestamptz NOT NULL);

CREATE TABLE device_attempt (
    code_sha256 text PRIMARY KEY,
    device_code text NOT NULL,
    client text NOT NULL,
    interval_seconds float8 NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT now(),
    ends_at timestamptz NOT NULL);

CREATE TABLE member (
    member_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    set_by text NOT NULL,
    set_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (namespace, kind, name));
CREATE INDEX member_name ON member (kind, name);
""",
    """
-- What happened on a node: its id ends the subject.
CREATE INDEX event_key ON event ((reverse(split_part(reverse(subject), '.', 1))), cursor);
""",
    """
-- Files that people uploaded, each content once. `superseded_at`: its name means another since, and
-- it is kept for the tasks that name it by its SHA-256.
CREATE TABLE dataset_content (
    sha256 text PRIMARY KEY,
    size_bytes bigint NOT NULL);

CREATE TABLE dataset_piece (
    sha256 text NOT NULL REFERENCES dataset_content ON DELETE CASCADE,
    number int NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (sha256, number));
ALTER TABLE dataset_piece ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE dataset (
    namespace text NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL REFERENCES dataset_content,
    contents json NOT NULL,
    added_by text NOT NULL,
    added_at timestamptz NOT NULL DEFAULT now(),
    superseded_at timestamptz,
    PRIMARY KEY (namespace, name, sha256));
CREATE UNIQUE INDEX dataset_name ON dataset (namespace, name) WHERE superseded_at IS NULL;
CREATE INDEX dataset_sha256 ON dataset (sha256);
""",
)
