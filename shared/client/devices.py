"""What clients read from the list of GPUs: which node is meant.

An index counts within one node: this host if the platform knows it, else the only node there is,
else the `node_id` that has to be given.
"""

from collections.abc import Sequence

from schemas.gateway.views import GpuView
from shared.ids import host_node_id


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
