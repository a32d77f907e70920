"""The rows of executors' offers, inside a caller's transaction."""

from datetime import datetime
from typing import Final

from schemas.executor.attempts import ExecutorReported
from services.orchestrator.domain.installation.offers import Offer
from shared.postgres.database import Connection, from_json, to_json

# Revisions count within one life of an executor, which its boot id identifies.
UPSERT_OFFER: Final = """
INSERT INTO executor_offer AS known
    (executor_id, boot_id, revision, occurred_at, received_at, offer)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (executor_id) DO UPDATE SET
    boot_id = $2, revision = $3, occurred_at = $4, received_at = $5, offer = $6
WHERE CASE WHEN known.boot_id = $2 THEN known.revision < $3 ELSE known.occurred_at < $4 END
"""

SELECT_OFFERS: Final = """
SELECT offer FROM executor_offer WHERE received_at > $1 ORDER BY executor_id
"""


async def save_offer(connection: Connection, report: ExecutorReported, now: datetime) -> None:
    """Store an executor's report unless a newer one is known."""
    offer = Offer(
        executor_id=report.executor_id,
        runtimes=report.runtimes,
        benchmark_tools=report.benchmark_tools,
        endpoint_engines=report.endpoint_engines,
    )
    await connection.execute(
        UPSERT_OFFER,
        report.executor_id,
        report.boot_id,
        report.revision,
        report.occurred_at,
        now,
        to_json(offer),
    )


async def offers(connection: Connection, since: datetime) -> list[Offer]:
    """Return what the executors offer that reported after `since`."""
    rows = await connection.fetch(SELECT_OFFERS, since)
    return [from_json(row["offer"], Offer) for row in rows]
