"""The largest GPU that a task may take, by the scheduler, which has the fleet."""

from typing import Final

from msgspec.structs import replace

from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from schemas.scheduler.views import AvailabilityView, GetAvailability
from schemas.task.task_file import DeploymentMode, GpuPreferences
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.offers import CLUSTER_MODES
from services.orchestrator.domain.plan.sizing import is_estimated
from shared.errors import RefusedError, UnavailableError
from shared.gpu.model_memory import parameters_named
from shared.logging import log
from shared.messaging.bus import Bus

_MORE_THAN_ANY_MB: Final = 1 << 40
_TIMEOUT_SECONDS: Final = 2.0  # whoever submits or validates a task waits meanwhile


async def find_largest_gpu(
    bus: Bus,
    model: str,
    gpus: GpuPreferences | None,
    mode: DeploymentMode,
    installation: Installation,
) -> int | None:
    """Return its memory, in MB; None where nothing is to be held against it, or it is not known.

    `gpus` has its nodes by their ids. A scheduler that does not answer keeps no task from being
    stored.
    """
    is_known = parameters_named(model) is not None or installation.find_shape(model) is not None
    if not is_known or not is_estimated(gpus):
        return None
    query = GetAvailability(request=_request_for_more_than_any(gpus or GpuPreferences(), mode))
    try:
        view = await bus.query(query, AvailabilityView, timeout_seconds=_TIMEOUT_SECONDS)
    except (RefusedError, UnavailableError) as error:
        log.info("largest_gpu_not_known", reason=str(error))
        return None
    return view.largest_memory_mb


def _request_for_more_than_any(gpus: GpuPreferences, mode: DeploymentMode) -> GpuRequest:
    """Return a request that no GPU can serve, for one of those that the task may take."""
    request = GpuRequest(
        min_memory_mb=_MORE_THAN_ANY_MB,
        gpu_models=gpus.models,
        require=gpus.require,
    )
    if mode in CLUSTER_MODES:
        cluster = ClusterRequest(cluster_id=gpus.cluster, node_names=gpus.nodes)
        return replace(request, cluster=cluster)
    return replace(request, node_ids=gpus.nodes, device_uuids=gpus.device_uuids)
