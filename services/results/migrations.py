"""The tables of results. A text is a version: the first is that of release 0.1.0, and texts are
only ever appended.
"""

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
    total_memory_mb bigint,
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
    power_limit_w double precision,
    ecc_corrected bigint,
    ecc_uncorrected bigint,
    condition_no int,
    PRIMARY KEY (device_no, observed_at, boot_id, sequence)) PARTITION BY RANGE (observed_at);
CREATE INDEX sample_observed_at ON sample USING brin (observed_at);

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
CREATE INDEX attempt_task ON attempt (task_id, experiment_id);
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
    whole_run jsonb,
    energy_wh double precision,
    summarized_at timestamptz);
CREATE INDEX summary_pending ON summary (due_at) WHERE pending;
CREATE INDEX summary_experiment ON summary (experiment_id);
CREATE INDEX summary_samples ON summary (samples_until);

CREATE TABLE experiment_sample (
    attempt_id uuid NOT NULL REFERENCES attempt ON DELETE CASCADE,
    LIKE sample,
    PRIMARY KEY (attempt_id, device_no, observed_at, boot_id, sequence));
CREATE INDEX experiment_sample_condition ON experiment_sample (condition_no);

CREATE TABLE running_attempt (
    attempt_id uuid PRIMARY KEY,
    node_ids text[] NOT NULL,
    started_at timestamptz NOT NULL,
    reservation_id uuid,
    experiment_id uuid,
    phase text,
    phase_revision bigint NOT NULL DEFAULT 0);

-- A level's requests as they came, `RequestColumns` in msgpack.
CREATE TABLE level_requests (
    attempt_id uuid NOT NULL REFERENCES attempt ON DELETE CASCADE,
    level int NOT NULL,
    columns bytea NOT NULL,
    PRIMARY KEY (attempt_id, level));

CREATE TABLE deleted (subject_id uuid PRIMARY KEY, deleted_at timestamptz NOT NULL);

-- `seen` are the stored ticks of one boot of an agent, `due` the minutes with newer samples than
-- rollups.
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

CREATE TABLE sample_hour (
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

-- With what `ledger_hour` is made of.
CREATE TABLE sample_minute (
    LIKE sample_hour,
    seen_ms bigint,
    idle_ms bigint,
    busy_ms bigint,
    energy_mj double precision,
    PRIMARY KEY (device_no, at)) PARTITION BY RANGE (at);

-- What of a GPU changes seldom, written once. What no sample has any more can go; one that
-- experiments' samples have stays with them.
CREATE TABLE condition (
    condition_no int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    facts text NOT NULL,
    used_at timestamptz NOT NULL DEFAULT now());
CREATE UNIQUE INDEX condition_facts ON condition (md5(facts));
-- What a condition with pods ends with is not all that ends so.
CREATE INDEX condition_pods ON condition (condition_no) WHERE facts LIKE '%"]]]';

CREATE TABLE device_fault (
    event_id uuid PRIMARY KEY,
    node_id text NOT NULL,
    device_uuid text NOT NULL,
    occurred_at timestamptz NOT NULL,
    xid int NOT NULL);
CREATE INDEX device_fault_time ON device_fault (occurred_at);

CREATE TABLE driver_version (
    node_id text NOT NULL,
    since_at timestamptz NOT NULL,
    version text NOT NULL,
    PRIMARY KEY (node_id, since_at));

-- The minutes in which pods had devices.
CREATE TABLE pod_device (
    namespace text NOT NULL,
    pod text NOT NULL,
    device_no int NOT NULL,
    minutes tstzmultirange NOT NULL,
    PRIMARY KEY (namespace, pod, device_no)) WITH (fillfactor = 70);
CREATE INDEX pod_device_end ON pod_device (upper(minutes));

-- Each time of a holding is written by one kind of event; a quarantined device is held until it is
-- freed. Amounts are GPU-microseconds; without a reservation its id is zero.
CREATE TABLE reservation (
    reservation_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    holder text NOT NULL,
    requester text,  -- the person who asked; null: not known
    gpus int,
    expected_seconds double precision,  -- for how long it was to hold, as its request said
    requested_at timestamptz,
    forecast_start_at timestamptz,  -- when it was expected to start as it began to wait
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
    kind text,
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

-- What attempts' engines told, as long as their experiment is there.
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

-- When pods of Kubernetes had which devices, and what each of several on one used of it. A pod goes
-- by Kubernetes' id of it; in `ledger_hour` that stands in the place of a reservation's.
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
""",
    """
-- Samples of earlier hours: of some minutes of a device a row, whose arrays are as long as its
-- samples are many. `stored_sample` has every sample once, wherever it is.
CREATE TABLE packed_sample (
    device_no int NOT NULL,
    span_at timestamptz NOT NULL,
    boot_id uuid NOT NULL,
    observed_at timestamptz[] NOT NULL,
    sequence bigint[] NOT NULL,
    interval_seconds double precision[] NOT NULL,
    utilization_percent double precision[] NOT NULL,
    memory_total_mb bigint[] NOT NULL,
    memory_used_mb bigint[] NOT NULL,
    temperature_c double precision[] NOT NULL,
    power_draw_w double precision[] NOT NULL,
    energy_mj bigint[] NOT NULL,
    power_limit_w double precision[] NOT NULL,
    ecc_corrected bigint[] NOT NULL,
    ecc_uncorrected bigint[] NOT NULL,
    condition_no int[] NOT NULL) PARTITION BY RANGE (span_at);
CREATE INDEX packed_sample_span ON packed_sample (device_no, span_at);

CREATE VIEW stored_sample AS
SELECT device_no, observed_at AS span_at, boot_id,
    observed_at, sequence, interval_seconds, utilization_percent, memory_total_mb, memory_used_mb,
    temperature_c, power_draw_w, energy_mj, power_limit_w, ecc_corrected, ecc_uncorrected,
    condition_no
FROM sample
UNION ALL
SELECT device_no, span_at, boot_id,
    each.observed_at, each.sequence, each.interval_seconds, each.utilization_percent,
    each.memory_total_mb, each.memory_used_mb, each.temperature_c, each.power_draw_w,
    each.energy_mj, each.power_limit_w, each.ecc_corrected, each.ecc_uncorrected,
    each.condition_no
FROM packed_sample CROSS JOIN LATERAL unnest(
    packed_sample.observed_at, packed_sample.sequence, packed_sample.interval_seconds,
    packed_sample.utilization_percent, packed_sample.memory_total_mb,
    packed_sample.memory_used_mb, packed_sample.temperature_c, packed_sample.power_draw_w,
    packed_sample.energy_mj, packed_sample.power_limit_w, packed_sample.ecc_corrected,
    packed_sample.ecc_uncorrected, packed_sample.condition_no)
    AS each (
    observed_at, sequence, interval_seconds, utilization_percent, memory_total_mb, memory_used_mb,
    temperature_c, power_draw_w, energy_mj, power_limit_w, ecc_corrected, ecc_uncorrected,
    condition_no);
""",
    """
-- A tick of a node is a row. Its arrays have a row of each device, at its place in the set of those
-- that were read. `sample_by_device` has what an earlier release stores, which knows its partitions
-- by their names, and is to read all samples in `sample`.
CREATE TABLE device_place (
    set_id uuid NOT NULL,
    device_no int NOT NULL,
    place int NOT NULL,
    PRIMARY KEY (device_no, set_id));

CREATE TABLE tick (
    set_id uuid NOT NULL,
    observed_at timestamptz NOT NULL,
    boot_id uuid NOT NULL,
    sequence bigint NOT NULL,
    interval_seconds double precision NOT NULL,
    floats double precision[] NOT NULL,
    integers bigint[] NOT NULL) PARTITION BY RANGE (observed_at);
CREATE INDEX tick_set ON tick (set_id, observed_at);

-- What hardly gets smaller is not compressed: it would be most of the cost of packing.
ALTER TABLE packed_sample
    ALTER observed_at SET STORAGE EXTERNAL, ALTER sequence SET STORAGE EXTERNAL,
    ALTER power_draw_w SET STORAGE EXTERNAL, ALTER energy_mj SET STORAGE EXTERNAL;

ALTER TABLE sample RENAME TO sample_by_device;
DO $$ BEGIN
    EXECUTE 'CREATE VIEW earlier_sample AS ' || pg_get_viewdef('stored_sample'::regclass);
END $$;
CREATE OR REPLACE VIEW stored_sample AS
SELECT * FROM earlier_sample
UNION ALL
SELECT device_no, observed_at, boot_id, observed_at, sequence, interval_seconds, floats[place][1],
    integers[place][1], integers[place][2], floats[place][2], floats[place][3], integers[place][3],
    floats[place][4], integers[place][4], integers[place][5], integers[place][6]::int
FROM device_place JOIN tick USING (set_id);
CREATE VIEW sample AS
SELECT device_no, observed_at, boot_id, sequence, interval_seconds, utilization_percent,
    memory_total_mb, memory_used_mb, temperature_c, power_draw_w, energy_mj, power_limit_w,
    ecc_corrected, ecc_uncorrected, condition_no
FROM stored_sample;
""",
)
