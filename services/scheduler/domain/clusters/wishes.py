"""Which nodes of a cluster a request may have, and which of them it likes."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from schemas.cluster.nodes import ClusterNode
from schemas.gpus.gpu_request import (
    ClusterRequest,
    GpuRequest,
    Selector,
    SelectorKey,
    SelectorOperator,
)
from services.scheduler.domain.placement.selectors import compare
from shared.accelerator_rules.compute_capability import (
    capability,
    capability_by_name,
    capability_text,
)
from shared.gpu.model_names import matches_model
from shared.gpu.selectors import version

# What of a selector a cluster's node can be held against: of its devices nothing is named.
KEYS: Final = frozenset(
    {
        SelectorKey.NODE,
        SelectorKey.GPU_MODEL,
        SelectorKey.COMPUTE_CAPABILITY,
        SelectorKey.CUDA_DRIVER_VERSION,
        SelectorKey.LABEL,
    }
)
DRIVER_AT_LEAST: Final = (SelectorKey.CUDA_DRIVER_VERSION, SelectorOperator.AT_LEAST)


def restricts(request: GpuRequest, target: ClusterRequest) -> bool:
    """Tell whether the request says which nodes may be taken, so that Kubernetes is not to choose
    among all of them. A driver's CUDA does not: an image that states it is bound to labels.
    """
    return bool(target.node_names or request.gpu_models or request.same_model) or any(
        (selector.key, selector.operator) != DRIVER_AT_LEAST for selector in request.require
    )


def has_wishes(request: GpuRequest, target: ClusterRequest) -> bool:
    """Tell whether `suits` could exclude any node."""
    return any(
        (
            *(target.node_names, target.avoided_node_names),
            *(request.gpu_models, request.min_memory_mb, request.min_compute_capability),
            *(request.require, request.same_model),
        )
    )


def suits(node: ClusterNode, request: GpuRequest, target: ClusterRequest) -> bool:
    """Tell whether the request may have this node. Of its GPUs, what is unknown excludes no node
    but the requested model and what `require` names.
    """
    names = target.node_names
    if names and node.name not in names and node.node_id not in names:
        return False
    if node.name in target.avoided_node_names:
        return False
    model = node.gpu_model or ""
    if request.gpu_models and not matches_model(model, request.gpu_models):
        return False
    if request.same_model is not None and model != request.same_model.name:
        return False
    if not all(_is_met(selector, node) for selector in request.require):
        return False
    memory_mb = request.min_memory_mb or 0
    if node.gpu_memory_mb is not None and node.gpu_memory_mb < memory_mb:
        return False
    needed = capability(request.min_compute_capability)
    has = capability_by_name(model) if needed is not None else None
    return needed is None or has is None or has >= needed


def largest_memory_mb(
    nodes: Iterable[ClusterNode], request: GpuRequest, target: ClusterRequest
) -> int | None:
    """Return the largest GPU memory of a node that the request may have, but for its memory.

    None: there is none, or the memory of one is unknown, which excludes it from nothing.
    """
    of_any_size = replace(request, min_memory_mb=None)
    sizes_mb = [node.gpu_memory_mb for node in nodes if suits(node, of_any_size, target)]
    known_mb = [size_mb for size_mb in sizes_mb if size_mb is not None]
    return max(known_mb, default=None) if len(known_mb) == len(sizes_mb) else None


def liking(node: ClusterNode, request: GpuRequest) -> int:
    """Return the sum of weights of the preferences that the node meets."""
    return sum(
        preference.weight for preference in request.prefer if _matches(preference.selector, node)
    )


def _is_met(selector: Selector, node: ClusterNode) -> bool:
    """A node whose labels tell no driver is not refused for it."""
    if (selector.key, selector.operator) == DRIVER_AT_LEAST:
        driver = node.cuda_driver_version
        serves = version(driver) if driver is not None else None
        return serves is None or serves >= (version(selector.values[0]) or ())
    return _matches(selector, node)


def _matches(selector: Selector, node: ClusterNode) -> bool:
    if selector.key is SelectorKey.NODE:  # by either of its names
        names = {node.name, node.node_id}
        is_named = not names.isdisjoint(selector.values)
        return is_named is (selector.operator is SelectorOperator.IN) or (
            selector.operator is SelectorOperator.EXISTS
        )
    return compare(selector, _value(selector, node)) is None


def _value(selector: Selector, node: ClusterNode) -> str | None:
    match selector.key:
        case SelectorKey.GPU_MODEL:
            return node.gpu_model
        case SelectorKey.COMPUTE_CAPABILITY:
            model_capability = capability_by_name(node.gpu_model or "")
            return capability_text(model_capability) if model_capability is not None else None
        case SelectorKey.CUDA_DRIVER_VERSION:
            return node.cuda_driver_version
        case SelectorKey.LABEL:
            return node.labels.get(selector.label or "")
        case _:
            return None
