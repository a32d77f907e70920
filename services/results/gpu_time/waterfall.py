"""Where the GPU time of an experiment or a task went, step by step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from schemas.base import HOUR_SECONDS
from schemas.errors import ErrorCode
from schemas.executor.attempts import AttemptPhase, PhaseTiming
from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_request import WHOLE
from schemas.results.prices import GetGpuPrices, GpuPrices
from schemas.results.reports import GetWaterfall, WaterfallStep, WaterfallView
from services.results.domain.device_parts import hundredths_of
from shared.errors import RefusedError
from shared.gpu.prices import price_of
from shared.messaging.bus import Route, query_route
from shared.postgres.database import Database, Row

WAITING: Final = "waiting"
IDLE_HELD: Final = "idle_held"
STEPS: Final = (WAITING, *(phase.value for phase in AttemptPhase), IDLE_HELD)

SELECT_EVENTS: Final = """
SELECT event FROM attempt WHERE (task_id = $1 OR experiment_id = $1) AND event <> ''
"""
SELECT_WAITED: Final = """
SELECT reservation_id, coalesce(waited_seconds, 0) AS seconds FROM reservation
WHERE reservation_id = ANY ($1)
"""
SELECT_HELD: Final = """
SELECT reservation_id, node_id, device_uuid, granted_at, nullif(ended_at, 'infinity') AS ended_at
FROM device_holding JOIN device USING (device_no)
WHERE reservation_id = ANY ($1) AND granted_at IS NOT NULL
"""


class Attempt(Struct, frozen=True, kw_only=True):
    """What of `AttemptFinished` counts here."""

    reservation_id: UUID
    devices: tuple[DeviceGrant, ...]
    phases: tuple[PhaseTiming, ...] = ()
    finished_at: datetime


_decode = msgspec.msgpack.Decoder(Attempt).decode


@dataclass(slots=True)
class _Sum:
    seconds: float = 0.0
    gpu_seconds: float = 0.0
    cost: float | None = 0.0


@dataclass(slots=True)
class Steps:
    """Sums over attempts. `prices` are of an hour of a GPU."""

    prices: Mapping[str, float]
    sums: dict[str, _Sum] = field(default_factory=lambda: {step: _Sum() for step in STEPS})

    def add(self, attempt: Attempt, waited_seconds: float, holdings: Sequence[Row]) -> None:
        """Add an attempt; no `holdings` of its reservation: not known, and nothing was idle."""
        self.sums[WAITING].seconds += waited_seconds
        busy = 0.0
        for phase in attempt.phases:
            busy += phase.duration_seconds
            self._add(phase.phase.value, attempt, [phase.duration_seconds] * len(attempt.devices))
            self.sums[phase.phase.value].seconds += phase.duration_seconds
        of_device = {(row["node_id"], row["device_uuid"]): row for row in holdings}
        idle = []
        for device in attempt.devices:
            row = of_device.get((device.node_id, device.uuid))
            ended_at = (row["ended_at"] or attempt.finished_at) if row is not None else None
            seconds = (ended_at - row["granted_at"]).total_seconds() if row and ended_at else 0.0
            idle.append(max(0.0, seconds - busy))
        self._add(IDLE_HELD, attempt, idle)
        self.sums[IDLE_HELD].seconds += max(idle, default=0.0)

    def _add(self, step: str, attempt: Attempt, seconds: Iterable[float]) -> None:
        step_sum = self.sums[step]
        for device, held_seconds in zip(attempt.devices, seconds, strict=True):
            gpu_seconds = held_seconds * hundredths_of(device) / WHOLE
            price = price_of(device.name, self.prices)
            step_sum.gpu_seconds += gpu_seconds
            if price is None or step_sum.cost is None:
                step_sum.cost = None
            else:
                step_sum.cost += gpu_seconds * price / HOUR_SECONDS


@dataclass(frozen=True, slots=True)
class Waterfalls:
    database: Database
    prices: Mapping[str, float]
    currency: str

    async def waterfall(self, query: GetWaterfall) -> WaterfallView:
        """Return the GPU time of all attempts that have finished, step by step."""
        async with self.database.transaction() as connection:
            rows = await connection.fetch(SELECT_EVENTS, query.subject_id)
            attempts = [_decode(row["event"]) for row in rows]
            reservations = list({attempt.reservation_id for attempt in attempts})
            waited = await connection.fetch(SELECT_WAITED, reservations)
            holdings = await connection.fetch(SELECT_HELD, reservations)
        if not attempts:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"no finished attempt of a task or experiment {query.subject_id}",
                path="$.subject_id",
            )
        seconds = {row["reservation_id"]: row["seconds"] for row in waited}
        steps = Steps(self.prices)
        for attempt in attempts:
            own_rows = [row for row in holdings if row["reservation_id"] == attempt.reservation_id]
            steps.add(attempt, seconds.get(attempt.reservation_id, 0.0), own_rows)
        return WaterfallView(
            subject_id=query.subject_id,
            attempts=len(attempts),
            steps=tuple(
                WaterfallStep(step=step, seconds=s.seconds, gpu_seconds=s.gpu_seconds, cost=s.cost)
                for step, s in steps.sums.items()
            ),
            currency=self.currency,
        )

    async def gpu_prices(self, _: GetGpuPrices) -> GpuPrices:
        return GpuPrices(hourly=dict(self.prices), currency=self.currency)


def build_routes(waterfalls: Waterfalls) -> list[Route]:
    return [
        query_route(waterfalls.waterfall, GetWaterfall),
        query_route(waterfalls.gpu_prices, GetGpuPrices),
    ]
