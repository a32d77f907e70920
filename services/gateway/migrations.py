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
)
