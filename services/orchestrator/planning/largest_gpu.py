"""The largest GPU that a task may take, by the scheduler, which has the fleet."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from schemas.scheduler.views import AvailabilityView, GetAvailability
from schemas.task.task_file import GpuPreferences, TaskFile
from services.orchestrator.domain.plan.engines import mode_of
from services.orchestrator.domain.plan.executor_offers import (
    CLUSTER_MODES,
    Offer,
    known_engines,
    shape_offered,
)
from services.orchestrator.domain.plan.sizing import is_estimated
from services.orchestrator.node_names import with_node_ids
from shared.errors import RefusedError, UnavailableError
from shared.gpu.model_memory import parameters_named
from shared.logging import log
from shared.messaging.bus import Bus

_MORE_THAN_ANY_MB: Final = 1 << 40
_PATIENCE_SECONDS: Final = 2.0  # whoever submits or validates a task waits meanwhile


async def find_largest_gpu(bus: Bus, task: TaskFile, offers: Sequence[Offer]) -> int | None:
    """Return its memory, in MB; None where nothing is to be held against it, or it is not known.

    A scheduler that does not answer keeps no task from being stored.
    """
    model = task.model.id_or_path
    is_known = parameters_named(model) is not None or shape_offered(model, offers) is not None
    if not is_known or not is_estimated(task.gpus):
        return None
    query = GetAvailability(request=_request_for_more_than_any(with_node_ids(task), offers))
    try:
        view = await bus.query(query, AvailabilityView, timeout_seconds=_PATIENCE_SECONDS)
    except (RefusedError, UnavailableError) as error:
        log.info("largest_gpu_not_known", reason=str(error))
        return None
    return view.largest_memory_mb


def _request_for_more_than_any(task: TaskFile, offers: Sequence[Offer]) -> GpuRequest:
    """Return a request that no GPU can serve, for one of those that the task may take."""
    wanted = task.gpus or GpuPreferences()
    request = GpuRequest(
        min_memory_mb=_MORE_THAN_ANY_MB, gpu_models=wanted.models, require=wanted.require
    )
    if mode_of(task, known_engines(offers)) in CLUSTER_MODES:
        cluster = ClusterRequest(cluster_id=wanted.cluster, node_names=wanted.nodes)
        return replace(request, cluster=cluster)
    return replace(request, node_ids=wanted.nodes, device_uuids=wanted.device_uuids)
