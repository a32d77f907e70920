"""Client of the gateway: `StewardClient`, and the functions that tuning scripts know.

The names here wait; `aio_telemetry`, `aio_scheduling` and `aio_benchmarks` have the same for
asynchronous programs.

Names are resolved on first use, so that finding a platform costs no HTTP library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from shared.client.aio_telemetry import GPUInfo, GPUSnapshot
    from shared.client.benchmarks import run_benchmark_job
    from shared.client.discovery import Address, find_address
    from shared.client.errors import ApiError, PlatformUnreachable
    from shared.client.http import StewardClient
    from shared.client.scheduling import (
        check_gpu_availability,
        estimate_gpu_requirements,
        find_best_node_for_deployment,
        get_cluster_gpu_status,
        get_node_gpu_summaries,
        select_best_node,
        select_gpus_for_task,
        wait_for_gpu_availability,
    )
    from shared.client.telemetry import (
        get_available_gpus,
        get_gpu_info,
        is_available,
        query_gpus,
        start_monitoring,
        stop_monitoring,
    )

_HOMES: Final = {
    "aio_telemetry": ("GPUInfo", "GPUSnapshot"),
    "benchmarks": ("run_benchmark_job",),
    "discovery": ("Address", "find_address"),
    "errors": ("ApiError", "PlatformUnreachable"),
    "http": ("StewardClient",),
    "scheduling": (
        "check_gpu_availability",
        "estimate_gpu_requirements",
        "find_best_node_for_deployment",
        "get_cluster_gpu_status",
        "get_node_gpu_summaries",
        "select_best_node",
        "select_gpus_for_task",
        "wait_for_gpu_availability",
    ),
    "telemetry": (
        "get_available_gpus",
        "get_gpu_info",
        "is_available",
        "query_gpus",
        "start_monitoring",
        "stop_monitoring",
    ),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Address",
    "ApiError",
    "GPUInfo",
    "GPUSnapshot",
    "PlatformUnreachable",
    "StewardClient",
    "check_gpu_availability",
    "estimate_gpu_requirements",
    "find_address",
    "find_best_node_for_deployment",
    "get_available_gpus",
    "get_cluster_gpu_status",
    "get_gpu_info",
    "get_node_gpu_summaries",
    "is_available",
    "query_gpus",
    "run_benchmark_job",
    "select_best_node",
    "select_gpus_for_task",
    "start_monitoring",
    "stop_monitoring",
    "wait_for_gpu_availability",
]


def __getattr__(name: str) -> Any:
    if (home := _HOME_OF.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
