"""Whether what a task says of its GPUs can be had where it runs."""

import itertools
from typing import Final

from schemas.errors import ErrorCode
from schemas.gpus.gpu_request import Selector, SelectorKey
from schemas.task.task_file import GpuPreferences
from shared.errors import RefusedError
from shared.gpu.selectors import check_selector

_SET_ON_GPUS: Final = ("power_limit_w", "sm_clock_mhz")
# Of a cluster's GPUs no single one is chosen, and its nodes' agents set no limits for us.
_NOT_OF_CLUSTERS: Final = ("device_uuids", *_SET_ON_GPUS)
_OF_SINGLE_GPUS: Final = frozenset(
    {SelectorKey.GPU_UUID, SelectorKey.GPU_INDEX, SelectorKey.NUMA_NODE}
)
_OF_WHOLE_GPUS: Final = ("shares", "mig_profile", "vgpu_cores")


def check_wishes(preferences: GpuPreferences, *, is_in_cluster: bool) -> None:
    """Raise RefusedError for a wish that means nothing there."""
    for name in _NOT_OF_CLUSTERS if is_in_cluster else ():
        if getattr(preferences, name):
            raise _wish_refusal(
                f"expected no {name} in a cluster, which gives out its GPUs itself: "
                "`nodes` and `models` choose among its nodes",
                name,
            )
    for setting, name in itertools.product(_SET_ON_GPUS, _OF_WHOLE_GPUS):
        if getattr(preferences, setting) is not None and getattr(preferences, name) is not None:
            raise _wish_refusal(
                f"expected no {setting} with {name}: it is set on a whole GPU", setting
            )
    for place, selector in enumerate(preferences.require):
        _check(selector, f"$.gpus.require[{place}]", is_in_cluster=is_in_cluster)
    for place, preference in enumerate(preferences.prefer):
        path = f"$.gpus.prefer[{place}].selector"
        _check(preference.selector, path, is_in_cluster=is_in_cluster)


def _check(selector: Selector, path: str, *, is_in_cluster: bool) -> None:
    check_selector(selector, path)
    if is_in_cluster and selector.key in _OF_SINGLE_GPUS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a property of a cluster's node, not {selector.key.value}: of its GPUs "
            "none is named",
            path=path,
        )


def _wish_refusal(message: str, name: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=f"$.gpus.{name}")
