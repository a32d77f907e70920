"""What operators do with a node, and what its agent answers and does, as typed methods."""

from collections.abc import Mapping
from uuid import UUID

from schemas.errors import Accepted
from schemas.gateway import endpoints
from schemas.gateway.joining import NodeCredentials, NodeInvitation
from schemas.gateway.views import EventList
from schemas.gpus.available_gpus import AvailableGpus
from schemas.scheduler.namespaces import NamespaceList
from schemas.scheduler.views import DriftList
from schemas.telemetry.monitoring import AgentView, GpuDetail, MonitoringView
from shared.client.connection import GatewayConnection
from shared.ids import new_id


class NodeClient(GatewayConnection):
    """The part of `StewardClient` that is about one node."""

    async def agent(self, node_id: str) -> AgentView:
        """Return whether and how the node's GPUs can be read."""
        return await self.call(endpoints.GET_AGENT, node_id=node_id)

    async def node_events(
        self, node_id: str, *, before_id: int | None = None, limit: int = 100
    ) -> EventList:
        """List what happened on a node, newest first."""
        return await self.call(
            endpoints.LIST_NODE_EVENTS, node_id=node_id, before_id=before_id, limit=limit
        )

    async def available_gpus(
        self, node_id: str, *, min_memory_mb: int | None = None, max_utilization: float = 50.0
    ) -> AvailableGpus:
        """The node's GPUs of which a request would be granted any one now, best score first.

        Without `min_memory_mb` however much of their memory is free.
        """
        return await self.call(
            endpoints.LIST_AVAILABLE_GPUS,
            node_id=node_id,
            min_memory_mb=min_memory_mb,
            max_utilization=max_utilization,
        )

    async def gpu(self, node_id: str, index: int, *, use_cache: bool = True) -> GpuDetail:
        """Return every fact and the newest reading of one GPU."""
        return await self.call(endpoints.GET_GPU, node_id=node_id, index=index, use_cache=use_cache)

    async def start_monitoring(
        self,
        node_id: str,
        *,
        interval_seconds: float = 1.0,
        max_seconds: float = 3600.0,
        monitoring_id: UUID | None = None,
    ) -> MonitoringView:
        """Watch a node's GPUs until `stop_monitoring`."""
        document = {
            "monitoring_id": monitoring_id or new_id(),
            "interval_seconds": interval_seconds,
            "max_seconds": max_seconds,
        }
        return await self.call(endpoints.START_MONITORING, document, node_id=node_id)

    async def stop_monitoring(self, node_id: str, monitoring_id: UUID) -> MonitoringView:
        """End it; what was seen. Answered for ten minutes."""
        return await self.call(
            endpoints.STOP_MONITORING, node_id=node_id, monitoring_id=monitoring_id
        )

    async def set_burst(
        self,
        node_id: str,
        *,
        duration_seconds: float,
        interval_seconds: float = 0.1,
        experiment_id: UUID | None = None,
    ) -> Accepted:
        """Have a node sample faster for a while."""
        document = {
            "interval_seconds": interval_seconds,
            "duration_seconds": duration_seconds,
            "experiment_id": experiment_id,
        }
        return await self.call(endpoints.SET_BURST, document, node_id=node_id)

    async def set_power_limit(
        self,
        node_id: str,
        device_uuid: str,
        watts: float | None,
        *,
        reservation_id: UUID | None = None,
        sm_clock_mhz: int | None = None,
    ) -> Accepted:
        """Cap a GPU's power, lock its clock, or both, until its reservation ends.

        None for both takes both back.
        """
        document = {
            "device_uuid": device_uuid,
            "power_limit_w": watts,
            "reservation_id": reservation_id,
            "sm_clock_mhz": sm_clock_mhz,
        }
        return await self.call(endpoints.SET_POWER_LIMIT, document, node_id=node_id)

    async def cordon(
        self,
        node_id: str,
        device_uuid: str | None = None,
        *,
        reason: str = "",
        set_by: str = "",
    ) -> None:
        """Have nothing new granted on a device, or on the whole node."""
        document = {"device_uuid": device_uuid, "reason": reason, "set_by": set_by}
        await self.call(endpoints.CORDON, document, node_id=node_id)

    async def uncordon(
        self,
        node_id: str,
        device_uuid: str | None = None,
        *,
        confirm_stopped: bool = False,
        reason: str = "",
    ) -> None:
        """Take it back into service; `confirm_stopped` vouches that nothing old runs there."""
        document = {
            "device_uuid": device_uuid,
            "confirm_stopped": confirm_stopped,
            "reason": reason,
        }
        await self.call(endpoints.UNCORDON, document, node_id=node_id)

    async def drain(self, node_id: str, *, reason: str = "", set_by: str = "") -> None:
        """Cordon a node and end its reservations."""
        document = {"reason": reason, "set_by": set_by}
        await self.call(endpoints.DRAIN, document, node_id=node_id)

    async def admit_node(self, node_id: str) -> None:
        """Have a node that is new granted on from now on."""
        await self.call(endpoints.ADMIT_NODE, node_id=node_id)

    async def invite_node(self, node_id: str, api_url: str) -> NodeInvitation:
        """Make the line with which a new server joins by itself, once; it asks at `api_url`."""
        return await self.call(endpoints.INVITE_NODE, {"api_url": api_url}, node_id=node_id)

    async def join(self, node_id: str, code: str) -> NodeCredentials:
        """Show the code of an invitation for this node's credentials of the bus."""
        return await self.call(endpoints.JOIN, {"node_id": node_id, "code": code})

    async def label_node(self, node_id: str, labels: Mapping[str, str | None]) -> None:
        """Set labels of a node, which win over its agent's; None takes one away."""
        await self.call(endpoints.LABEL_NODE, {"labels": dict(labels)}, node_id=node_id)

    async def namespaces(self) -> NamespaceList:
        """List namespaces with the GPUs that they hold and their quota."""
        return await self.call(endpoints.LIST_NAMESPACES)

    async def set_namespace(
        self,
        namespace: str,
        *,
        gpu_limit: float | None,
        guaranteed_gpus: float = 0.0,
        weight: int = 1,
    ) -> None:
        """Set what a namespace may hold at once, and what it is due; None is no limit."""
        document = {"gpu_limit": gpu_limit, "guaranteed_gpus": guaranteed_gpus, "weight": weight}
        await self.call(endpoints.SET_NAMESPACE, document, namespace=namespace)

    async def remove_node(self, node_id: str, *, end_held: bool = False, reason: str = "") -> None:
        """Forget a node that has left; `end_held` vouches that nothing runs there any more."""
        await self.call(
            endpoints.REMOVE_NODE, node_id=node_id, end_held=end_held, reason=reason or None
        )

    async def drifts(self, node_id: str | None = None, *, ended: bool = False) -> DriftList:
        """List drifts, oldest first: where reserved, running and physically used GPUs disagree."""
        drifts = await self.list_all(
            endpoints.LIST_DRIFTS, lambda page: page.drifts, node_id=node_id, ended=ended
        )
        return DriftList(drifts=drifts)
