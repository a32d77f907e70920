"""The ledger's tables. A text is a version: the first is that of release 0.1.0, and texts are only
ever appended.
"""

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

-- stopped: the agent said that it stops. lost: not heard for so long that its reservations ended;
-- true until it is heard again, so that one silence is acted on once. removed: forgotten, until it
-- reports again; the rows stay for what was held there. admitted: something may be granted on it.
-- operator_labels lie over the agent's; null: taken away, though the agent reports it.
-- A cordon: who or what set it, and since when. quiet_since: cordoned for a loss, and well since.
CREATE TABLE node (
    node_id text PRIMARY KEY,
    source text NOT NULL DEFAULT 'none',
    boot_id uuid,
    past_boot_ids uuid[] NOT NULL DEFAULT '{}',
    inventory_revision bigint NOT NULL DEFAULT -1,
    health_revision bigint NOT NULL DEFAULT -1,
    inventory_at timestamptz,
    labels jsonb NOT NULL DEFAULT '{}',
    operator_labels jsonb NOT NULL DEFAULT '{}',
    host jsonb,
    admitted boolean NOT NULL DEFAULT false,
    stopped boolean NOT NULL DEFAULT false,
    lost boolean NOT NULL DEFAULT false,
    removed boolean NOT NULL DEFAULT false,
    cordoned boolean NOT NULL DEFAULT false,
    cordon_cause text NOT NULL DEFAULT 'operator',
    cordon_reason text NOT NULL DEFAULT '',
    cordon_set_by text NOT NULL DEFAULT '',
    cordoned_at timestamptz,
    quiet_since timestamptz,
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
    compute_capability text,
    numa_node int,
    -- How near a node's GPUs are: domain/placement/topology.py. Empty until the next inventory.
    link_groups int[] NOT NULL DEFAULT '{}',
    mig_enabled boolean,
    mig_layout jsonb,    -- what a GPU in MIG mode may be divided into
    mig_profile text,    -- of a MIG instance, as its agent names it
    parent_uuid text,
    simulated boolean NOT NULL,
    removed boolean NOT NULL DEFAULT false,
    health text NOT NULL,
    health_detail text,
    cordoned boolean NOT NULL DEFAULT false,
    cordon_cause text NOT NULL DEFAULT 'operator',
    cordon_reason text NOT NULL DEFAULT '',
    cordon_set_by text NOT NULL DEFAULT '',
    cordoned_at timestamptz,
    quiet_since timestamptz,
    -- Confirmed releases so far and whose the last was: readings from before it do not count.
    releases bigint NOT NULL DEFAULT 0,
    released_by uuid,
    UNIQUE (node_id, uuid));
CREATE INDEX device_divisible ON device (node_id) WHERE mig_layout IS NOT NULL;

-- What an agent was asked to change: one at a time, over when its inventory says so. Instances that
-- are to be removed are cordoned until then.
CREATE TABLE mig_change (
    node_id text NOT NULL,
    device_uuid text NOT NULL,
    number bigint NOT NULL,
    profile text NOT NULL,
    start int NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    over_at timestamptz,
    refusal text NOT NULL DEFAULT '',
    PRIMARY KEY (node_id, device_uuid, number));
CREATE UNIQUE INDEX mig_change_open ON mig_change (node_id, device_uuid) WHERE over_at IS NULL;

-- requester: the person who asked; holder: for what. preempted_by: why it gives way, to priority or
-- to the guarantee of another namespace. forecast_start_at: when it was expected to start as it
-- began to wait. Idleness: since when, when its holder was warned, and when something follows
-- (null: nothing); while idle_preemptible it is preempted as one of the lowest priority.
CREATE TABLE reservation (
    reservation_id uuid PRIMARY KEY,
    arrival bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    namespace text NOT NULL,
    holder text NOT NULL,
    requester text NOT NULL DEFAULT '',
    request jsonb NOT NULL,
    priority int NOT NULL DEFAULT 0,
    state text NOT NULL,
    revision bigint NOT NULL,
    requested_at timestamptz NOT NULL,
    wait_deadline_at timestamptz NOT NULL,
    forecast_start_at timestamptz,
    granted_at timestamptz,
    ended_at timestamptz,
    epoch bigint UNIQUE,
    node_id text REFERENCES node,
    devices jsonb NOT NULL DEFAULT '[]',
    cluster jsonb,
    lease_ttl_seconds float8 NOT NULL,
    lease_expires_at timestamptz,
    preempting_until timestamptz,
    preempted_for uuid,
    preempted_by text NOT NULL DEFAULT 'priority',
    idle_since timestamptz,
    idle_warned_at timestamptz,
    idle_action text,
    idle_acts_at timestamptz,
    idle_preemptible boolean NOT NULL DEFAULT false,
    idle_exempt_until timestamptz,
    idle_exempt_reason text NOT NULL DEFAULT '',
    reasons jsonb NOT NULL DEFAULT '[]',
    reason text NOT NULL DEFAULT '');
CREATE INDEX reservation_queued ON reservation (arrival) WHERE state = 'queued';
CREATE INDEX reservation_waiting ON reservation (priority DESC, arrival) WHERE state = 'queued';
CREATE INDEX reservation_cluster_queued ON reservation (arrival)
    WHERE state = 'queued' AND request->>'cluster' IS NOT NULL;
CREATE INDEX reservation_leased ON reservation (lease_expires_at)
    WHERE lease_expires_at IS NOT NULL;
CREATE INDEX reservation_preempting ON reservation (preempting_until)
    WHERE preempting_until IS NOT NULL;
CREATE INDEX reservation_preempted_for ON reservation (preempted_for)
    WHERE preempted_for IS NOT NULL;
CREATE INDEX reservation_ended ON reservation (ended_at) WHERE ended_at IS NOT NULL;

-- What a holding is of its device: the cells say it, 10,000 are a whole one.
CREATE FUNCTION hundredths_of(int8multirange) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS
    'SELECT (sum(upper(r) - lower(r)) / 100)::int FROM unnest($1) AS r';

-- A holding is open while released_at is null. Time is no part of the exclusion: a clock that jumps
-- frees nothing.
CREATE TABLE holding (
    reservation_id uuid NOT NULL REFERENCES reservation,
    device_no bigint NOT NULL REFERENCES device,
    epoch bigint NOT NULL,
    cells int8multirange NOT NULL,
    hundredths int NOT NULL GENERATED ALWAYS AS (
        CASE WHEN cells = int8multirange(int8range(device_no * 10000, (device_no + 1) * 10000))
        THEN 100 ELSE hundredths_of(cells) END) STORED,
    granted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    quarantined_at timestamptz,
    released_at timestamptz,
    PRIMARY KEY (reservation_id, device_no),
    CHECK (NOT isempty(cells)
        AND cells <@ int8multirange(int8range(device_no * 10000, (device_no + 1) * 10000))),
    EXCLUDE USING gist (cells WITH &&) WHERE (released_at IS NULL));
CREATE INDEX holding_open ON holding (device_no) WHERE released_at IS NULL;

-- GPUs of a Kubernetes cluster, which is a node without devices: on the node that was chosen, or
-- where the cluster's own scheduler puts them. Open while released_at is null, as other holdings.
CREATE TABLE cluster_holding (
    reservation_id uuid PRIMARY KEY REFERENCES reservation,
    cluster_id text NOT NULL REFERENCES node,
    node_name text,
    resource text,
    gpus int NOT NULL CHECK (gpus > 0),
    epoch bigint NOT NULL,
    granted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    quarantined_at timestamptz,
    released_at timestamptz);
CREATE INDEX cluster_holding_open ON cluster_holding (cluster_id) WHERE released_at IS NULL;

-- CPU and memory of a node that are held beside its devices, in thousandths of a CPU and MiB.
-- The limits are what the node told when the last of it was granted.
CREATE TABLE node_use (
    node_id text PRIMARY KEY REFERENCES node,
    cpu_milli bigint NOT NULL DEFAULT 0,
    cpu_limit_milli bigint NOT NULL DEFAULT 0,
    memory_mb bigint NOT NULL DEFAULT 0,
    memory_limit_mb bigint NOT NULL DEFAULT 0,
    CHECK (cpu_milli BETWEEN 0 AND cpu_limit_milli),
    CHECK (memory_mb BETWEEN 0 AND memory_limit_mb));
CREATE TABLE host_holding (
    reservation_id uuid NOT NULL REFERENCES reservation,
    node_id text NOT NULL REFERENCES node,
    cpu_milli bigint NOT NULL,
    memory_mb bigint NOT NULL,
    released_at timestamptz,
    PRIMARY KEY (reservation_id, node_id));

-- What namespaces may hold, in hundredths of GPUs; null is no limit. Up to `guaranteed` nobody else
-- may keep a namespace from; `weight` times as much as others it is due.
CREATE TABLE quota (
    namespace text PRIMARY KEY,
    gpu_limit bigint CHECK (gpu_limit >= 0),
    guaranteed bigint NOT NULL DEFAULT 0 CHECK (guaranteed >= 0),
    weight int NOT NULL DEFAULT 1 CHECK (weight > 0),
    revision bigint NOT NULL);

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

-- What was decided, on what. `inputs` and `outcomes` are JSON, kept as text: nobody searches in
-- them, and a leader writes one with every decision. `policy` is the one in force, with a keyframe:
-- it changes only with a start, which writes one.
CREATE TABLE decision (
    decision_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    term bigint NOT NULL,
    decided_at timestamptz NOT NULL,
    keyframe boolean NOT NULL,
    policy text,
    inputs text NOT NULL,
    outcomes text NOT NULL,
    reservation_ids uuid[] NOT NULL);
CREATE INDEX decision_keyframe ON decision (decision_id) WHERE keyframe;

-- What changed, for whoever keeps an engine in memory: what is not visible in the snapshot of its
-- last look is new to it.
CREATE TABLE change (
    change_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed_at timestamptz NOT NULL DEFAULT now(),
    reservation_id uuid,
    device_no bigint,
    node_id text,
    namespace text);
CREATE INDEX change_xid ON change (xid);

-- Wakes the leader with the commit. Not by its own decisions: it knows them already.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'reservation' THEN
            INSERT INTO scheduler.change (reservation_id) VALUES (NEW.reservation_id);
        WHEN 'holding' THEN
            INSERT INTO scheduler.change (reservation_id, device_no)
            VALUES (NEW.reservation_id, NEW.device_no);
        WHEN 'device' THEN
            INSERT INTO scheduler.change (device_no) VALUES (NEW.device_no);
        ELSE
            INSERT INTO scheduler.change (node_id) VALUES (NEW.node_id);
    END CASE;
    IF coalesce(current_setting('gpusteward.is_decision', true), '') <> 'on' THEN
        PERFORM pg_notify('gpusteward_ledger', '');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER reservation_inserted AFTER INSERT ON reservation
    FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER reservation_changed AFTER UPDATE ON reservation FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state
        OR OLD.preempting_until IS DISTINCT FROM NEW.preempting_until)
    EXECUTE FUNCTION note_change();
CREATE TRIGGER reservation_idle AFTER UPDATE ON reservation FOR EACH ROW
    WHEN (OLD.idle_preemptible <> NEW.idle_preemptible) EXECUTE FUNCTION note_change();
CREATE TRIGGER holding_changed AFTER UPDATE ON holding FOR EACH ROW
    WHEN (OLD.quarantined_at IS DISTINCT FROM NEW.quarantined_at
        OR OLD.released_at IS DISTINCT FROM NEW.released_at)
    EXECUTE FUNCTION note_change();
CREATE TRIGGER device_inserted AFTER INSERT ON device
    FOR EACH ROW EXECUTE FUNCTION note_change();
-- A release is noted with its holding.
CREATE TRIGGER device_changed AFTER UPDATE ON device FOR EACH ROW
    WHEN (OLD.releases = NEW.releases AND OLD IS DISTINCT FROM NEW)
    EXECUTE FUNCTION note_change();
CREATE TRIGGER node_inserted AFTER INSERT ON node
    FOR EACH ROW EXECUTE FUNCTION note_change();
-- Not what every report moves.
CREATE TRIGGER node_changed AFTER UPDATE ON node FOR EACH ROW
    WHEN ((OLD.inventory_at IS NULL) <> (NEW.inventory_at IS NULL)
        OR to_jsonb(OLD) - ARRAY['inventory_at', 'inventory_revision', 'health_revision',
            'executor_seen_at', 'event_revision']
        IS DISTINCT FROM to_jsonb(NEW) - ARRAY['inventory_at', 'inventory_revision',
            'health_revision', 'executor_seen_at', 'event_revision'])
    EXECUTE FUNCTION note_change();

CREATE FUNCTION note_quota() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO scheduler.change (namespace) VALUES (NEW.namespace);
    PERFORM pg_notify('gpusteward_ledger', '');
    RETURN NULL;
END $$;
CREATE TRIGGER quota_changed AFTER INSERT OR UPDATE ON quota
    FOR EACH ROW EXECUTE FUNCTION note_quota();
""",
    # Epochs of another timeline of the database are other ones.
    """
ALTER TABLE epoch ADD COLUMN timeline bigint NOT NULL DEFAULT
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int;
""",
    """
-- When this ledger came from a backup, and of when that was. A node that it does not know may run
-- what was granted after that: it is cordoned as it comes.
CREATE TABLE restore (
    restored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    backup_at timestamptz NOT NULL);
CREATE FUNCTION cordon_new_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM scheduler.restore) THEN
        NEW.cordoned := true;
        NEW.cordon_cause := 'restored';
        NEW.cordon_reason := 'not known to the backup that the platform was restored from';
        NEW.cordoned_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER node_new BEFORE INSERT ON node FOR EACH ROW EXECUTE FUNCTION cordon_new_node();
""",
    # A reservation may hold GPUs of several nodes of a cluster, by rank.
    """
ALTER TABLE cluster_holding ADD COLUMN rank int NOT NULL DEFAULT 0;
ALTER TABLE cluster_holding DROP CONSTRAINT cluster_holding_pkey,
    ADD PRIMARY KEY (reservation_id, rank);
""",
)
