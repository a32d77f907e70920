"""Reports on the ledger's hours, the one that runs included."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from schemas.base import HOUR_US
from schemas.errors import ErrorCode
from schemas.executor.attempts import AttemptFinished
from schemas.results.reports import (
    FailureLine,
    FailuresView,
    GetFailures,
    GetUsage,
    GetWaits,
    GetWaste,
    GpuBooking,
    GpuTime,
    ReportQuery,
    UsageBy,
    UsageLine,
    UsageView,
    WaitsLine,
    WaitsView,
    WasteLine,
    WasteView,
)
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList
from services.results.domain.rollup import HOUR, end_of, start_of
from services.results.domain.usage_days import usage_days
from services.results.gpu_time.hours import COLUMNS, compute
from services.results.gpu_time.report_queries import (
    NAME,
    SELECT_ENDS,
    SELECT_FAILED,
    SELECT_HELD,
    SELECT_HELD_BY_DAY,
    SELECT_IS_STORED,
    SELECT_TOTAL,
    SELECT_WAITS,
    SELECT_WASTE,
)
from services.results.summaries.memory_trends import trend_of
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.gpu.prices import price_of
from shared.logging import log
from shared.messaging.bus import Bus, Route, query_route
from shared.postgres.database import Connection, Database, Row

MJ_PER_WH: Final = 3_600_000
MAX_LINES: Final = 200
LIMITS_SECONDS: Final = 2.0
MAX_ATTEMPTS: Final = 5_000  # decoded for one answer
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
UNUSED_MEMORY_PERCENT: Final = 30.0
IDLE_PERCENT: Final = 50.0

_decode_event = msgspec.msgpack.Decoder(AttemptFinished).decode
Arguments = Sequence[object]


@dataclass(frozen=True, slots=True)
class Reports:
    """`prices` are of an hour of a GPU, by parts of its model's name."""

    database: Database
    prices: Mapping[str, float]
    currency: str
    bus: Bus

    async def usage(self, query: GetUsage) -> UsageView:
        """Report who held GPUs, and the time of all of them."""
        start, end = _hours_of(query)
        earlier_from = start - min(end - start, start - EARLIEST)
        name = NAME[query.by]
        async with self.database.transaction() as connection:
            hours = await _hours(connection, start, end)
            holdings = await connection.fetch(
                SELECT_HELD.format(name=name), *hours, query.namespace
            )
            total = await connection.fetchrow(SELECT_TOTAL, *hours)
            by_day = (
                await connection.fetch(
                    SELECT_HELD_BY_DAY.format(name=name), *hours, query.namespace
                )
                if query.daily
                else []
            )
            earlier = await connection.fetch(
                SELECT_HELD.format(name=name),
                *await _hours(connection, earlier_from, start),
                query.namespace,
            )
        lines: dict[str, UsageLine] = {}
        for row in holdings:
            line = self._line(row)
            previous = lines.get(line.name)
            lines[line.name] = line if previous is None else _sum(previous, line)
        for row in earlier:
            usage = lines.get(row["name"]) or _nothing(row["name"])
            hours_before = usage.previous_gpu_hours + _hours_of_holding(row)
            lines[usage.name] = msgspec.structs.replace(usage, previous_gpu_hours=hours_before)
        limits = await self._limits(query)
        for name in sorted(limits.keys() - lines.keys()):
            lines[name] = _nothing(name)
        seconds = (min(end, utcnow()) - start).total_seconds()
        fields = dict(total) if total is not None else {}
        gpus = fields.pop("gpus", 0)
        booked = GpuBooking(**{name: fields.pop(name, 0) for name in GpuBooking.__struct_fields__})
        return UsageView(
            start_at=start,
            end_at=end,
            by=query.by,
            lines=tuple(
                _against(line, limits.get(line.name), seconds)
                for line in sorted(lines.values(), key=lambda line: (-line.gpu_hours, line.name))
            ),
            total=GpuTime(**fields),
            gpus=gpus,
            booked=booked,
            currency=self.currency,
            days=usage_days((row["day_at"], row["name"], row["held_us"]) for row in by_day),
        )

    async def _limits(self, query: GetUsage) -> dict[str, float]:
        """Return the GPU limits of namespaces; none while the scheduler does not answer."""
        if query.by is not UsageBy.NAMESPACE:
            return {}
        try:
            view = await self.bus.query(
                ListNamespaces(), NamespaceList, timeout_seconds=LIMITS_SECONDS
            )
        except UnavailableError as error:
            log.info("usage_without_limits", error=str(error))
            return {}
        return {
            namespace.namespace: namespace.gpu_limit
            for namespace in view.namespaces
            if namespace.gpu_limit is not None and query.namespace in {None, namespace.namespace}
        }

    async def waste(self, query: GetWaste) -> WasteView:
        """Report what was held and hardly used."""
        start, end = _hours_of(query)
        async with self.database.transaction() as connection:
            hours = await _hours(connection, start, end)
            rows = await connection.fetch(SELECT_WASTE, *hours, query.namespace)
        lines = [line for row in rows if (line := self._waste(row)) is not None]
        lines.sort(key=lambda line: (-line.idle_hours, line.reservation_id))
        return WasteView(
            start_at=start, end_at=end, lines=tuple(lines[:MAX_LINES]), currency=self.currency
        )

    async def waits(self, query: GetWaits) -> WaitsView:
        """Report how long requests waited."""
        start, end = _hours_of(query)
        async with self.database.transaction() as connection:
            rows = await connection.fetch(SELECT_WAITS, start, end, query.namespace)
        lines = tuple(WaitsLine(**dict(row)) for row in rows)
        return WaitsView(start_at=start, end_at=end, lines=lines)

    async def failures(self, query: GetFailures) -> FailuresView:
        """Report why attempts and reservations ended otherwise than planned."""
        start, end = _hours_of(query)
        arguments = (start, end, query.namespace)
        async with self.database.transaction() as connection:
            ends = await connection.fetch(SELECT_ENDS, *arguments)
            failed = await connection.fetch(SELECT_FAILED, *arguments, MAX_ATTEMPTS)
            lines = [FailureLine(of="reservation", **dict(row)) for row in ends]
            lines += await _attempt_failures(connection, failed)
        lines.sort(key=lambda line: (-line.count, line.of, line.reason))
        return FailuresView(start_at=start, end_at=end, lines=tuple(lines))

    def _line(self, row: Row) -> UsageLine:
        hours = _hours_of_holding(row)
        return UsageLine(
            name=row["name"],
            gpu_hours=hours,
            used_hours=row["used_us"] / HOUR_US,
            idle_hours=row["idle_us"] / HOUR_US,
            unknown_hours=row["unknown_us"] / HOUR_US,
            energy_wh=row["energy_mj"] / MJ_PER_WH,
            cost=self._cost(row["model"], hours),
            previous_gpu_hours=0.0,
        )

    def _waste(self, row: Row) -> WasteLine | None:
        """Return the line of a wasteful reservation; None for others."""
        known_us = row["used_us"] + row["idle_us"]
        idle = 100.0 * row["idle_us"] / known_us if known_us else 0.0
        memory = None if row["memory_share"] is None else 100.0 * row["memory_share"]
        signs = []
        if idle >= IDLE_PERCENT:
            signs.append("idle")
        if memory is not None and memory < UNUSED_MEMORY_PERCENT:
            signs.append("memory")
        if not signs:
            return None
        return WasteLine(
            reservation_id=row["reservation_id"],
            namespace=row["namespace"],
            holder=row["holder"],
            pod=row["pod"],
            owner=row["owner"],
            kind=row["kind"],
            gpu_hours=_hours_of_holding(row),
            idle_hours=row["idle_us"] / HOUR_US,
            idle_percent=idle,
            memory_percent=memory,
            cost=self._cost(row["model"], row["idle_us"] / HOUR_US),
            because=tuple(signs),
        )

    def _cost(self, model: str, hours: float) -> float | None:
        price = price_of(model, self.prices)
        return None if price is None else price * hours


async def _hours(connection: Connection, start: datetime, end: datetime) -> Arguments:
    now = utcnow()
    running = start_of(now, HOUR)
    rows: list[Row] = []
    # The hour before is not computed for some seconds after its end.
    for hour in (running - HOUR, running):
        is_asked = start <= hour < end
        if is_asked and not await connection.fetchval(SELECT_IS_STORED, hour):
            rows += await compute(connection, hour, now)
    names = [name.strip() for name in COLUMNS.split(",")]
    return [start, end, *([row[name] for row in rows] for name in names)]


def _hours_of(query: ReportQuery) -> tuple[datetime, datetime]:
    if query.start_at >= query.end_at:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected an end after the start {query.start_at.isoformat()}, found"
            f" {query.end_at.isoformat()}",
            path="$.end_at",
        )
    try:
        return start_of(query.start_at, HOUR), end_of(query.end_at, HOUR)
    except OverflowError as error:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "expected times within the calendar", path="$.start_at"
        ) from error


def _hours_of_holding(row: Row) -> float:
    held_us: float = row["used_us"] + row["idle_us"] + row["unknown_us"]
    return held_us / HOUR_US


def _nothing(name: str) -> UsageLine:
    return UsageLine(
        name=name,
        gpu_hours=0.0,
        used_hours=0.0,
        idle_hours=0.0,
        unknown_hours=0.0,
        energy_wh=0.0,
        cost=0.0,
        previous_gpu_hours=0.0,
    )


def _against(line: UsageLine, limit: float | None, seconds: float) -> UsageLine:
    allowed = (limit or 0.0) * seconds / 3600
    percent = 100.0 * line.gpu_hours / allowed if allowed > 0 else None
    return msgspec.structs.replace(line, gpu_limit=limit, limit_percent=percent)


def _sum(line: UsageLine, other: UsageLine) -> UsageLine:
    """Add up lines of different models: a cost that is unknown for one is unknown for both."""
    is_priced = line.cost is not None and other.cost is not None
    return UsageLine(
        name=line.name,
        gpu_hours=line.gpu_hours + other.gpu_hours,
        used_hours=line.used_hours + other.used_hours,
        idle_hours=line.idle_hours + other.idle_hours,
        unknown_hours=line.unknown_hours + other.unknown_hours,
        energy_wh=line.energy_wh + other.energy_wh,
        cost=(line.cost or 0.0) + (other.cost or 0.0) if is_priced else None,
        previous_gpu_hours=line.previous_gpu_hours + other.previous_gpu_hours,
    )


async def _attempt_failures(
    connection: Connection, newest_first: Iterable[Row]
) -> list[FailureLine]:
    """Count failures by kind. Of what was deleted only the outcome is left."""
    line_by_reason: dict[str, FailureLine] = {}
    for row in newest_first:
        event = _decode_event(row["event"]) if row["event"] else None
        failure = event.failure if event is not None else None
        reason = failure.kind.value if failure is not None else row["outcome"]
        previous = line_by_reason.get(reason)
        if previous is not None:
            line_by_reason[reason] = msgspec.structs.replace(previous, count=previous.count + 1)
            continue
        line_by_reason[reason] = FailureLine(
            of="attempt",
            reason=reason,
            count=1,
            last_at=row["finished_at"],
            message=failure.message if failure is not None else "",
            memory=await trend_of(connection, event) if event is not None else (),
        )
    return list(line_by_reason.values())


def build_routes(reports: Reports) -> list[Route]:
    return [
        query_route(reports.usage, GetUsage),
        query_route(reports.waste, GetWaste),
        query_route(reports.waits, GetWaits),
        query_route(reports.failures, GetFailures),
    ]
