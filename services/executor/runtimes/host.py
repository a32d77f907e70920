"""The runtimes of a host, or of a cluster."""

from collections.abc import Mapping

from schemas.executor.attempts import Runtime
from services.executor.engines.engines_file import load_engines, load_images
from services.executor.journal.journal import Journal
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.runtimes.endpoint import EndpointRuntime
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.kubernetes.compile_cache import PodCaches
from services.executor.runtimes.kubernetes.preflight import Preflight
from services.executor.runtimes.kubernetes.runtime import KubernetesRuntime
from services.executor.runtimes.process import ProcessRuntime
from services.executor.runtimes.runtime import EngineRuntime
from services.executor.settings import ExecutorSettings


def host_runtimes(settings: ExecutorSettings, journal: Journal) -> Mapping[Runtime, EngineRuntime]:
    """Return the runtimes of this host, in the order in which a reservation's workloads are ended.

    Containers end before the processes that are seen of them from outside.
    """
    runtimes: tuple[EngineRuntime, ...] = (
        DockerRuntime(settings),
        ProcessRuntime(settings, journal, load_engines(settings.engines_file)),
        EndpointRuntime(settings.endpoint_host_names),
    )
    return {runtime.kind: runtime for runtime in runtimes}


def cluster_runtimes(
    settings: ExecutorSettings, cluster: Cluster, journal: Journal
) -> Mapping[Runtime, EngineRuntime]:
    """Return the runtimes of a cluster; an executor of one runs nothing on its own host.

    Raises EnginesFileError if the file of the operator's engines cannot be used.
    """
    images = load_images(settings.engines_file)
    preflight = Preflight(cluster, images)
    caches = PodCaches(settings, cluster, journal)
    return {
        kind: KubernetesRuntime(kind, settings, cluster, preflight, images, caches)
        for kind in (Runtime.OME, Runtime.KUBERNETES)
    }
