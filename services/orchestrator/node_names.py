"""Nodes as people name them in a task file, as ids."""

from msgspec.structs import replace

from schemas.task.task_file import GpuPreferences
from shared.ids import node_token


def with_node_ids(gpus: GpuPreferences | None) -> GpuPreferences | None:
    """Return the preferences with the ids of the nodes they name; an id stands for itself."""
    if gpus is None or not gpus.nodes:
        return gpus
    return replace(gpus, nodes=tuple(map(node_token, gpus.nodes)))
