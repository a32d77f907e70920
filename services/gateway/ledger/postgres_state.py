"""Reads how the gateway's Postgres stands."""

from typing import Final

from services.gateway.domain.postgres_health import PostgresState, Standby
from shared.postgres.database import Connection

_STATE: Final = """
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AS takes_writes,
    current_setting('synchronous_standby_names') AS synchronous_names,
    current_setting('synchronous_commit') AS synchronous_commit
"""
# Without what copies the database or keeps its log; `state` is NULL where this role may not see it.
_STANDBYS: Final = """
SELECT coalesce(application_name, '') AS name, state, sync_state,
    CASE WHEN NOT pg_is_in_recovery()
        THEN pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)::bigint END AS behind_bytes
FROM pg_stat_replication
WHERE application_name NOT IN ('pg_basebackup', 'pg_receivewal', 'pg_recvlogical')
    AND coalesce(state, '') <> 'backup' ORDER BY name
"""


async def read_postgres_state(connection: Connection) -> PostgresState:
    [state] = await connection.fetch(_STATE)
    standbys = [Standby(**dict(row)) for row in await connection.fetch(_STANDBYS)]
    return PostgresState(**dict(state), standbys=tuple(standbys))
