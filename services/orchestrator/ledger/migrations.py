"""The orchestrator's tables. What is searched for has columns; the rest of a row is its `record`.

`json`, not `jsonb`: the order of a configuration's parameters is the order of its flags. A text is
a version: the first is that of release 0.1.0, and texts are only ever appended.
"""

from typing import Final

MIGRATIONS: Final = (
    """
CREATE TABLE task (
    task_id uuid PRIMARY KEY,
    namespace text NOT NULL,
    task_name text NOT NULL,
    state text NOT NULL,
    created_at timestamptz NOT NULL,
    finished_at timestamptz,
    record json NOT NULL
);
CREATE UNIQUE INDEX task_unfinished_name ON task (namespace, task_name)
    WHERE state NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX task_newest ON task (created_at DESC, task_id DESC);

CREATE TABLE experiment (
    experiment_id uuid PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task,
    ordinal int NOT NULL,
    state text NOT NULL,
    objective_score double precision,
    record json NOT NULL,
    UNIQUE (task_id, ordinal)
);
CREATE INDEX experiment_state ON experiment (task_id, state, ordinal);
-- What past experiments are found by, to expect how long one like them holds its GPUs.
CREATE INDEX experiment_engine ON experiment
    ((record -> 'engine' ->> 'model'), (record -> 'engine' ->> 'engine'));

CREATE TABLE attempt (
    attempt_id uuid PRIMARY KEY,
    experiment_id uuid NOT NULL REFERENCES experiment ON DELETE CASCADE,
    task_id uuid NOT NULL REFERENCES task,
    reservation_id uuid NOT NULL UNIQUE,
    executor_id text,
    outcome text,
    needs_renewal boolean NOT NULL,
    requested_at timestamptz NOT NULL,
    closed_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT now(),
    record json NOT NULL
);
-- An experiment never has two attempts under way.
CREATE UNIQUE INDEX attempt_open ON attempt (experiment_id) WHERE closed_at IS NULL;
CREATE INDEX attempt_experiment ON attempt (experiment_id, requested_at);
CREATE INDEX attempt_task ON attempt (task_id, requested_at);
CREATE INDEX attempt_needs_renewal ON attempt (attempt_id) WHERE needs_renewal;

CREATE TABLE executor_offer (
    executor_id text PRIMARY KEY,
    boot_id uuid NOT NULL,
    revision bigint NOT NULL,
    occurred_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    offer json NOT NULL
);

-- A name's place in a list is that of its bytes, as its cursor has it.
CREATE TABLE preset (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    preset_id uuid NOT NULL UNIQUE,
    revision bigint NOT NULL,
    saved_at timestamptz NOT NULL,
    record json NOT NULL,
    PRIMARY KEY (namespace, name)
);
""",
    # Sealed by a key that is not in the database; `key_id` says which.
    """
CREATE TABLE secret (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    revision bigint NOT NULL,
    set_by text NOT NULL,
    set_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, name)
);
""",
    # Several attempts, one after the other, may have the same reservation, and one engine.
    """
ALTER TABLE attempt DROP CONSTRAINT attempt_reservation_id_key;
CREATE INDEX attempt_reservation ON attempt (reservation_id, requested_at);
""",
)
