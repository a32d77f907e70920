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
)
