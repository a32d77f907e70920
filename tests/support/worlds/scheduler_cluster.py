"""A Kubernetes cluster as its service tells of it: nodes, what bound pods hold, and an executor."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from nats.aio.msg import Msg

from schemas.base import pattern_for
from schemas.cluster.nodes import (
    ClusterChanged,
    ClusterNode,
    ClusterView,
    GetCluster,
    GpuSupply,
    NodeGpus,
)
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.bus import Bus
from shared.messaging.codec import encode
from shared.waiting import cancel_and_wait
from tests.support.worlds.scheduler import World


def make_cluster_node(
    name: str,
    gpus: int = 8,
    *,
    requested: int = 0,
    by_reservation: Mapping[UUID, int] | None = None,
    allocatable: int | None = None,
    **more: Any,
) -> ClusterNode:
    offered = NodeGpus(
        resource=more.pop("resource", "nvidia.com/gpu"),
        supply=more.pop("supply", GpuSupply.DEVICE_PLUGIN),
        capacity=gpus,
        allocatable=gpus if allocatable is None else allocatable,
        requested=requested,
        by_reservation=dict(by_reservation or {}),
    )
    return ClusterNode(
        **{
            "name": name,
            "node_id": name.replace(".", "-"),
            "hostname": name,
            "is_ready": True,
            "is_cordoned": False,
            "gpus": (offered,),
            **more,
        }
    )


def of_cluster(gpus: int = 1, cluster_id: str | None = None, **more: Any) -> GpuRequest:
    """A request for GPUs of a cluster."""
    request = {key: more.pop(key) for key in list(more) if key in GpuRequest.__struct_fields__}
    return GpuRequest(gpus=gpus, cluster=ClusterRequest(cluster_id=cluster_id, **more), **request)


@dataclass(slots=True)
class FakeCluster:
    """Answers for its nodes by name, and tells of every change; pages hold `page` nodes."""

    bus: Bus
    cluster_id: str
    nodes: dict[str, ClusterNode] = field(default_factory=dict)
    boot_id: UUID = field(default_factory=new_id)
    revision: int = 0
    is_complete: bool = True
    page: int = 100
    asked: int = 0

    async def answer(self) -> None:
        async def on_query(raw: Msg) -> None:
            query = msgspec.msgpack.decode(raw.data, type=GetCluster)
            self.asked += 1
            names = [name for name in sorted(self.nodes) if name > (query.after_name or "")]
            shown, more = names[: self.page], names[self.page :]
            view = ClusterView(
                cluster_id=self.cluster_id,
                boot_id=self.boot_id,
                revision=self.revision,
                nodes=tuple(self.nodes[name] for name in shown),
                is_complete=self.is_complete,
                next_after_name=shown[-1] if more else None,
            )
            await raw.respond(encode(view))

        await self.bus.nats.subscribe(pattern_for(GetCluster, self.cluster_id), cb=on_query)
        await self.bus.nats.flush()

    async def tell(self, *nodes: ClusterNode, removed: tuple[str, ...] = ()) -> None:
        """These nodes have changed, or nothing has."""
        self.nodes |= {node.name: node for node in nodes}
        for name in removed:
            self.nodes.pop(name, None)
        self.revision += 1
        await self.bus.publish_live(
            ClusterChanged(
                observed_at=utcnow(),
                cluster_id=self.cluster_id,
                boot_id=self.boot_id,
                revision=self.revision,
                nodes=nodes,
                removed=removed,
                is_complete=self.is_complete,
            )
        )

    async def bind(self, reservation_id: UUID, node_name: str, gpus: int) -> None:
        """A pod of the reservation is bound there; with 0 GPUs it is gone."""
        node = self.nodes[node_name]
        (offered,) = node.gpus
        before = offered.by_reservation.get(reservation_id, 0)
        held = {**offered.by_reservation, reservation_id: gpus}
        bound = replace(
            offered,
            requested=offered.requested - before + gpus,
            by_reservation={key: count for key, count in held.items() if count},
        )
        await self.tell(replace(node, gpus=(bound,)))


@asynccontextmanager
async def reporting(
    around: World, cluster_id: str = "k8s", nodes: int = 2
) -> AsyncIterator[FakeCluster]:
    """A cluster of nodes with 8 GPUs each that reports every 0.2 s."""
    cluster = FakeCluster(around.bus, cluster_id, page=3)
    cluster.nodes = {f"gpu.{n}": make_cluster_node(f"gpu.{n}") for n in range(nodes)}
    await cluster.answer()

    async def keep_reporting() -> None:
        while True:
            await cluster.tell()
            await asyncio.sleep(0.2)

    task = around.tasks.create_task(keep_reporting())
    try:
        yield cluster
    finally:
        await cancel_and_wait(task)
