"""The samples of one experiment, for those who take them elsewhere."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from schemas.results.measurements import ListSamples, SampledDevice, SampleList
from services.results.summaries import summary_rows
from shared.messaging.bus import Route, query_route
from shared.messaging.paging import cursor_at, place_at
from shared.postgres.database import Database

MEASURED: Final = (
    *("utilization_percent", "memory_total_mb", "memory_used_mb", "temperature_c"),
    *("power_draw_w", "power_limit_w", "energy_mj", "ecc_corrected", "ecc_uncorrected"),
)

SELECT_PAGE: Final = f"""
SELECT device_no, (extract(epoch FROM observed_at) * 1000000)::bigint AS observed_at_us,
       boot_id, sequence, interval_seconds, {", ".join(MEASURED)}
FROM experiment_sample
WHERE attempt_id = $1 AND (device_no, observed_at, boot_id, sequence) >
    ($2, timestamptz 'epoch' + $3::bigint * interval '1 microsecond', $4, $5)
ORDER BY device_no, observed_at, boot_id, sequence LIMIT $6
"""

SELECT_DEVICES: Final = """
SELECT device_no, node_id, device_uuid AS uuid, device_index AS index, name, simulated
FROM device WHERE device_no = ANY ($1)
"""


class SamplePlace(Struct, frozen=True, array_like=True, tag="sample"):
    """By device and time, of one attempt."""

    attempt_id: UUID
    device_no: int = 0
    observed_at_us: int = 0
    boot_id: UUID = UUID(int=0)
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class ExperimentSamples:
    database: Database

    async def list(self, query: ListSamples) -> SampleList:
        """List samples; all pages show the same attempt, also when a newer summary comes
        meanwhile.
        """
        place = place_at(query.cursor, SamplePlace)
        async with self.database.transaction() as connection:
            if place is None:
                summary = await summary_rows.get_summary(connection, query.experiment_id)
                place = SamplePlace(summary.event.attempt_id)
            cursor = (place.device_no, place.observed_at_us, place.boot_id, place.sequence)
            rows = await connection.fetch(SELECT_PAGE, place.attempt_id, *cursor, query.limit + 1)
            page = rows[: query.limit]
            devices = await connection.fetch(
                SELECT_DEVICES, sorted({row["device_no"] for row in page})
            )
        return _view(place.attempt_id, page, devices, more=len(rows) > len(page))


def _view(attempt_id: UUID, rows: Any, devices: Any, *, more: bool) -> SampleList:
    numbers = {row["device_no"]: number for number, row in enumerate(devices)}
    names = ("observed_at_us", "boot_id", "sequence", "interval_seconds", *MEASURED)
    last = {name: rows[-1][name] for name in SamplePlace.__struct_fields__[1:]} if more else {}
    return SampleList(
        attempt_id=attempt_id,
        devices=tuple(
            SampledDevice(**{k: v for k, v in row.items() if k != "device_no"}) for row in devices
        ),
        device=tuple(numbers[row["device_no"]] for row in rows),
        next_cursor=cursor_at(SamplePlace(attempt_id, **last)) if more else None,
        **{name: tuple(row[name] for row in rows) for name in names},
    )


def build_routes(samples: ExperimentSamples) -> list[Route]:
    return [query_route(samples.list, ListSamples)]
