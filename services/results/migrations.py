"""The tables of results. Texts are only ever appended."""

from typing import Final

MIGRATIONS: Final = (
    """
CREATE TABLE device (
    device_no int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id text NOT NULL,
    device_uuid text NOT NULL,
    device_index bigint NOT NULL,
    name text NOT NULL,
    simulated boolean NOT NULL,
    UNIQUE (node_id, device_uuid));

CREATE TABLE sample (
    device_no int NOT NULL,
    observed_at timestamptz NOT NULL,
    boot_id uuid NOT NULL,
    sequence bigint NOT NULL,
    interval_seconds double precision NOT NULL,
    utilization_percent double precision,
    memory_total_mb bigint,
    memory_used_mb bigint,
    temperature_c double precision,
    power_draw_w double precision,
    energy_mj bigint,
    PRIMARY KEY (device_no, observed_at, boot_id, sequence)) PARTITION BY RANGE (observed_at);

CREATE TABLE attempt (
    attempt_id uuid PRIMARY KEY,
    experiment_id uuid NOT NULL,
    task_id uuid NOT NULL,
    namespace text NOT NULL,
    attempt_number int NOT NULL,
    outcome text NOT NULL,
    gpus int NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    event bytea NOT NULL);
CREATE INDEX attempt_experiment ON attempt (experiment_id);
CREATE INDEX attempt_finished ON attempt (finished_at);

CREATE TABLE summary (
    attempt_id uuid PRIMARY KEY REFERENCES attempt ON DELETE CASCADE,
    experiment_id uuid NOT NULL,
    node_ids text[] NOT NULL,
    window_started_at timestamptz NOT NULL,
    window_finished_at timestamptz NOT NULL,
    samples_from timestamptz NOT NULL,
    samples_until timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    pending boolean NOT NULL DEFAULT true,
    version int NOT NULL DEFAULT 0,
    gpu_monitoring jsonb,
    energy_wh double precision,
    summarized_at timestamptz);
CREATE INDEX summary_pending ON summary (due_at) WHERE pending;
CREATE INDEX summary_experiment ON summary (experiment_id);
CREATE INDEX summary_samples ON summary (samples_until);

CREATE TABLE experiment_sample (
    attempt_id uuid NOT NULL REFERENCES attempt ON DELETE CASCADE,
    LIKE sample,
    PRIMARY KEY (attempt_id, device_no, observed_at, boot_id, sequence));
""",
    """
ALTER TABLE sample ADD COLUMN power_limit_w double precision;
ALTER TABLE experiment_sample ADD COLUMN power_limit_w double precision;
""",
    """
CREATE INDEX attempt_task ON attempt (task_id, experiment_id);
""",
    """
CREATE TABLE deleted (subject_id uuid PRIMARY KEY, deleted_at timestamptz NOT NULL);
""",
    # `seen` are the stored ticks of one boot of an agent, `due` the minutes with newer samples than
    # rollups. Releases before this one store into `sample` itself, and the trigger notes what they
    # store; this one stores into the days' partitions and notes it by itself.
    """
CREATE TABLE agent_boot (
    node_id text NOT NULL,
    boot_id uuid NOT NULL,
    seen int8multirange NOT NULL DEFAULT '{}',
    ticks_given_up bigint NOT NULL DEFAULT 0,
    due timestamptz[] NOT NULL DEFAULT '{}',
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (node_id, boot_id)) WITH (fillfactor = 70);

CREATE VIEW missing_tick AS
SELECT node_id, boot_id, unnest(int8multirange(int8range(lower(seen), upper(seen))) - seen) AS ticks
FROM agent_boot;

CREATE TABLE sample_minute (
    device_no int NOT NULL,
    at timestamptz NOT NULL,
    samples bigint NOT NULL,
    seconds double precision NOT NULL,
    utilization_percent_count bigint NOT NULL,
    utilization_percent_min double precision,
    utilization_percent_max double precision,
    utilization_percent_sum double precision,
    memory_used_mb_count bigint NOT NULL,
    memory_used_mb_min double precision,
    memory_used_mb_max double precision,
    memory_used_mb_sum double precision,
    temperature_c_count bigint NOT NULL,
    temperature_c_min double precision,
    temperature_c_max double precision,
    temperature_c_sum double precision,
    power_draw_w_count bigint NOT NULL,
    power_draw_w_min double precision,
    power_draw_w_max double precision,
    power_draw_w_sum double precision,
    PRIMARY KEY (device_no, at)) PARTITION BY RANGE (at);

CREATE TABLE sample_hour (LIKE sample_minute, PRIMARY KEY (device_no, at))
PARTITION BY RANGE (at);

CREATE INDEX sample_observed_at ON sample USING brin (observed_at);

CREATE FUNCTION note_stored() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO agent_boot AS known (node_id, boot_id, seen, due)
    SELECT node_id, boot_id, range_agg(int8range(sequence, sequence + 1)),
           array_agg(DISTINCT date_bin('1 minute', observed_at, '2000-01-01Z'))
    FROM arrived JOIN device USING (device_no) GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (node_id, boot_id) DO UPDATE
        SET seen = known.seen + excluded.seen, stored_at = now(),
            due = ARRAY(SELECT DISTINCT unnest(known.due || excluded.due) ORDER BY 1);
    RETURN NULL;
END $$;
CREATE TRIGGER note_stored AFTER INSERT ON sample REFERENCING NEW TABLE AS arrived
FOR EACH STATEMENT EXECUTE FUNCTION note_stored();

INSERT INTO agent_boot (node_id, boot_id, due)
SELECT node_id, '00000000-0000-0000-0000-000000000000',
       array_agg(DISTINCT date_bin('1 minute', observed_at, '2000-01-01Z'))
FROM sample JOIN device USING (device_no) GROUP BY node_id;
""",
    # A condition is what of a GPU changes seldom, written once; experiments' samples keep theirs.
    """
CREATE TABLE condition (
    condition_no int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, facts text NOT NULL);
CREATE UNIQUE INDEX condition_facts ON condition (md5(facts));

ALTER TABLE sample ADD COLUMN ecc_corrected bigint, ADD COLUMN ecc_uncorrected bigint,
    ADD COLUMN condition_no int;
ALTER TABLE experiment_sample ADD COLUMN ecc_corrected bigint, ADD COLUMN ecc_uncorrected bigint,
    ADD COLUMN condition_no int;

CREATE TABLE device_fault (
    event_id uuid PRIMARY KEY,
    node_id text NOT NULL,
    device_uuid text NOT NULL,
    occurred_at timestamptz NOT NULL,
    xid int NOT NULL);
CREATE INDEX device_fault_time ON device_fault (occurred_at);

CREATE TABLE running_attempt (
    attempt_id uuid PRIMARY KEY, node_ids text[] NOT NULL, started_at timestamptz NOT NULL);

ALTER TABLE summary ADD COLUMN whole_run jsonb;
""",
    # The minutes in which pods had devices. What a condition with pods ends with is not all that
    # ends so.
    """
CREATE TABLE pod_device (
    namespace text NOT NULL,
    pod text NOT NULL,
    device_no int NOT NULL,
    minutes tstzmultirange NOT NULL,
    PRIMARY KEY (namespace, pod, device_no)) WITH (fillfactor = 70);
CREATE INDEX pod_device_end ON pod_device (upper(minutes));
CREATE INDEX condition_pods ON condition (condition_no) WHERE facts LIKE '%"]]]';
""",
    # What no sample has any more can go; one that experiments' samples have stays with them.
    """
ALTER TABLE condition ADD COLUMN used_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX experiment_sample_condition ON experiment_sample (condition_no);
""",
    # A level's requests as they came, `RequestColumns` in msgpack.
    """
CREATE TABLE level_requests (
    attempt_id uuid NOT NULL REFERENCES attempt ON DELETE CASCADE,
    level int NOT NULL,
    columns bytea NOT NULL,
    PRIMARY KEY (attempt_id, level));
""",
    # Each time of a holding is written by one kind of event; a quarantined device is held
    # until it is freed. Amounts are GPU-microseconds; without a reservation its id is zero.
    """
CREATE TABLE reservation (
    reservation_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    holder text NOT NULL,
    gpus int,
    requested_at timestamptz,
    granted_at timestamptz,
    waited_seconds double precision,
    ended_at timestamptz,
    state text,
    reason text);
CREATE INDEX reservation_requested ON reservation (requested_at);
CREATE INDEX reservation_ended ON reservation (ended_at);

CREATE TABLE device_holding (
    reservation_id uuid NOT NULL,
    device_no int NOT NULL,
    epoch bigint,
    hundredths int,
    memory_mb bigint,
    granted_at timestamptz,
    quarantined_at timestamptz,
    freed_at timestamptz,
    reservation_ended_at timestamptz,
    ended_at timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(freed_at,
        CASE WHEN quarantined_at IS NULL THEN reservation_ended_at END, 'infinity')) STORED,
    PRIMARY KEY (reservation_id, device_no));
CREATE INDEX device_holding_device ON device_holding (device_no, ended_at);
CREATE INDEX device_holding_ended ON device_holding (ended_at);

CREATE TABLE cordon_change (
    node_id text NOT NULL,
    device_uuid text NOT NULL,
    revision bigint NOT NULL,
    at timestamptz NOT NULL,
    cordoned boolean NOT NULL,
    PRIMARY KEY (node_id, device_uuid, revision));

CREATE TABLE ledger_due (
    node_id text NOT NULL,
    hour timestamptz NOT NULL,
    marks bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (node_id, hour));
CREATE INDEX ledger_due_hour ON ledger_due (hour);

CREATE TABLE ledger_progress (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    closed_until timestamptz NOT NULL);
INSERT INTO ledger_progress (closed_until) VALUES (date_bin('1 hour', now(), '2000-01-01Z'));

CREATE TABLE ledger_hour (
    hour timestamptz NOT NULL,
    device_no int NOT NULL,
    reservation_id uuid NOT NULL,
    used_us bigint NOT NULL,
    idle_us bigint NOT NULL,
    free_us bigint NOT NULL,
    cordoned_us bigint NOT NULL,
    unknown_us bigint NOT NULL,
    energy_mj double precision NOT NULL,
    memory_mb double precision,
    PRIMARY KEY (hour, device_no, reservation_id));

ALTER TABLE sample_minute ADD COLUMN seen_ms bigint, ADD COLUMN idle_ms bigint,
    ADD COLUMN busy_ms bigint, ADD COLUMN energy_mj double precision;
""",
    """
CREATE TABLE driver_version (
    node_id text NOT NULL,
    since_at timestamptz NOT NULL,
    version text NOT NULL,
    PRIMARY KEY (node_id, since_at));
""",
    """
-- For how long it was expected to hold, as its request said.
ALTER TABLE reservation ADD COLUMN expected_seconds double precision;
""",
    """
-- When it was expected to start as it began to wait.
ALTER TABLE reservation ADD COLUMN forecast_start_at timestamptz;
""",
    # What attempts' engines told, as long as their experiment is there.
    """
CREATE TABLE engine_run (
    attempt_id uuid PRIMARY KEY,
    experiment_id uuid NOT NULL,
    task_id uuid NOT NULL,
    epoch bigint NOT NULL,
    began_at timestamptz NOT NULL,
    engine text);
CREATE INDEX engine_run_experiment ON engine_run (experiment_id, epoch);
CREATE INDEX engine_run_task ON engine_run (task_id);

CREATE TABLE engine_sample (
    attempt_id uuid NOT NULL REFERENCES engine_run ON DELETE CASCADE,
    sequence bigint NOT NULL,
    observed_at timestamptz NOT NULL,
    phase text NOT NULL,
    running double precision,
    waiting double precision,
    kv_cache_percent double precision,
    preemptions double precision,
    prefix_queried_tokens double precision,
    prefix_hit_tokens double precision,
    prompt_tokens double precision,
    generation_tokens double precision,
    accept_length double precision,
    PRIMARY KEY (attempt_id, sequence));
""",
    """
ALTER TABLE running_attempt ADD COLUMN reservation_id uuid, ADD COLUMN experiment_id uuid,
    ADD COLUMN phase text, ADD COLUMN phase_revision bigint NOT NULL DEFAULT 0;
""",
    # When pods of Kubernetes had which devices, and what each of several on one used of it. A pod
    # goes by Kubernetes' id of it; in `ledger_hour` that stands in the place of a reservation's.
    """
CREATE TABLE pod (
    pod_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    pod text NOT NULL,
    owner text NOT NULL,
    reservation_id uuid,
    seen_at timestamptz NOT NULL);
CREATE INDEX pod_seen ON pod (seen_at);

CREATE TABLE pod_holding (
    pod_id uuid NOT NULL,
    device_no int NOT NULL,
    kind text NOT NULL,
    percent int,
    memory_mb bigint,
    times tstzmultirange NOT NULL,
    began_at timestamptz GENERATED ALWAYS AS (lower(times)) STORED,
    ended_at timestamptz GENERATED ALWAYS AS (upper(times)) STORED,
    PRIMARY KEY (pod_id, device_no)) WITH (fillfactor = 70);
CREATE INDEX pod_holding_device ON pod_holding (device_no, ended_at);
CREATE INDEX pod_holding_ended ON pod_holding (ended_at);

CREATE TABLE pod_minute (
    pod_id uuid NOT NULL,
    device_no int NOT NULL,
    at timestamptz NOT NULL,
    busy bigint NOT NULL,
    utilization_percent_count bigint NOT NULL,
    utilization_percent_min double precision,
    utilization_percent_max double precision,
    utilization_percent_sum double precision NOT NULL,
    memory_used_mb_count bigint NOT NULL,
    memory_used_mb_min double precision,
    memory_used_mb_max double precision,
    memory_used_mb_sum double precision NOT NULL,
    PRIMARY KEY (pod_id, device_no, at));
CREATE INDEX pod_minute_time ON pod_minute USING brin (at);

ALTER TABLE device ADD COLUMN total_memory_mb bigint;
ALTER TABLE device_holding ADD COLUMN kind text;
""",
    """
-- The person who asked; null: not known.
ALTER TABLE reservation ADD COLUMN requester text;
""",
)
