"""Whether a device and its node match a selector; what is unknown matches nothing."""

from typing import Final

from schemas.gpus.gpu_request import Selector, SelectorKey, SelectorOperator
from schemas.scheduler.reasons import ReasonCode
from services.scheduler.domain.model.fleet import Device, Node
from shared.gpu.model_names import matches_model
from shared.gpu.selectors import version

_MISMATCHES: Final = {
    SelectorKey.NODE: ReasonCode.NODE_MISMATCH,
    SelectorKey.GPU_MODEL: ReasonCode.MODEL_MISMATCH,
    SelectorKey.GPU_UUID: ReasonCode.UUID_MISMATCH,
    SelectorKey.COMPUTE_CAPABILITY: ReasonCode.COMPUTE_CAPABILITY_MISMATCH,
    SelectorKey.CUDA_DRIVER_VERSION: ReasonCode.CUDA_DRIVER_MISMATCH,
    SelectorKey.GPU_INDEX: ReasonCode.INDEX_MISMATCH,
    SelectorKey.NUMA_NODE: ReasonCode.NUMA_MISMATCH,
    SelectorKey.LABEL: ReasonCode.LABEL_MISMATCH,
}
_VERSIONS: Final = frozenset({SelectorKey.COMPUTE_CAPABILITY, SelectorKey.CUDA_DRIVER_VERSION})


def mismatch(selector: Selector, device: Device, node: Node) -> ReasonCode | None:
    """Return why the selector does not match; None if it does.

    A node that lacks a label is not in any values of it: `not_in` matches it, as in Kubernetes. A
    property that is not known is `selector_unknown`, by every operator.
    """
    return compare(selector, _value(selector, device, node))


def compare(selector: Selector, value: str | None) -> ReasonCode | None:
    """Return why a property of this value does not match; None if it does, as in `mismatch`."""
    if value is None:
        if selector.key is not SelectorKey.LABEL:
            return ReasonCode.SELECTOR_UNKNOWN
        return None if selector.operator is SelectorOperator.NOT_IN else ReasonCode.LABEL_MISMATCH
    matches = _matches(selector, value)
    if matches is None:
        return ReasonCode.SELECTOR_UNKNOWN
    return None if matches else _MISMATCHES[selector.key]


def describe(selector: Selector) -> str:
    """The selector as people write it."""
    key = f"label {selector.label}" if selector.key is SelectorKey.LABEL else selector.key.value
    words = selector.operator.value.replace("_", " ")
    return f"{key} {words} {', '.join(selector.values)}".rstrip()


def _matches(selector: Selector, value: str) -> bool | None:
    """Return True if the value matches; None if a version is to be compared and is unreadable."""
    match selector.operator:
        case SelectorOperator.EXISTS:
            return True
        case SelectorOperator.IN:
            return _is_in(selector, value)
        case SelectorOperator.NOT_IN:
            return not _is_in(selector, value)
        case SelectorOperator.AT_LEAST | SelectorOperator.AT_MOST:
            actual, limit = version(value), version(selector.values[0]) if selector.values else None
            if actual is None or limit is None:
                return None
            at_least = selector.operator is SelectorOperator.AT_LEAST
            return actual >= limit if at_least else actual <= limit


def _value(selector: Selector, device: Device, node: Node) -> str | None:
    match selector.key:
        case SelectorKey.NODE:
            return device.node_id
        case SelectorKey.GPU_MODEL:
            return device.name
        case SelectorKey.GPU_UUID:
            return device.uuid
        case SelectorKey.COMPUTE_CAPABILITY:
            return device.compute_capability
        case SelectorKey.CUDA_DRIVER_VERSION:
            return node.cuda_driver_version
        case SelectorKey.GPU_INDEX:
            return str(device.index)
        case SelectorKey.NUMA_NODE:
            return str(device.numa_node) if device.numa_node is not None else None
        case SelectorKey.LABEL:
            return node.labels.get(selector.label or "")


def _is_in(selector: Selector, value: str) -> bool:
    if selector.key is SelectorKey.GPU_MODEL:
        return bool(selector.values) and matches_model(value, selector.values)
    if selector.key in _VERSIONS and (actual := version(value)) is not None:
        return any(version(expected) == actual for expected in selector.values)
    return value in selector.values
