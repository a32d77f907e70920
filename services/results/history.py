"""Series and usage reports, computed by Postgres."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from schemas.gpus.kinds import GpuKind
from schemas.results.measurements import GetReport, ReportView, UsageRow
from schemas.results.series import (
    DeviceSeries,
    GetSeries,
    SeriesBy,
    SeriesMetric,
    SeriesPoint,
    SeriesView,
)
from services.results.domain.device_parts import MIG
from services.results.domain.fleet_bands import fleet_bands
from services.results.domain.node_sums import sums_by_node
from services.results.domain.packed_spans import spans_of
from services.results.domain.pods import OF_KIND
from services.results.domain.rollup import (
    MAX_ANSWER_POINTS,
    SMALLEST_BUCKET,
    Level,
    Piece,
    Plan,
    plan,
)
from shared.gpu.model_names import matches_model
from shared.postgres.database import Connection, Row

MAX_ROWS: Final = 50_000  # read for one answer, where a coarser rollup can give it

_DEVICE: Final = "device_no, node_id, device_uuid, device_index, name, total_memory_mb"
METRICS: Final = tuple(metric.value for metric in SeriesMetric)

SELECT_SPAN: Final = """
SELECT min(observed_at) AS first_at, max(observed_at) AS last_at
FROM experiment_sample JOIN attempt USING (attempt_id)
WHERE experiment_id = $1 AND observed_at >= $2 AND observed_at < $3
"""

# One step into an index for each device; a plain EXISTS may be planned as a scan of all samples.
SELECT_DEVICES: Final = f"""
SELECT {_DEVICE}
FROM device CROSS JOIN LATERAL (
    (SELECT FROM sample_hour
     WHERE sample_hour.device_no = device.device_no
       AND at > $3::timestamptz - interval '1 hour' AND at < $4 LIMIT 1)
    UNION ALL
    (SELECT FROM stored_sample
     WHERE stored_sample.device_no = device.device_no AND observed_at >= $3 AND observed_at < $4
       AND {spans_of("$3", "$4")} LIMIT 1)
    LIMIT 1) AS found
WHERE ($1::text IS NULL OR node_id = $1) AND ($2::text IS NULL OR device_uuid = $2)
ORDER BY node_id, device_index, device_uuid
"""

SELECT_EXPERIMENT_DEVICES: Final = f"""
SELECT {_DEVICE} FROM device
WHERE ($1::text IS NULL OR node_id = $1) AND ($2::text IS NULL OR device_uuid = $2)
  AND EXISTS (
    SELECT FROM experiment_sample JOIN attempt USING (attempt_id)
    WHERE experiment_sample.device_no = device.device_no AND experiment_id = $5
      AND observed_at >= $3 AND observed_at < $4)
ORDER BY node_id, device_index, device_uuid
"""

SELECT_POD_DEVICES: Final = f"""
SELECT {_DEVICE} FROM device
WHERE ($1::text IS NULL OR node_id = $1) AND ($2::text IS NULL OR device_uuid = $2)
  AND device_no IN (
    SELECT device_no FROM pod_device
    WHERE ($5::text IS NULL OR namespace = $5) AND ($6::text IS NULL OR pod = $6)
      AND ($7::text[] IS NULL OR namespace = ANY ($7)) AND minutes && tstzrange($3, $4))
ORDER BY node_id, device_index, device_uuid
"""

# The whole minutes in which reservations or pods of a namespace had each device.
OF_NAMESPACE: Final = """
SELECT device_no, range_agg(tstzrange(date_bin('1 minute', since, '2000-01-01Z'),
    date_bin('1 minute', until, '2000-01-01Z') + interval '1 minute')) AS times
FROM (
    SELECT device_no, greatest(holding.granted_at, {start}::timestamptz) AS since,
        least(holding.ended_at, {end}::timestamptz) AS until
    FROM device_holding AS holding JOIN reservation USING (reservation_id)
    WHERE namespace = {namespace}
      AND holding.granted_at < {end} AND holding.ended_at > {start}
    UNION ALL
    SELECT device_no, greatest(lower(had), {start}::timestamptz), least(upper(had), {end})
    FROM pod_holding JOIN pod USING (pod_id) LEFT JOIN reservation USING (reservation_id)
    CROSS JOIN unnest(times) AS had
    WHERE coalesce(reservation.namespace, pod.namespace) = {namespace}
      AND had && tstzrange({start}, {end})) AS held
GROUP BY device_no
"""
SELECT_HELD_DEVICES: Final = f"""
SELECT {_DEVICE}
FROM ({OF_NAMESPACE.format(start="$3", end="$4", namespace="$5")}) AS held
JOIN device USING (device_no)
WHERE ($1::text IS NULL OR node_id = $1) AND ($2::text IS NULL OR device_uuid = $2)
ORDER BY node_id, device_index, device_uuid
"""

# Which devices were handed out so; `shared` are all that were held in parts.
SELECT_GIVEN_AS: Final = f"""
SELECT device_no FROM device_holding
WHERE (kind = $4 OR $4 = 'shared' AND hundredths < 100)
  AND device_no = ANY ($1) AND granted_at < $3 AND ended_at > $2
UNION
SELECT device_no FROM pod_holding
WHERE {OF_KIND}
  AND device_no = ANY ($1) AND began_at < $3 AND ended_at > $2
"""

SELECT_DUE: Final = """
SELECT DISTINCT minute FROM agent_boot, unnest(due) AS minute
WHERE node_id = ANY ($1) AND minute > $2::timestamptz - interval '1 hour'
  AND minute < $3::timestamptz + interval '1 hour'
"""

# Every source has the same columns: raw samples are rollups of one.
OF_SAMPLES: Final = (
    """
SELECT device_no, observed_at AS at, {metric}::float8 AS lowest, {metric}::float8 AS highest,
       {metric}::float8 AS total, 1::float8 AS count
FROM stored_sample
WHERE device_no = ANY ($3) AND observed_at >= {start} AND observed_at < {end}
  AND """
    + spans_of("{start}", "{end}")
    + """ AND {metric} IS NOT NULL
"""
)

OF_EXPERIMENT: Final = """
SELECT device_no, observed_at AS at, {metric}::float8 AS lowest, {metric}::float8 AS highest,
       {metric}::float8 AS total, 1::float8 AS count
FROM experiment_sample JOIN attempt USING (attempt_id)
WHERE device_no = ANY ($3) AND observed_at >= {start} AND observed_at < {end}
  AND experiment_id = $4 AND {metric} IS NOT NULL
"""

OF_ROLLUPS: Final = """
SELECT device_no, at, {metric}_min AS lowest, {metric}_max AS highest, {metric}_sum AS total,
       {metric}_count::float8 AS count
FROM {table}
WHERE device_no = ANY ($3) AND at >= {start} AND at < {end} AND {metric}_count > 0
"""

OF_PODS: Final = """
SELECT * FROM ({sources}) AS source WHERE EXISTS (
    SELECT FROM pod_device
    WHERE pod_device.device_no = source.device_no AND minutes @> at
      AND ({namespace}::text IS NULL OR namespace = {namespace})
      AND ({pod}::text IS NULL OR pod = {pod})
      AND ({readable}::text[] IS NULL OR namespace = ANY ({readable})))
"""
HELD_BY: Final = """
SELECT source.* FROM ({sources}) AS source JOIN ({held}) AS held
    ON held.device_no = source.device_no AND times @> at
"""

TABLES: Final = {Level.MINUTE: "sample_minute", Level.HOUR: "sample_hour"}

# A mean is no further out than what it is of, however its sum was rounded. Buckets are numbered,
# and a device's come as arrays: ten thousand rows with times would take most of the answer's time,
# and so would their order.
SELECT_BUCKETS: Final = """
SELECT device_no, array_agg(number) AS numbers, array_agg(min) AS min, array_agg(max) AS max,
       array_agg(mean) AS mean
FROM (
    SELECT device_no,
           round(date_part('epoch', bucket - $2) / date_part('epoch', $1::interval))::int AS number,
           min(lowest) AS min, max(highest) AS max,
           least(greatest(sum(total) / sum(count), min(lowest)), max(highest)) AS mean
    FROM (SELECT *, date_bin($1, at, $2) AS bucket FROM ({sources}) AS source) AS binned
    GROUP BY device_no, bucket) AS found
GROUP BY device_no
"""

# Of an attempt that reaches beyond the range, the part inside counts: its GPU hours exactly, its
# energy in proportion to time. One without a duration counts whole.
SELECT_USAGE: Final = """
SELECT namespace, count(DISTINCT experiment_id) AS experiments,
       sum(gpus * extract(epoch FROM stop - start))::float8 / 3600 AS gpu_hours,
       sum(energy_wh * CASE WHEN finished_at > started_at
         THEN extract(epoch FROM stop - start) / extract(epoch FROM finished_at - started_at)
         ELSE 1 END)::float8 AS energy_wh
FROM (
    SELECT namespace, attempt.experiment_id, gpus, started_at, finished_at, energy_wh,
        greatest(started_at, $1) AS start, least(finished_at, $2) AS stop
    FROM attempt LEFT JOIN summary USING (attempt_id)
    WHERE finished_at >= $1 AND started_at < $2) AS used
GROUP BY namespace ORDER BY gpu_hours DESC, namespace
"""


async def series(
    connection: Connection, query: GetSeries, kept_from: Mapping[Level, datetime]
) -> SeriesView:
    """A metric's history per device, in at most `points` buckets each.

    Of an experiment: its devices within its own samples; of pods: theirs within their minutes. The
    buckets widen where a fleet's answer would not fit into one message, and to whole minutes or
    hours where these are read.
    """
    start_at, end_at = query.start_at, query.end_at
    if query.experiment_id is not None:
        [row] = await connection.fetch(SELECT_SPAN, query.experiment_id, start_at, end_at)
        if row["first_at"] is not None:
            start_at, end_at = row["first_at"], row["last_at"] + SMALLEST_BUCKET
    arguments = (query.node_id, query.device_uuid, start_at, end_at)
    devices: Sequence[Row]
    if query.experiment_id is not None:
        devices = await connection.fetch(SELECT_EXPERIMENT_DEVICES, *arguments, query.experiment_id)
    elif _is_of_pods(query):
        # An hour may be partly another's.
        kept_from = {**kept_from, Level.HOUR: end_at}
        of_pods = (query.pod_namespace, query.pod, query.readable)
        devices = await connection.fetch(SELECT_POD_DEVICES, *arguments, *of_pods)
    elif query.namespace is not None:
        kept_from = {**kept_from, Level.HOUR: end_at}
        devices = await connection.fetch(SELECT_HELD_DEVICES, *arguments, query.namespace)
    else:
        devices = await connection.fetch(SELECT_DEVICES, *arguments)
    if query.gpu_model is not None:
        devices = [device for device in devices if matches_model(device["name"], [query.gpu_model])]
    if query.kind_of_gpu is not None:
        devices = await _of_kind(connection, query.kind_of_gpu, devices, start_at, end_at)
    plan = await _plan(connection, query, start_at, end_at, devices, kept_from)
    nos = [device["device_no"] for device in devices]
    rows = {
        of_device["device_no"]: of_device
        for of_device in await _buckets(connection, query, plan, nos)
    }
    starts: dict[int, datetime] = {}
    for number in {number for of_device in rows.values() for number in of_device["numbers"]}:
        starts[number] = max(plan.origin + number * plan.bucket, start_at)
    of_devices = tuple(
        DeviceSeries(
            node_id=device["node_id"],
            device_uuid=device["device_uuid"],
            index=device["device_index"],
            points=_points(rows.get(device["device_no"]), starts),
            name=device["name"],
            memory_total_mb=device["total_memory_mb"],
        )
        for device in devices
    )
    return SeriesView(
        metric=query.metric,
        bucket_seconds=plan.bucket.total_seconds(),
        devices=of_devices if query.by is SeriesBy.GPU else (),
        nodes=sums_by_node(query.metric, of_devices) if query.by is SeriesBy.NODE else (),
        fleet=fleet_bands(of_devices) if query.by is SeriesBy.FLEET else (),
    )


async def _of_kind(
    connection: Connection,
    kind: GpuKind,
    devices: Sequence[Row],
    start_at: datetime,
    end_at: datetime,
) -> list[Row]:
    if kind not in {GpuKind.PGPU, GpuKind.MIG}:
        numbers = [device["device_no"] for device in devices]
        rows = await connection.fetch(SELECT_GIVEN_AS, numbers, start_at, end_at, kind.value)
        read_numbers = {row["device_no"] for row in rows}
        return [device for device in devices if device["device_no"] in read_numbers]
    is_mig = kind is GpuKind.MIG
    return [device for device in devices if device["device_uuid"].startswith(MIG) is is_mig]


def _points(of_device: Row | None, starts: Mapping[int, datetime]) -> tuple[SeriesPoint, ...]:
    if of_device is None:
        return ()
    columns = (of_device[name] for name in ("numbers", "min", "max", "mean"))
    points = {
        number: SeriesPoint(at=starts[number], min=lowest, max=highest, mean=mean)
        for number, lowest, highest, mean in zip(*columns, strict=True)
    }
    return tuple([points[number] for number in sorted(points)])


async def _plan(
    connection: Connection,
    query: GetSeries,
    start_at: datetime,
    end_at: datetime,
    devices: Sequence[Row],
    kept_from: Mapping[Level, datetime],
) -> Plan:
    of_experiment = query.experiment_id is not None
    due = (
        []
        if of_experiment
        else await connection.fetch(
            SELECT_DUE, list({device["node_id"] for device in devices}), start_at, end_at
        )
    )
    most_points = MAX_ANSWER_POINTS // max(1, _series_of(query, devices))
    return plan(
        start_at,
        end_at,
        points=max(1, min(query.points, most_points)),
        devices=len(devices),
        most_rows=MAX_ROWS,
        kept_from=dict.fromkeys(Level, end_at) | {Level.RAW: start_at}
        if of_experiment
        else kept_from,
        due={row["minute"] for row in due},
    )


async def _buckets(
    connection: Connection,
    query: GetSeries,
    plan: Plan,
    device_nos: list[int],
) -> Sequence[Row]:
    arguments: list[object] = [plan.bucket, plan.origin, device_nos]
    if query.experiment_id is not None:
        arguments.append(query.experiment_id)
    sources = []
    for piece in plan.pieces:
        arguments += [piece.start, piece.end]
        sources.append(_source(query, piece, len(arguments)))
    source = " UNION ALL ".join(sources)
    if _is_of_pods(query):
        arguments += [query.pod_namespace, query.pod, query.readable]
        last = len(arguments)
        source = OF_PODS.format(
            sources=source, namespace=f"${last - 2}", pod=f"${last - 1}", readable=f"${last}"
        )
    elif query.namespace is not None and query.experiment_id is None:
        arguments += [query.namespace, query.start_at, query.end_at]
        last = len(arguments)
        namespace_filter = OF_NAMESPACE.format(
            namespace=f"${last - 2}", start=f"${last - 1}", end=f"${last}"
        )
        source = HELD_BY.format(sources=source, held=namespace_filter)
    return await connection.fetch(SELECT_BUCKETS.format(sources=source), *arguments)


def _series_of(query: GetSeries, devices: Sequence[Row]) -> int:
    """Return how many lines the answer has."""
    if query.by is SeriesBy.FLEET:
        return 1
    if query.by is SeriesBy.NODE:
        return len({device["node_id"] for device in devices})
    return len(devices)


def _is_of_pods(query: GetSeries) -> bool:
    return query.pod_namespace is not None or query.pod is not None


def _source(query: GetSeries, piece: Piece, last_argument: int) -> str:
    if piece.level is not Level.RAW:
        text = OF_ROLLUPS
    else:
        text = OF_SAMPLES if query.experiment_id is None else OF_EXPERIMENT
    return text.format(
        metric=query.metric.value,
        table=TABLES.get(piece.level),
        start=f"${last_argument - 1}",
        end=f"${last_argument}",
    )


async def report(connection: Connection, query: GetReport) -> ReportView:
    """GPU hours and measured energy per namespace, of attempts as far as they lie in the range."""
    rows = await connection.fetch(SELECT_USAGE, query.start_at, query.end_at)
    return ReportView(rows=tuple(UsageRow(**dict(row)) for row in rows))
