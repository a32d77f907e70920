"""The statements that make a ledger from a backup safe to decide on."""

from typing import Final

from services.scheduler.ledger.timeline import EPOCHS_PER_TIMELINE

LED_SECONDS: Final = """
SELECT coalesce(extract(epoch FROM nullif(expires_at, '-infinity') - clock_timestamp()), 0)::float8
FROM leader
"""
DEPOSE: Final = "UPDATE leader SET term = term + 1, holder = NULL, expires_at = '-infinity'"
# Above every epoch that may have been given since, whatever backup is restored how often: by the
# time, which grows by a million in a second, and far above the backup's own.
RAISE_EPOCH: Final = f"""
UPDATE epoch SET value = greatest(value + {EPOCHS_PER_TIMELINE},
    extract(epoch FROM clock_timestamp())::bigint << 20)
"""
# Its transactions' numbers are those of another server.
FORGET_CHANGES: Final = "DELETE FROM change"
# Who waited goes on waiting for as long as was left.
WAIT_ON: Final = """
UPDATE reservation SET wait_deadline_at = wait_deadline_at + (clock_timestamp() - $1)
WHERE state = 'queued' AND clock_timestamp() > $1
"""
HELD: Final = "SELECT reservation_id FROM reservation WHERE state = ANY($1)"
NOTE: Final = "INSERT INTO restore (backup_at) VALUES ($1)"
CORDON: Final = """
SET cordoned = true, cordon_cause = $1, cordon_reason = $2, cordon_set_by = '',
    cordoned_at = clock_timestamp(), quiet_since = NULL
WHERE NOT cordoned OR cordon_cause = ANY($3)
"""
CORDON_NODES: Final = f"UPDATE node {CORDON}"
CORDON_DEVICES: Final = f"""
UPDATE device {CORDON} RETURNING device_no, node_id, uuid, false AS quarantined
"""
