"""The leader's part in dividing GPUs: has agents make the MIG instances that requests wait for."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from schemas.gpus.mig import ChangeMig, MigLayout
from schemas.scheduler.devices import CordonCause
from services.scheduler.domain.placement.mig_geometry import Division, divisions
from services.scheduler.leader.query_engine import QueryEngine
from services.scheduler.ledger.leader_election import Leadership, LeadershipLost
from services.scheduler.ledger.out_of_service import NewCordon, set_cordon
from services.scheduler.ledger.rows import mig_rows
from shared.ids import new_id
from shared.logging import log
from shared.postgres.commands import send_later
from shared.postgres.database import Database

POLL_SECONDS: Final = 1.0
PAUSE_RATIO: Final = 4  # for each second of work


@dataclass(frozen=True, slots=True)
class MigChanges:
    """Requests changes while this process leads. One is over when the node's inventory shows it.

    Until then the instances that it removes are cordoned, and its command is repeated.
    """

    database: Database
    leadership: Leadership
    query_engine: QueryEngine

    async def run(self) -> None:
        """Request until cancelled. Raises UnavailableError while Postgres is away."""
        pause = POLL_SECONDS
        while True:
            await asyncio.sleep(pause)
            started_at = time.monotonic()
            if self.leadership.term is not None:
                for division in await self._due():
                    await self._request(division)
            pause = max(POLL_SECONDS, PAUSE_RATIO * (time.monotonic() - started_at))

    async def _due(self) -> list[Division]:
        async with self.database.statements() as connection:
            if not await mig_rows.is_any_divisible(connection):
                return []
            recent = await mig_rows.recent(connection)
        async with self.query_engine.moment() as moment:
            engine = moment.engine
            requests = [
                entry.request
                for entry in engine.waiting
                if entry.request.mig_profile is not None and not engine.is_over_quota(entry)
            ]
            fleet = engine.fleet if requests else None
        if fleet is None:
            return []
        under_way = {change.device_uuid: change.profile for change in recent if change.is_open}
        refused = {change.device_uuid for change in recent if not change.is_open}
        # A third of a second for 800 GPUs and a thousand requests: not in the way of decisions.
        return await asyncio.to_thread(divisions, requests, fleet, under_way, refused)

    async def _request(self, division: Division) -> None:
        """Send the division, unless what it was decided on has changed: then it is decided
        again.
        """
        gpu, layout = division.gpu, division.gpu.mig_layout or MigLayout()
        removed = division.removed_uuids
        try:
            async with self.database.transaction() as connection:
                await self.leadership.check(connection)
                if not await mig_rows.lock(connection, gpu.node_id, gpu.uuid, layout, removed):
                    return
                number = await mig_rows.insert(
                    connection,
                    gpu.node_id,
                    gpu.uuid,
                    layout.change,
                    (division.profile, division.start),
                )
                for uuid in sorted(removed):
                    reason = f"its slices are for a {division.profile}"
                    cordon = NewCordon(device_uuid=uuid, reason=reason, cause=CordonCause.MIG)
                    await set_cordon(connection, gpu.node_id, cordon)
                await send_later(
                    connection,
                    ChangeMig(
                        command_id=new_id(),
                        node_id=gpu.node_id,
                        device_uuid=gpu.uuid,
                        number=number,
                        profile=division.profile,
                        start=division.start,
                        remove_starts=tuple(instance.start for instance in division.remove),
                    ),
                )
        except LeadershipLost:
            log.warning("leadership_lost")
            return
        log.info(
            "mig_change_requested",
            node_id=gpu.node_id,
            device=gpu.uuid,
            number=number,
            profile=division.profile,
            start=division.start,
            removed=sorted(removed),
        )
