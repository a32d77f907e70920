"""Which driver nodes had, and since when."""

from typing import Final

from schemas.executor.attempts import AttemptFinished
from schemas.telemetry.readings import InventoryReported
from shared.postgres.database import Connection

INSERT_VERSION: Final = """
INSERT INTO driver_version (node_id, since_at, version)
SELECT $1::text, $2::timestamptz, $3::text WHERE $3 IS DISTINCT FROM (
    SELECT version FROM driver_version WHERE node_id = $1 AND since_at <= $2
    ORDER BY since_at DESC LIMIT 1)
ON CONFLICT DO NOTHING
"""

SELECT_VERSIONS: Final = """
SELECT DISTINCT ON (node_id) node_id, version FROM driver_version
WHERE node_id = ANY ($1) AND since_at <= $2 ORDER BY node_id, since_at DESC
"""


async def record(connection: Connection, event: InventoryReported) -> None:
    version = event.host.driver_version
    if version is not None:
        await connection.execute(INSERT_VERSION, event.node_id, event.occurred_at, version)


async def versions_of(connection: Connection, event: AttemptFinished) -> dict[str, str]:
    """Return the driver versions of an attempt's nodes, as far as known at its end."""
    rows = await connection.fetch(SELECT_VERSIONS, event.node_ids, event.finished_at)
    return {row["node_id"]: row["version"] for row in rows}
