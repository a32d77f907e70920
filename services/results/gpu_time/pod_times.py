"""When which pods had which devices, from samples: written with the rollup of their minutes."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from services.results.domain.pods import UNKNOWN_POD, PodPart, parts_of
from services.results.domain.reading import Condition
from services.results.domain.rollup import MINUTE
from services.results.gpu_time.stretches import IN_MINUTE, STRETCHES
from services.results.samples.conditions import conditions_of
from shared.postgres.database import Connection, Row

# Most installations have no pods, and are spared a second read of every sample.
HAS_PODS: Final = "SELECT EXISTS (SELECT FROM condition WHERE facts LIKE '%\"]]]')"

# Stretches of one condition that lie together are one.
SELECT_HAD: Final = f"""
SELECT device_no, minute, condition_no, lower(time) AS since, upper(time) AS until
FROM (SELECT device_no, minute, condition_no,
          range_agg(tstzrange(since, until)) FILTER (WHERE since < until) AS times
      FROM ({STRETCHES.format(source=IN_MINUTE.format(columns="condition_no"))}) AS covered
      GROUP BY 1, 2, 3) AS had
LEFT JOIN LATERAL unnest(times) AS time ON true
"""
# What is computed again replaces what was there of the same minutes.
CLEAR_TIMES: Final = """
UPDATE pod_holding SET times = times - minutes
FROM (SELECT device_no, range_agg(tstzrange(minute, minute + interval '1 minute')) AS minutes
      FROM unnest($1::text[], $2::timestamptz[]) AS due (node_id, minute)
      JOIN device USING (node_id) GROUP BY 1) AS due
WHERE pod_holding.device_no = due.device_no AND times && minutes
"""
ADD_TIMES: Final = """
INSERT INTO pod_holding AS known (pod_id, device_no, kind, percent, memory_mb, times)
SELECT pod_id, device_no, max(kind), max(percent), max(memory_mb),
    range_agg(tstzrange(since, until))
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::int[], $5::bigint[], $6::timestamptz[],
            $7::timestamptz[]) AS had (pod_id, device_no, kind, percent, memory_mb, since, until)
GROUP BY 1, 2 ORDER BY 1, 2
ON CONFLICT (pod_id, device_no) DO UPDATE SET times = known.times + excluded.times,
    kind = excluded.kind, percent = coalesce(excluded.percent, known.percent),
    memory_mb = coalesce(excluded.memory_mb, known.memory_mb)
"""
DROP_EMPTY: Final = "DELETE FROM pod_holding WHERE isempty(times)"
UPSERT_PODS: Final = """
INSERT INTO pod AS known (pod_id, namespace, pod, owner, reservation_id, seen_at)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[],
                     $6::timestamptz[]) ORDER BY 1
ON CONFLICT (pod_id) DO UPDATE SET seen_at = greatest(known.seen_at, excluded.seen_at),
    owner = coalesce(nullif(excluded.owner, ''), known.owner),
    reservation_id = coalesce(excluded.reservation_id, known.reservation_id)
"""
ADD_MINUTES: Final = """
INSERT INTO pod_device AS known
SELECT namespace, pod, device_no, range_agg(tstzrange(minute, minute + interval '1 minute'))
FROM unnest($1::text[], $2::text[], $3::int[], $4::timestamptz[])
    AS had (namespace, pod, device_no, minute)
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
ON CONFLICT (namespace, pod, device_no)
    DO UPDATE SET minutes = known.minutes + excluded.minutes
    WHERE NOT known.minutes @> excluded.minutes
"""
FORGET: Final = (
    "DELETE FROM pod_device WHERE upper(minutes) < $1",
    "DELETE FROM pod_minute WHERE at < $1",
)


async def record(connection: Connection, nodes: list[str], minutes: list[datetime]) -> None:
    """Write what these minutes of nodes show, in the transaction that rolls them up."""
    if not await connection.fetchval(HAS_PODS):
        return
    first, last = min(minutes), max(minutes)
    rows = await connection.fetch(SELECT_HAD, nodes, minutes, first, last + MINUTE)
    numbers = (row["condition_no"] for row in rows)
    conditions = await conditions_of(connection, numbers)
    of_condition = {
        number: parts_of(condition.pods or ()) for number, condition in conditions.items()
    }
    holdings = [(part, row) for row in rows for part in of_condition.get(row["condition_no"], ())]
    await connection.execute(CLEAR_TIMES, nodes, minutes)
    if holdings:
        await _add_pods(connection, holdings)
    # Of hosts without a kubelet as well: what counts is whether the device has pods at other times.
    untold_rows = [row for row in rows if _pods_are_unknown(conditions.get(row["condition_no"]))]
    unknown = ((UNKNOWN_POD, row["device_no"], "", None, None, row) for row in untold_rows)
    await _add_times(connection, unknown)
    await connection.execute(DROP_EMPTY)


async def _add_pods(connection: Connection, holdings: Sequence[tuple[PodPart, Row]]) -> None:
    by_minute = {
        (part.namespace, part.pod, row["device_no"], row["minute"]) for part, row in holdings
    }
    await connection.execute(ADD_MINUTES, *map(list, zip(*sorted(by_minute), strict=True)))
    newest = {part.pod_id: (part, row["minute"]) for part, row in holdings}
    pods = [
        (part.pod_id, part.namespace, part.pod, part.owner, part.reservation_id, at)
        for part, at in newest.values()
    ]
    await connection.execute(UPSERT_PODS, *map(list, zip(*pods, strict=True)))
    await _add_times(
        connection,
        (
            (part.pod_id, row["device_no"], part.kind, part.percent, part.memory_mb, row)
            for part, row in holdings
        ),
    )


async def _add_times(
    connection: Connection,
    holdings: Iterable[tuple[object, int, str, int | None, int | None, Row]],
) -> None:
    times = [(*columns, row["since"], row["until"]) for *columns, row in holdings if row["since"]]
    if times:
        await connection.execute(ADD_TIMES, *map(list, zip(*times, strict=True)))


def _pods_are_unknown(condition: Condition | None) -> bool:
    return condition is None or condition.pods is None


async def forget(connection: Connection, until: datetime) -> None:
    """Delete what only the history of minutes from before then needed."""
    for statement in FORGET:
        await connection.execute(statement, until)
