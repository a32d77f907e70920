"""What clients read from the list of GPUs: which node is meant, what is free, what goes first.

An index counts within one node: this host if the platform knows it, else the only node there is,
else the `node_id` that has to be given.
"""

from collections.abc import Sequence

from schemas.gateway import GpuView
from schemas.gpu_request import DEPENDS_ON_REQUEST
from schemas.scheduler import DeviceState
from schemas.telemetry import HealthState
from shared.ids import host_node_id


def is_free(view: GpuView, min_memory_mb: int | None, max_utilization: float) -> bool:
    """Whether this device is healthy, unheld, and known to be idle enough."""
    return (
        view.health is HealthState.OK
        and view.fresh
        and _is_grantable(view)
        and view.memory_free_mb is not None
        and view.memory_free_mb >= _needed_memory_mb(view, min_memory_mb)
        and view.utilization_percent is not None
        and view.utilization_percent <= max_utilization
    )


def _is_grantable(view: GpuView) -> bool:
    """Whether some request might get it; None is a device that the scheduler does not know."""
    if view.state is DeviceState.UNAVAILABLE:
        return all(reason.code in DEPENDS_ON_REQUEST for reason in view.reasons)
    return view.state in {None, DeviceState.FREE}


def of_one_node(views: Sequence[GpuView], node_id: str | None) -> list[GpuView]:
    """The GPUs of the node whose indices are meant."""
    node = node_id or node_of_indices(sorted({view.node_id for view in views}))
    return [view for view in views if view.node_id == node]


def node_of_indices(nodes: Sequence[str]) -> str | None:
    """This host, else the only node; None if there is none. Raises ValueError if it is unclear."""
    here = host_node_id()
    if here in nodes:
        return here
    if len(nodes) > 1:
        raise ValueError(f"expected node_id to be one of {', '.join(nodes)}")
    return nodes[0] if nodes else None


def _needed_memory_mb(view: GpuView, min_memory_mb: int | None) -> float:
    if min_memory_mb is not None:
        return min_memory_mb
    # What the scheduler asks for when a request does not say.
    return view.memory_total_mb / 2 if view.memory_total_mb is not None else float("inf")


def by_score(view: GpuView) -> tuple[float, int]:
    """Sorts the best GPU first, of equal ones the one with the lower index."""
    return (-(view.availability_score or 0.0), view.index)
