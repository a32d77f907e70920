"""Client of the gateway: `StewardClient`, and the functions that tuning scripts know.

The names here wait; `aio_telemetry`, `aio_scheduling`, `aio_deployments` and `aio_benchmarks` have
the same for asynchronous programs.

Names are resolved on first use, so that finding a platform costs no HTTP library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from shared.client.aio_deployments import DeployedService
    from shared.client.aio_telemetry import GPUInfo, GPUSnapshot
    from shared.client.blocking import (
        check_gpu_availability,
        deploy_inference_service,
        estimate_gpu_requirements,
        find_best_node_for_deployment,
        get_available_gpus,
        get_cluster_gpu_status,
        get_gpu_info,
        get_node_gpu_summaries,
        is_available,
        query_gpus,
        run_benchmark_job,
        select_best_node,
        select_gpus_for_task,
        start_monitoring,
        stop_monitoring,
        wait_for_gpu_availability,
    )
    from shared.client.discovery import Address, find_address
    from shared.client.errors import ApiError, PlatformUnreachable
    from shared.client.http import StewardClient
    from shared.client.script_objects import (
        DockerController,
        GPUMonitor,
        OMEController,
        get_gpu_monitor,
    )

# The first that has a name is its home: `blocking` before the coroutines of the same names.
_HOMES: Final = (
    *("discovery", "errors", "http", "blocking", "script_objects"),
    *("aio_telemetry", "aio_deployments"),
)

__all__ = [
    "Address",
    "ApiError",
    "DeployedService",
    "DockerController",
    "GPUInfo",
    "GPUMonitor",
    "GPUSnapshot",
    "OMEController",
    "PlatformUnreachable",
    "StewardClient",
    "check_gpu_availability",
    "deploy_inference_service",
    "estimate_gpu_requirements",
    "find_address",
    "find_best_node_for_deployment",
    "get_available_gpus",
    "get_cluster_gpu_status",
    "get_gpu_info",
    "get_gpu_monitor",
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
    for home in _HOMES if name in __all__ else ():
        module = import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
