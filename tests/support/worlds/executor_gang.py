"""Executors of several nodes on one host, and attempts over all of them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from schemas.executor.attempts import StartExperiment
from schemas.executor.ranks import GetRank, RankState, RankView
from schemas.gpus.device_grant import DeviceGrant
from services.executor.app import create_service
from services.executor.host.processes import WorkloadLabel, running_workload
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError, UnavailableError
from shared.testing import eventually
from tests.support.worlds.executor import (
    Scheduler,
    make_endless_start,
    make_settings,
    make_start,
    scheduling,
)

LEADER = "node-1"
MEMBER = "node-2"
NODES = (LEADER, MEMBER)


def gang_devices(*nodes: str) -> tuple[DeviceGrant, ...]:
    """Two devices of each, with the uuids that simulated ones have on every node."""
    return tuple(
        DeviceGrant(node_id=node, uuid=f"GPU-{index}", index=index, name="S", simulated=True)
        for node in nodes
        for index in range(2)
    )


def make_gang_start(
    *nodes: str,
    endless: bool = False,
    parameters: dict[str, Any] | None = None,
    **overrides: Any,  # any field
) -> StartExperiment:
    make = make_endless_start if endless else make_start
    start = make(devices=gang_devices(*(nodes or NODES)), **overrides)
    engine = replace(start.engine, parameters={**start.engine.parameters, **(parameters or {})})
    return replace(start, engine=engine)


def gang_settings(
    nats_url: str, tmp_path: Path, *nodes: str, **overrides: Any
) -> tuple[ExecutorSettings, ...]:  # any field
    """One installation, a data directory for each node."""
    first = make_settings(nats_url, tmp_path)
    same = {"installation_id": first.installation_id, **overrides}
    return tuple(
        make_settings(nats_url, tmp_path / node, node_id=node, **same) for node in nodes or NODES
    )


@dataclass(frozen=True, slots=True)
class Gang:
    """What a test asks the executors of its nodes."""

    scheduler: Scheduler

    def pids(self, start: StartExperiment, node_id: str) -> list[int]:
        """What runs of the attempt on one node."""
        return pids_on(node_id, start.reservation_id, self.scheduler.settings.installation_id)

    async def rank(self, start: StartExperiment, node_id: str) -> RankView | None:
        """One node's part; None if its executor does not answer, or knows of none."""
        query = GetRank(executor_id=node_id, attempt_id=start.attempt_id)
        try:
            return await self.scheduler.bus.query(query, RankView, timeout_seconds=1.0)
        except (RefusedError, UnavailableError):
            return None

    async def until(self, start: StartExperiment, node_id: str, *states: RankState) -> RankView:
        """Wait until a node's part is in one of these states."""
        found: list[RankView] = []

        async def is_there() -> bool:
            view = await self.rank(start, node_id)
            found[:] = [view] if view is not None and view.state in states else []
            return bool(found)

        what = f"{node_id} {' or '.join(states)}"
        await eventually(is_there, every_seconds=0.05, what=what)
        return found[0]

    async def state(self, start: StartExperiment, node_id: str) -> RankState | None:
        view = await self.rank(start, node_id)
        return view.state if view is not None else None


def pids_on(node_id: str, reservation_id: UUID, installation_id: str) -> list[int]:
    return running_workload(
        WorkloadLabel(
            reservation_id=reservation_id, installation_id=installation_id, node_id=node_id
        )
    )


@asynccontextmanager
async def gang(
    nats_url: str,
    tmp_path: Path,
    *nodes: str,
    of_member: dict[str, Any] | None = None,
    **answers: Any,  # of the scheduler
) -> AsyncIterator[Gang]:
    """The executors of the nodes in this process, and their scheduler."""
    first, *others = gang_settings(nats_url, tmp_path, *nodes)
    all_settings = (first, *(replace(each, **(of_member or {})) for each in others))
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(scheduling(all_settings[0], **answers))
        for each in all_settings:
            await stack.enter_async_context(create_service(each).running())
        yield Gang(scheduler)
