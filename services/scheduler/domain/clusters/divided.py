"""GPUs of a cluster's nodes that are not given out whole: how they are told, and kept off."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from schemas.cluster.nodes import ClusterNode, NodeGpus
from services.scheduler.domain.clusters.node_gpus import WHOLE_GPUS, NodeLoad, is_meant
from shared.accelerator_rules.modes import GPU_RESOURCE, SHARED_GPU_RESOURCE
from shared.accelerator_rules.node_labels import (
    DIVIDING_LABELS,
    IF_WHOLE,
    is_divided,
    says_whole,
)

_TOLD: Final = 2  # nodes in a sentence


def find_divided_gpus(
    node: ClusterNode, resource: str | None = None, *, in_parts: bool = False
) -> NodeGpus | None:
    """Return what the node counts under this name although it is not what a request for whole GPUs,
    or for parts, is to have; without a name of what NVIDIA's GPUs are counted by.
    """
    names = (resource,) if resource is not None else (*WHOLE_GPUS, SHARED_GPU_RESOURCE)
    return next(
        (
            gpus
            for gpus in node.gpus
            if gpus.resource in names and gpus.note and not is_meant(gpus, in_parts=in_parts)
        ),
        None,
    )


def doubt_units(node: ClusterNode, load: NodeLoad) -> ClusterNode:
    """Return the node with its whole GPUs refused where it gives out at least twice as many as it
    has: a plugin shares them, and no label says so.
    """
    boards = load.boards
    if boards is None or says_whole(node.labels):
        return node
    if not any(_is_overcounted(gpus, boards) for gpus in node.gpus):
        return node
    return replace(
        node,
        gpus=tuple(
            replace(
                gpus,
                capacity=boards,
                allocatable=0,
                is_refused=True,
                note=f"{gpus.allocatable} {gpus.resource} on {boards} GPUs that are read: no label"
                f" says that they are shared; {IF_WHOLE}",
            )
            if _is_overcounted(gpus, boards)
            else gpus
            for gpus in node.gpus
        ),
    )


def _is_overcounted(gpus: NodeGpus, boards: int) -> bool:
    return gpus.resource == GPU_RESOURCE and is_meant(gpus) and gpus.allocatable >= 2 * boards


def division_text(nodes: Iterable[ClusterNode], resource: str | None, *, in_parts: bool) -> str:
    """Return `; NODE: what says that its GPUs are divided` of the first nodes, or nothing."""
    notes = [
        f"{node.name}: {gpus.note}"
        for node in sorted(nodes, key=lambda node: node.name)
        if (gpus := find_divided_gpus(node, resource, in_parts=in_parts)) is not None
    ]
    listed_notes, untold = notes[:_TOLD], len(notes) - _TOLD
    if untold > 0:
        listed_notes.append(f"and {untold} more {'node' if untold == 1 else 'nodes'}")
    return "".join(f"; {text}" for text in listed_notes)


def list_avoided_hostnames(nodes: Iterable[ClusterNode], resource: str | None) -> tuple[str, ...]:
    """Return nodes that Kubernetes would take a unit of for a whole GPU, and whose labels do not
    keep our pods off.
    """
    resource = resource or GPU_RESOURCE
    return tuple(
        sorted(
            node.hostname
            for node in nodes
            if node.hostname is not None
            and find_divided_gpus(node, resource) is not None
            and not (
                resource == GPU_RESOURCE
                and any(is_divided(node.labels, key) for key in DIVIDING_LABELS)
            )
        )
    )
