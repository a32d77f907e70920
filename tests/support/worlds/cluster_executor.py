"""An executor's runtimes in a real control plane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.executor.attempts import Runtime, StartExperiment
from schemas.gpus.device_grant import ClusterPlacement
from services.executor.journal.journal import Journal
from services.executor.runtimes.host import cluster_runtimes
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.runtime import EngineRuntime
from services.executor.settings import ExecutorSettings
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import runtime_settings, start_of

if TYPE_CHECKING:
    from tests.support.kubernetes.control_plane import ControlPlane

IMAGE = "gpusteward/simulated"


def cluster_settings(
    control_plane: "ControlPlane",
    data_dir: Path,
    *,
    user: str = "admin",
    **overrides: Any,  # any field
) -> ExecutorSettings:
    engines = data_dir / "engines.toml"
    data_dir.mkdir(parents=True, exist_ok=True)
    engines.write_text(f'[engines.simulated]\nimage = "{IMAGE}"\ntag = "test"\n')
    given: dict[str, Any] = {
        "cluster": True,
        "kubeconfig": str(control_plane.kubeconfig(user)),
        "cluster_access": "pod",
        "engines_file": str(engines),
    }
    return runtime_settings(data_dir, **given | overrides)


def cluster_start(
    runtime: Runtime = Runtime.KUBERNETES,
    parameters: dict[str, Any] | None = None,
    *,
    engine: str = "simulated",
    names: KubernetesSpec | None = None,
    place: ClusterPlacement | None = None,
    **overrides: Any,  # any field
) -> StartExperiment:
    """An attempt in a cluster, wherever there is room."""
    start = start_of(engine, parameters, runtime=runtime, devices=(), **overrides)
    return msgspec.structs.replace(
        start,
        engine=msgspec.structs.replace(start.engine, kubernetes=names or KubernetesSpec()),
        cluster=place or ClusterPlacement(cluster_id=NODE, gpus=1),
    )


@dataclass(slots=True)
class ClusterRuntimes:
    """All made here are closed with it. A journal is not opened: only compile caches need one."""

    clusters: list[Cluster]

    def make(
        self, kind: Runtime, settings: ExecutorSettings, journal: Journal | None = None
    ) -> EngineRuntime:
        if kind is Runtime.OME:  # whose engines speak plain HTTP alone
            settings = msgspec.structs.replace(settings, engine_traffic="network-encrypted")
        self.clusters.append(cluster := Cluster(settings))
        journal = journal or Journal(settings.home / "journal.db")
        return cluster_runtimes(settings, cluster, journal)[kind]


@asynccontextmanager
async def runtimes_of_clusters() -> AsyncIterator[ClusterRuntimes]:
    made = ClusterRuntimes([])
    try:
        yield made
    finally:
        for cluster in made.clusters:
            await cluster.close()
