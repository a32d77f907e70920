"""CPUs, memory, storage and pods of a cluster's node: what is left, and what a request needs."""

import math
from collections.abc import Iterator
from typing import Final

from schemas.cluster.nodes import ClusterNode, HostAmounts
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest

NOTHING: Final = HostAmounts()
_MILLI: Final = 1000


def host_needs(request: GpuRequest) -> HostAmounts:
    """Return what the request's pod asks of its node beside GPUs."""
    cluster = request.cluster or ClusterRequest()
    cpus = request.cpu_count if cluster.pod_cpu_count is None else cluster.pod_cpu_count
    memory_mb = request.host_memory_mb if cluster.pod_memory_mb is None else cluster.pod_memory_mb
    return HostAmounts(
        cpu_milli=math.ceil(round((cpus or 0.0) * _MILLI, 6)),
        memory_mb=memory_mb or 0,
        ephemeral_storage_mb=cluster.pod_ephemeral_storage_mb or 0,
        pods=1,
    )


def free_host(node: ClusterNode, promised: HostAmounts) -> HostAmounts | None:
    """Return what bound pods and promised ones leave of a node; None where that is not known."""
    has, requested = node.allocatable_host, node.requested_host
    if has is None:
        return None
    return HostAmounts(
        cpu_milli=max(0, has.cpu_milli - requested.cpu_milli - promised.cpu_milli),
        memory_mb=max(0, has.memory_mb - requested.memory_mb - promised.memory_mb),
        ephemeral_storage_mb=max(
            0,
            has.ephemeral_storage_mb
            - requested.ephemeral_storage_mb
            - promised.ephemeral_storage_mb,
        ),
        pods=max(0, has.pods - requested.pods - promised.pods),
    )


def has_room(node: ClusterNode, promised: HostAmounts, needs: HostAmounts) -> bool:
    """Tell whether a pod of these needs would fit; what is not known excludes no node.

    A node that tells none of an amount, as an older kubelet does of storage, is not held to it.
    """
    has, requested = node.allocatable_host, node.requested_host
    if has is None:
        return True
    return (
        _fits(has.cpu_milli, requested.cpu_milli + promised.cpu_milli, needs.cpu_milli)
        and _fits(has.memory_mb, requested.memory_mb + promised.memory_mb, needs.memory_mb)
        and _fits(
            has.ephemeral_storage_mb,
            requested.ephemeral_storage_mb + promised.ephemeral_storage_mb,
            needs.ephemeral_storage_mb,
        )
        and _fits(has.pods, requested.pods + promised.pods, needs.pods)
    )


def add_amounts(first: HostAmounts, second: HostAmounts) -> HostAmounts:
    """Return both together."""
    return HostAmounts(
        cpu_milli=first.cpu_milli + second.cpu_milli,
        memory_mb=first.memory_mb + second.memory_mb,
        ephemeral_storage_mb=first.ephemeral_storage_mb + second.ephemeral_storage_mb,
        pods=first.pods + second.pods,
    )


def room_words(needs: HostAmounts) -> str:
    """Return ` with room for 8 CPUs and 64000 MB of memory`; "" where nothing is asked for."""
    needs_words = list(_words(needs))
    if not needs_words:
        return ""
    return f" with room for {' and '.join(', '.join(needs_words).rsplit(', ', 1))}"


def _words(needs: HostAmounts) -> Iterator[str]:
    if needs.cpu_milli:
        cpus = needs.cpu_milli / _MILLI
        yield f"{cpus:g} CPU{'' if cpus == 1 else 's'}"
    if needs.memory_mb:
        yield f"{needs.memory_mb} MB of memory"
    if needs.ephemeral_storage_mb:
        yield f"{needs.ephemeral_storage_mb} MB of ephemeral storage"


def _fits(has: int, in_use: int, needed: int) -> bool:
    return not needed or not has or has - in_use >= needed
