"""The functions of the modules named `aio_...` for plain scripts."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from shared.client import aio_benchmarks, aio_deployments, aio_scheduling, aio_telemetry

P = ParamSpec("P")
T = TypeVar("T")


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The function waited for. Raises RuntimeError inside an event loop."""

    @wraps(function)
    def wait(*args: P.args, **kwargs: P.kwargs) -> T:
        return asyncio.run(function(*args, **kwargs))

    return wait


is_available = blocking(aio_telemetry.is_available)
query_gpus = blocking(aio_telemetry.query_gpus)
get_available_gpus = blocking(aio_telemetry.get_available_gpus)
get_gpu_info = blocking(aio_telemetry.get_gpu_info)
start_monitoring = blocking(aio_telemetry.start_monitoring)
stop_monitoring = blocking(aio_telemetry.stop_monitoring)

estimate_gpu_requirements = blocking(aio_scheduling.estimate_gpu_requirements)
check_gpu_availability = blocking(aio_scheduling.check_gpu_availability)
wait_for_gpu_availability = blocking(aio_scheduling.wait_for_gpu_availability)
select_gpus_for_task = blocking(aio_scheduling.select_gpus_for_task)
get_cluster_gpu_status = blocking(aio_scheduling.get_cluster_gpu_status)
get_node_gpu_summaries = blocking(aio_scheduling.get_node_gpu_summaries)
find_best_node_for_deployment = blocking(aio_scheduling.find_best_node_for_deployment)
select_best_node = find_best_node_for_deployment

deploy_inference_service = blocking(aio_deployments.deploy_inference_service)

run_benchmark_job = blocking(aio_benchmarks.run_benchmark_job)
