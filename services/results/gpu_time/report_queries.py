"""What reports read of the ledger: the times, amounts and namespace are the first 13 arguments."""

from typing import Final

from schemas.results.reports import NO_PERSON, NO_POD, UsageBy
from services.results.gpu_time.hours import COLUMNS, NOBODY

# What runs is computed for the question, and beside what is stored looks the same.
HOURS: Final = f"""
SELECT {COLUMNS} FROM ledger_hour WHERE hour >= $1 AND hour < $2
UNION ALL
SELECT * FROM unnest($3::timestamptz[], $4::int[], $5::uuid[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::float8[], $12::float8[])
"""
SELECT_IS_STORED: Final = "SELECT EXISTS (SELECT FROM ledger_hour WHERE hour = $1)"

# What reservations and pods held: a pod's id stands in the place of a reservation's, and those of a
# reservation stand for it.
HELD: Final = f"""
({HOURS}) AS hours JOIN device USING (device_no) LEFT JOIN reservation USING (reservation_id)
LEFT JOIN (SELECT pod_id AS reservation_id, namespace, pod, owner FROM pod) AS pod
    USING (reservation_id)
LEFT JOIN device_holding AS holding USING (reservation_id, device_no)
LEFT JOIN (
    SELECT coalesce(reservation_id, pod_id) AS reservation_id, device_no, max(kind) AS kind,
        max(percent) AS percent, max(memory_mb) AS memory_mb
    FROM pod_holding JOIN pod USING (pod_id) GROUP BY 1, 2
) AS given USING (reservation_id, device_no)
WHERE reservation_id <> '{NOBODY}'
    AND ($13::text IS NULL OR coalesce(reservation.namespace, pod.namespace) = $13)
"""
NAMESPACE: Final = "coalesce(reservation.namespace, pod.namespace, '')"
KIND: Final = """
coalesce(given.kind, holding.kind, CASE WHEN device_uuid LIKE 'MIG-%' THEN 'mig' ELSE 'pgpu' END)
"""
# What people call a holder: of an experiment its task.
REQUESTER: Final = """
CASE WHEN holder LIKE 'experiment/%/%'
    THEN regexp_replace(regexp_replace(holder, '^experiment/[^/]*/', ''), '#[0-9]+$', '')
    ELSE holder END
"""
OWNER: Final = "coalesce(nullif(owner, ''), 'Pod/' || pod)"
NAME: Final = {
    UsageBy.NAMESPACE: NAMESPACE,
    UsageBy.PERSON: f"coalesce(nullif(requester, ''), '{NO_PERSON}')",
    UsageBy.REQUESTER: f"coalesce({REQUESTER}, {OWNER}, '')",
    UsageBy.MODEL: "device.name",
    UsageBy.NODE: "device.node_id",
    UsageBy.POD: f"coalesce(pod.namespace || '/' || pod, '{NO_POD}')",
    UsageBy.OWNER: f"coalesce(pod.namespace || '/' || {OWNER}, '{NO_POD}')",
    UsageBy.KIND: KIND,
}
SELECT_HELD: Final = f"""
SELECT {{name}} AS name, device.name AS model, sum(used_us)::float8 AS used_us,
    sum(idle_us)::float8 AS idle_us, sum(unknown_us)::float8 AS unknown_us,
    sum(energy_mj) AS energy_mj
FROM {HELD} GROUP BY 1, 2
"""
SELECT_HELD_BY_DAY: Final = f"""
SELECT {{name}} AS name, date_trunc('day', hour AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS day_at,
    sum(used_us + idle_us + unknown_us)::float8 AS held_us
FROM {HELD} GROUP BY 1, 2
"""
SUM: Final = "used_us + idle_us + free_us + cordoned_us + unknown_us"
IS_HELD: Final = f"(hours.reservation_id <> '{NOBODY}')"
SELECT_TOTAL: Final = f"""
SELECT count(DISTINCT device_no) AS gpus, coalesce(sum(used_us), 0)::bigint AS used_us,
    coalesce(sum(idle_us), 0)::bigint AS idle_us, coalesce(sum(free_us), 0)::bigint AS free_us,
    coalesce(sum(cordoned_us), 0)::bigint AS cordoned_us,
    coalesce(sum(unknown_us), 0)::bigint AS unknown_us,
    coalesce(sum({SUM}) FILTER (WHERE {IS_HELD} AND pod_id IS NULL), 0)::bigint AS reservations_us,
    coalesce(sum({SUM}) FILTER (WHERE pod_id IS NOT NULL), 0)::bigint AS pods_us,
    coalesce(sum({SUM}) FILTER (WHERE NOT {IS_HELD}), 0)::bigint AS nobody_us
FROM ({HOURS}) AS hours LEFT JOIN pod ON pod_id = hours.reservation_id
"""
SELECT_WASTE: Final = f"""
SELECT reservation_id, {NAMESPACE} AS namespace, coalesce(holder, '') AS holder,
    device.name AS model, coalesce(pod, '') AS pod, coalesce(owner, '') AS owner, {KIND} AS kind,
    sum(used_us)::float8 AS used_us,
    sum(idle_us)::float8 AS idle_us, sum(unknown_us)::float8 AS unknown_us,
    max(hours.memory_mb / nullif(coalesce(holding.memory_mb, given.memory_mb,
        total_memory_mb * given.percent / 100.0), 0)) AS memory_share
FROM {HELD} GROUP BY 1, 2, 3, 4, 5, 6, 7
"""
SELECT_WAITS: Final = """
SELECT namespace, count(*) AS requests, count(granted_at) AS granted,
    count(*) FILTER (WHERE granted_at IS NULL AND ended_at IS NULL) AS waiting,
    count(*) FILTER (WHERE granted_at IS NULL AND ended_at IS NOT NULL) AS ended,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY waited_seconds) AS p50_seconds,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY waited_seconds) AS p95_seconds,
    max(waited_seconds) AS longest_seconds, count(off_seconds) AS expected,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY off_seconds) AS expected_off_p50_seconds,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY off_seconds) AS expected_off_p95_seconds,
    count(start_off_seconds) AS forecast,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY start_off_seconds) AS start_off_p50_seconds,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY start_off_seconds) AS start_off_p90_seconds
FROM (SELECT namespace, requested_at, granted_at, ended_at, waited_seconds,
    CASE WHEN state = 'released' THEN
        abs(extract(epoch FROM ended_at - granted_at) - expected_seconds)::float8
    END AS off_seconds,
    abs(extract(epoch FROM granted_at - forecast_start_at))::float8 AS start_off_seconds
    FROM reservation) AS reservation
WHERE requested_at >= $1 AND requested_at < $2 AND ($3::text IS NULL OR namespace = $3)
GROUP BY 1 ORDER BY requests DESC, namespace
"""
SELECT_ENDS: Final = """
SELECT state AS reason, count(*) AS count, max(ended_at) AS last_at,
    (array_agg(reason ORDER BY ended_at DESC))[1] AS message
FROM reservation
WHERE ended_at >= $1 AND ended_at < $2 AND ($3::text IS NULL OR namespace = $3)
    AND state NOT IN ('released', 'cancelled')
GROUP BY 1
"""
SELECT_FAILED: Final = """
SELECT outcome, finished_at, event FROM attempt
WHERE finished_at >= $1 AND finished_at < $2 AND ($3::text IS NULL OR namespace = $3)
    AND outcome IN ('failed', 'interrupted')
ORDER BY finished_at DESC LIMIT $4
"""
