"""Which pods had GPUs, and what each used of them, by whole minutes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from schemas.gpus.kinds import GpuKind
from schemas.results.series import (
    GetSeries,
    ListPods,
    PodLine,
    PodList,
    PodSeries,
    SeriesMetric,
    SeriesPoint,
    SeriesView,
    WhoseReading,
)
from services.results.domain.pods import OF_KIND, UNKNOWN_POD
from services.results.domain.rollup import MAX_ANSWER_POINTS, MINUTE, start_of
from shared.gpu.model_names import matches_model
from shared.postgres.database import Connection, Row

# More lines cannot be told apart in one chart, nor more names in one list.
MAX_SERIES: Final = 60
MAX_PODS: Final = 2_000

# A pod of a reservation is of its namespace, another of that of its own name.
HAD: Final = f"""
pod_holding AS given JOIN pod USING (pod_id) JOIN device USING (device_no)
LEFT JOIN reservation USING (reservation_id)
WHERE given.ended_at > $1 AND given.began_at < $2 AND times && tstzrange($1, $2)
    AND pod_id <> '{UNKNOWN_POD}' AND ($3::text IS NULL OR node_id = $3)
    AND ($4::text IS NULL OR {OF_KIND})
    AND ($5::text IS NULL OR coalesce(reservation.namespace, pod.namespace) = $5)
    AND ($6::text[] IS NULL OR coalesce(reservation.namespace, pod.namespace) = ANY ($6))
"""
SELECT_PODS: Final = f"""
SELECT pod.namespace, pod.pod, pod.owner, node_id, kind, count(*) AS devices, reservation_id,
    min(greatest(given.began_at, $1)) AS first_at, max(least(given.ended_at, $2)) AS last_at,
    count(*) OVER () AS total
FROM {HAD} GROUP BY pod_id, pod.namespace, pod.pod, pod.owner, node_id, kind, reservation_id
ORDER BY 1, 2, 4, 5 LIMIT $7
"""
SELECT_SERIES: Final = f"""
SELECT pod_id, device_no, pod.namespace, pod.pod, pod.owner, node_id, device_uuid, device_index,
    name, kind, percent, coalesce(given.memory_mb, total_memory_mb * percent / 100) AS memory_mb
FROM {HAD} AND ($7::text IS NULL OR pod.namespace = $7) AND ($8::text IS NULL OR pod.pod = $8)
    AND ($9::text IS NULL OR device_uuid = $9)
ORDER BY pod.namespace, pod.pod, node_id, device_index
"""

# Of a minute that others had the device in as well the pod's own use counts, where it is known;
# else the device's, which is then not its own. `{{own}}` is 0 for what no pod tells by itself.
SELECT_BUCKETS: Final = f"""
WITH pair AS MATERIALIZED (
    SELECT pod_id, device_no, times, (
        SELECT range_agg(had) FROM pod_holding AS other CROSS JOIN unnest(other.times) AS had
        WHERE other.device_no = pair.device_no
          AND other.pod_id NOT IN (pair.pod_id, '{UNKNOWN_POD}')
          AND other.ended_at > $1 AND other.began_at < $2) AS others
    FROM unnest($3::uuid[], $4::int[]) AS pair (pod_id, device_no)
    JOIN pod_holding USING (pod_id, device_no))
SELECT pod_id, device_no, date_bin($5::interval, at, $6::timestamptz) AS bucket,
    min(lowest) AS min, max(highest) AS max,
    least(greatest(sum(total) / sum(count), min(lowest)), max(highest)) AS mean,
    bool_and(is_own) AS is_own
FROM (
    SELECT pair.pod_id, pair.device_no, device.at, is_own,
        CASE WHEN is_told THEN {{own_min}} ELSE device.{{metric}}_min END AS lowest,
        CASE WHEN is_told THEN {{own_max}} ELSE device.{{metric}}_max END AS highest,
        CASE WHEN is_told THEN {{own_sum}} ELSE device.{{metric}}_sum END AS total,
        CASE WHEN is_told THEN {{own_count}} ELSE device.{{metric}}_count END AS count
    FROM pair JOIN sample_minute AS device ON device.device_no = pair.device_no
        AND device.at >= $1 AND device.at < $2
        AND times && tstzrange(device.at, device.at + interval '1 minute')
    LEFT JOIN pod_minute AS own ON own.pod_id = pair.pod_id
        AND own.device_no = pair.device_no AND own.at = device.at
    CROSS JOIN LATERAL (
        SELECT coalesce(others && tstzrange(device.at, device.at + interval '1 minute'), false)
            AS is_shared) AS minute
    CROSS JOIN LATERAL (
        SELECT is_shared AND coalesce({{own_count}}, 0) > 0 AS is_told) AS told
    CROSS JOIN LATERAL (SELECT NOT is_shared OR is_told AS is_own) AS whose
) AS minutes
WHERE count > 0
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
# What processes tell; a device's heat and power are never one pod's alone.
TOLD: Final = frozenset({SeriesMetric.UTILIZATION_PERCENT, SeriesMetric.MEMORY_USED_MB})


async def list_pods(connection: Connection, query: ListPods) -> PodList:
    """List the pods that had devices in the time, by namespace and name."""
    rows = await connection.fetch(SELECT_PODS, *_filters_of(query), MAX_PODS)
    total = rows[0]["total"] if rows else 0
    lines = ({name: value for name, value in row.items() if name != "total"} for row in rows)
    return PodList(pods=tuple(PodLine(**line) for line in lines), left_out=total - len(rows))


async def pod_series(connection: Connection, query: GetSeries) -> SeriesView:
    """Read a metric's history for each pod and device, in at most `points` buckets."""
    rows = await connection.fetch(
        SELECT_SERIES, *_filters_of(query), query.pod_namespace, query.pod, query.device_uuid
    )
    if query.gpu_model is not None:
        rows = [row for row in rows if matches_model(row["name"], [query.gpu_model])]
    pairs = rows[:MAX_SERIES]
    points = max(1, min(query.points, MAX_ANSWER_POINTS // max(1, len(pairs))))
    origin = start_of(query.start_at, MINUTE)
    bucket = max(1, -(-(query.end_at - origin) // (points * MINUTE))) * MINUTE
    bucket_rows = await connection.fetch(
        SELECT_BUCKETS.format(**_columns(query.metric)),
        origin,
        query.end_at,
        [row["pod_id"] for row in pairs],
        [row["device_no"] for row in pairs],
        bucket,
        origin,
    )
    of_pair: dict[tuple[object, int], list[Row]] = {}
    for row in bucket_rows:
        of_pair.setdefault((row["pod_id"], row["device_no"]), []).append(row)
    return SeriesView(
        metric=query.metric,
        bucket_seconds=bucket.total_seconds(),
        pods=tuple(
            _series(row, of_pair.get((row["pod_id"], row["device_no"]), ()), query.start_at)
            for row in pairs
        ),
        left_out=len(rows) - len(pairs),
    )


def _filters_of(query: ListPods | GetSeries) -> tuple[object, ...]:
    kind: GpuKind | None = query.kind_of_gpu
    return (
        query.start_at,
        query.end_at,
        query.node_id,
        None if kind is None else kind.value,
        query.namespace,
        query.readable,
    )


def _columns(metric: SeriesMetric) -> Mapping[str, str]:
    name = metric.value
    parts = ("count", "min", "max", "sum")
    own_sums = {f"own_{part}": f"own.{name}_{part}" if metric in TOLD else "0" for part in parts}
    return {"metric": name, **own_sums}


def _series(row: Row, buckets: Sequence[Row], start_at: datetime) -> PodSeries:
    is_own = all(bucket_row["is_own"] for bucket_row in buckets)
    return PodSeries(
        namespace=row["namespace"],
        pod=row["pod"],
        owner=row["owner"],
        node_id=row["node_id"],
        device_uuid=row["device_uuid"],
        index=row["device_index"],
        kind=row["kind"],
        percent=row["percent"],
        memory_given_mb=row["memory_mb"],
        reading=WhoseReading.OWN if is_own else WhoseReading.GPU,
        points=tuple(
            SeriesPoint(
                at=max(bucket_row["bucket"], start_at),
                min=bucket_row["min"],
                max=bucket_row["max"],
                mean=bucket_row["mean"],
            )
            for bucket_row in buckets
        ),
    )
