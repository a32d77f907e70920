"""What reservations hold of a cluster's nodes that its pods do not ask for yet."""

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.cluster.nodes import ClusterNode, HostAmounts
from services.scheduler.domain.clusters.host_room import NOTHING, add_amounts
from services.scheduler.domain.clusters.node_gpus import InFlight, bound_of
from services.scheduler.domain.clusters.parts import PartNeed, PartsInFlight

NO_GPUS: Final = InFlight()
NO_PARTS: Final = PartsInFlight()

Place = tuple[NodeId, str, str]  # cluster, node, resource


class ClusterHolding(Struct, frozen=True, kw_only=True):
    """What a reservation holds of a cluster until it is given back: `gpus`, or with `part` a part
    of one of them, and `host` beside.

    Without a `node_name` the cluster's own scheduler chooses.
    """

    reservation_id: UUID
    cluster_id: NodeId
    node_name: str | None
    resource: str | None
    gpus: int
    granted_at: datetime
    host: HostAmounts = NOTHING
    part: PartNeed | None = None


class HeldOfNodes:
    """Holdings summed up by node and resource, less what bound pods ask for themselves."""

    def __init__(self, settled_by: datetime) -> None:
        self._settled_by = settled_by
        self._gpus: dict[Place, InFlight] = {}
        self._parts: dict[Place, PartsInFlight] = {}
        self._host: dict[tuple[NodeId, str], HostAmounts] = {}

    def add(self, holding: ClusterHolding, node: ClusterNode | None) -> None:
        """Count a holding on a chosen node, of which `node` is what the cluster tells."""
        if holding.node_name is None or holding.resource is None:
            return
        place = (holding.cluster_id, holding.node_name, holding.resource)
        unbound = _unbound_gpus(holding, node)
        is_settling = holding.granted_at > self._settled_by
        gpus_before = self.gpus(place)
        self._gpus[place] = InFlight(
            gpus_before.unbound + unbound,
            gpus_before.unsettled + (holding.gpus if is_settling else unbound),
        )
        if not unbound:  # its pod is there, and counted with all that it asks for
            return
        part, parts = holding.part, self.parts(place)
        if part is None:
            self._parts[place] = parts._replace(whole_gpus=parts.whole_gpus + unbound)
        else:
            self._parts[place] = parts.with_part(part, unbound)
        self._host[place[:2]] = add_amounts(self.host(*place[:2]), holding.host)

    def gpus(self, place: Place) -> InFlight:
        """Return what is held of a node's GPUs."""
        return self._gpus.get(place, NO_GPUS)

    def parts(self, place: Place) -> PartsInFlight:
        """Return what is held of a node's parts of GPUs."""
        return self._parts.get(place, NO_PARTS)

    def host(self, cluster_id: NodeId, node_name: str) -> HostAmounts:
        """Return what is held of a node beside GPUs."""
        return self._host.get((cluster_id, node_name), NOTHING)


def _unbound_gpus(holding: ClusterHolding, node: ClusterNode | None) -> int:
    bound = bound_of(node, holding.resource or "", holding.reservation_id)
    if holding.part is None:
        return max(0, holding.gpus - bound.gpus)
    return holding.gpus if bound.units < holding.part.units else 0
