"""What namespaces have held of late, decayed: whose turn it is goes by it."""

from datetime import datetime
from math import log
from typing import Final

from services.scheduler.domain.model.namespaces import Held, Use
from shared.postgres.database import Connection
from shared.postgres.kept_plans import plan_for_arguments

HALF_LIVES: Final = 10  # older use is less than a thousandth of itself

# The integral of an amount times 2^(-age / half-life) over the time for which it was held.
_USED: Final = """
WITH span AS (
    SELECT r.namespace, h.hundredths, 0 AS cpu_milli, 0 AS memory_mb, h.granted_at AS since,
        h.released_at AS until
    FROM holding h JOIN reservation r USING (reservation_id)
    WHERE (h.released_at IS NULL OR h.released_at > $1::timestamptz - $2 * interval '1 second')
        AND h.granted_at < $1
    UNION ALL
    SELECT r.namespace, 0, h.cpu_milli, h.memory_mb, r.granted_at, h.released_at
    FROM host_holding h JOIN reservation r USING (reservation_id)
    WHERE (h.released_at IS NULL OR h.released_at > $1::timestamptz - $2 * interval '1 second')
        AND r.granted_at < $1),
decayed AS (
    SELECT namespace, hundredths, cpu_milli, memory_mb, $3::float8 * (
        exp(-extract(epoch FROM $1 - least(coalesce(until, $1), $1))::float8 / $3)
        - exp(-extract(epoch FROM $1 - since)::float8 / $3)) AS seconds
    FROM span)
SELECT namespace, round(sum(hundredths * seconds))::bigint AS hundredths,
    round(sum(cpu_milli * seconds))::bigint AS cpu_milli,
    round(sum(memory_mb * seconds))::bigint AS memory_mb
FROM decayed GROUP BY namespace ORDER BY namespace
"""


async def learn(connection: Connection, until: datetime, half_life_seconds: float) -> Use:
    """Return what each namespace has held until a moment, half of it forgotten in every
    half-life.
    """
    await plan_for_arguments(connection)  # or all that was ever held is read by its key
    decay_seconds = half_life_seconds / log(2)
    rows = await connection.fetch(_USED, until, HALF_LIVES * half_life_seconds, decay_seconds)
    return Use(
        window_seconds=max(1, round(decay_seconds)),
        by_namespace={
            row["namespace"]: Held(
                hundredths=row["hundredths"],
                cpu_milli=row["cpu_milli"],
                memory_mb=row["memory_mb"],
            )
            for row in rows
        },
    )
