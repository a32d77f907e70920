"""The functions of `gpusteward` for asynchronous programs."""

from shared.client.aio_benchmarks import run_benchmark_job
from shared.client.aio_deployments import DeployedService, deploy_inference_service
from shared.client.aio_scheduling import (
    check_gpu_availability,
    estimate_gpu_requirements,
    find_best_node_for_deployment,
    get_cluster_gpu_status,
    get_node_gpu_summaries,
    select_gpus_for_task,
    wait_for_gpu_availability,
)
from shared.client.aio_telemetry import (
    GPUInfo,
    GPUSnapshot,
    get_available_gpus,
    get_gpu_info,
    is_available,
    query_gpus,
    start_monitoring,
    stop_monitoring,
)

__all__ = [
    "DeployedService",
    "GPUInfo",
    "GPUSnapshot",
    "check_gpu_availability",
    "deploy_inference_service",
    "estimate_gpu_requirements",
    "find_best_node_for_deployment",
    "get_available_gpus",
    "get_cluster_gpu_status",
    "get_gpu_info",
    "get_node_gpu_summaries",
    "is_available",
    "query_gpus",
    "run_benchmark_job",
    "select_gpus_for_task",
    "start_monitoring",
    "stop_monitoring",
    "wait_for_gpu_availability",
]
