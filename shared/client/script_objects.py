"""The objects of tuning scripts, by their names: thin ones over this package's functions."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from shared.client import blocking
from shared.client.aio_deployments import DeployedService
from shared.client.aio_scheduling import DEFAULT_MIN_MEMORY_MB

log: Final = logging.getLogger(__name__)


class GPUMonitor:
    """Watches the GPUs of the platform that the functions of `shared.client` ask.

    It holds nothing itself: every instance sees the same readings, which the platform caches for
    5 s. One monitoring runs at a time in a program.
    """

    is_available = staticmethod(blocking.is_available)
    query_gpus = staticmethod(blocking.query_gpus)
    get_available_gpus = staticmethod(blocking.get_available_gpus)
    get_gpu_info = staticmethod(blocking.get_gpu_info)
    start_monitoring = staticmethod(blocking.start_monitoring)
    stop_monitoring = staticmethod(blocking.stop_monitoring)


_MONITOR: Final = GPUMonitor()


def get_gpu_monitor() -> GPUMonitor:
    """Return the one monitor of this program."""
    return _MONITOR


class DockerController:
    """Chooses GPUs for containers that its caller starts; it starts none itself.

    `docker_model_path` is kept for the caller. With `verbose` each choice is logged.
    """

    def __init__(self, docker_model_path: str = "", *, verbose: bool = False) -> None:
        self.docker_model_path = docker_model_path
        self.verbose = verbose

    def select_gpus_for_task(
        self, required_gpus: int, min_memory_mb: int = DEFAULT_MIN_MEMORY_MB
    ) -> list[int]:
        """Return the indices of the GPUs that the scheduler would grant on one node, best first.

        Reserves nothing. Raises RuntimeError if there are too few.
        """
        indices = blocking.select_gpus_for_task(required_gpus, min_memory_mb)
        if self.verbose:
            log.info("Selected GPUs %s for %d required", indices, required_gpus)
        return indices


class OMEController:
    """Makes InferenceServices in the cluster of KUBECONFIG."""

    def deploy_inference_service(
        self,
        task_name: str,
        experiment_id: str,
        namespace: str,
        model_name: str,
        runtime_name: str,
        parameters: Mapping[str, Any],
        enable_gpu_selection: bool = True,
    ) -> DeployedService:
        """Make one on the node with the most idle GPUs; see `deploy_inference_service`."""
        return blocking.deploy_inference_service(
            task_name,
            experiment_id,
            namespace,
            model_name,
            runtime_name,
            parameters,
            enable_gpu_selection,
        )
