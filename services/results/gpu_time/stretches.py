"""How much time samples cover, and which samples those of due minutes are."""

from typing import Final

from services.results.domain.packed_spans import spans_of

# How much time each sample of a minute covers: from the one before it, the last one also up to
# the minute's end; never more than two intervals, or two seconds where these are shorter. It needs
# no sample of another minute, so that a minute can be counted by itself. `date_bin` and `date_part`
# because `date_trunc` asks for the time zone and `extract` counts in decimals: half of its cost.
STRETCHES: Final = """
SELECT stretch.*, (date_part('epoch', until - since) * 1000)::bigint AS ms
FROM (
    SELECT source.*,
        date_bin('1 millisecond',
            greatest(minute, lag(observed_at) OVER ticks, observed_at - reach), '2000-01-01Z'
        ) AS since,
        date_bin('1 millisecond', CASE WHEN lead(observed_at) OVER ticks IS NULL
            THEN least(minute + interval '1 minute', observed_at + reach)
            ELSE observed_at END, '2000-01-01Z') AS until
    FROM (SELECT found.*,
              2 * greatest(1, least(interval_seconds, 60)) * interval '1 second' AS reach
          FROM ({source}) AS found) AS source
    WINDOW ticks AS (PARTITION BY device_no, minute ORDER BY observed_at, boot_id, sequence)
) AS stretch
"""
IS_BUSY: Final = "utilization_percent >= 1"

# A source of stretches: the samples of nodes' minutes, with further columns of theirs. The devices'
# minutes first, and then by both: the planner, which knows little of a day that has just begun,
# would hold each sample against that minute of every node.
IN_MINUTE: Final = f"""
WITH due_of AS MATERIALIZED (
    SELECT device_no, minute
    FROM unnest($1::text[], $2::timestamptz[]) AS due (node_id, minute) JOIN device USING (node_id))
SELECT stored_sample.device_no, observed_at, boot_id, sequence, interval_seconds, minute,
    {{columns}}
FROM due_of JOIN stored_sample ON stored_sample.device_no = due_of.device_no
    AND minute = date_bin('1 minute', observed_at, '2000-01-01Z')
WHERE observed_at >= minute AND observed_at < minute + interval '1 minute'
  AND observed_at >= $3 AND observed_at < $4 AND {spans_of("$3", "$4")}
"""
