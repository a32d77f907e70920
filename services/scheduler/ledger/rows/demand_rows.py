"""What was requested of late, counted: what the `density` policy learns from."""

from collections import Counter
from datetime import datetime
from typing import Final

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.demand import Demand, DemandClass
from services.scheduler.domain.placement.density import class_of, demand_of
from shared.postgres.database import Connection, from_json

LATEST: Final = 10_000  # requests

_ASKED: Final = """
SELECT jsonb_strip_nulls(jsonb_build_object('gpus', request -> 'gpus',
    'shares', request -> 'shares', 'cpu_count', request -> 'cpu_count',
    'host_memory_mb', request -> 'host_memory_mb', 'gpu_models', request -> 'gpu_models'))::text
    AS request, count(*) AS requests
FROM (SELECT request FROM reservation
    WHERE requested_at <= $1 AND request ->> 'cluster' IS NULL
    ORDER BY arrival DESC LIMIT $2) AS latest
GROUP BY 1
"""


async def learn(connection: Connection, until: datetime) -> Demand:
    """The demand by the latest requests up to a moment, granted or not."""
    counts: Counter[DemandClass] = Counter()
    for row in await connection.fetch(_ASKED, until, LATEST):
        counts[class_of(from_json(row["request"], GpuRequest))] += row["requests"]
    return demand_of(counts)
