"""What an operator may set of an executor, as GPUSTEWARD_EXECUTOR_<NAME>."""

import os
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta

from schemas.base import Count, Percent, PositiveInt, PositiveSeconds, Seconds
from services.executor.domain.deadlines import PhaseLimits
from shared.datasets.bounds import MEBIBYTE
from shared.datasets.download import DatasetCache
from shared.datasets.hosts import AllowedHosts
from shared.engines.table import TASK_VARIABLES
from shared.load_files.places import FilePlaces
from shared.mps import DEFAULT_PIPE_DIR
from shared.settings import CommonSettings

CacheVolumeName = Annotated[
    str, Meta(pattern=r"^$|^hostPath:/|^persistentVolumeClaim:[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
]


class ExecutorSettings(CommonSettings, frozen=True, kw_only=True):
    """`model_roots` are directories, separated as in PATH: a model or tokenizer named by a path has
    to lie in one of them, and a relative name is sought there first. `model_cache_dir` keeps
    what engines in containers download of models from a hub; without it, it goes with them.
    `compile_cache_dir` keeps what engines compile at their start, by namespace, engine, image, GPU
    model and driver: by default below the data directory, and for containers only where it is set,
    as the container engine has to find it under the same path. Beyond `compile_cache_mb` (0: none
    is kept), or unused for `compile_cache_days`, it goes.

    What experiments that wait for GPUs will need is made ready on nodes that may run them: their
    image is pulled, their model's weights are read into the page cache. `prepare_waiting` is when:
    nothing is begun, and no weights are read, while an engine of this node is measured; always; or
    never. Of the disk `prepare_spare_disk_percent` stay free, and weights take at most
    `prepare_memory_percent` of the memory that could be had without swapping.

    `address` is where engines of this node are reached from other nodes, by default the one from
    which packets to the bus come.
    `docker_host` is the engine's address, by default $DOCKER_HOST or the usual socket;
    `docker_device_ids` how devices are named to it: by uuid, by index, or as CDI names by uuid;
    `mps_pipe_dir` is where the MPS daemon listens, for parts of devices, or below it a GPU's;
    `engine_user` is who engines without a container run as where the executor is root: by default
    a system user gpusteward-engine, made if missing; root leaves them root. `engine_variables` are
    the variables of the executor's environment, separated by commas, that every engine gets; those
    without a container also get PATH, the language, proxies, and those of CUDA, ROCm, the engines
    and their caches. `task_variables` are those that a task may set of its engine's environment
    (`env`), by name or pattern: a pattern lets none through whose name says that it is a path,
    plugin, address or secret.
    `endpoint_hosts` are the hosts, or HOST:PORT, separated by commas, whose servers tasks may
    measure and people may try; empty: all, but metadata services of clouds.
    `dataset_roots` are directories, separated as in PATH, below which a task's dataset may lie,
    beside the model roots. `dataset_hosts` are the hosts, separated by commas, from which datasets
    may be fetched, as `HOST`, or `HOST:PORT` where the port is not the scheme's own; none are by
    default. Those of `dataset_private_hosts` may be at private and loopback addresses too. A
    dataset has at most `dataset_max_mb`; fetched ones are kept below the data directory, together
    at most `dataset_cache_mb`.
    `engines_file` a TOML file with engines of the operator's own. `engine_memory_mb` and
    `engine_cpus` bound an engine whose reservation names no CPUs and memory of the node; 0 is no
    bound.

    `engine_traffic` is what may pass between nodes: `tls` alone, so that engines on other nodes
    serve HTTPS and those over several nodes, whose ranks cannot, are refused; or plain text, where
    the network encrypts it (`network-encrypted`) or whoever reads it may (`plaintext`).

    With `cluster` it is the executor of a Kubernetes cluster, whose id is its node's, and runs no
    engine on its own host. `cluster_namespace` is where engines of tasks are that name no
    namespace; `cluster_namespaces` are those that tasks may name, separated by commas, `OURS:NAME`
    for tasks of our namespace OURS alone; without any it is `cluster_namespace`. `cluster_access`
    is how an engine is reached: by its Service from inside the cluster, else at its pod's address,
    or at a port of its node. With `cluster_cuda_labels` nodes carry `cuda-major-version` and
    `cuda-minor-version`, and where no node was chosen an image whose tag names its CUDA is bound to
    one whose driver serves it. `cluster_queue` is Kueue's LocalQueue for engines.
    `cluster_scheduler` is the scheduler that binds their pods in place of the cluster's default
    one; of kai-scheduler `cluster_queue` is the queue.
    `cluster_compile_cache` keeps what engines in pods compile, in a directory of their node
    (`hostPath:/var/lib/compiled`), or in a claim of their namespace
    (`persistentVolumeClaim:compiled`). An engine whose
    pod is neither bound nor started within `readiness_timeout_seconds` has failed.
    """

    address: str = ""
    stop_grace_seconds: Seconds = 2.0
    pull_timeout_seconds: PositiveSeconds = 3600.0
    start_timeout_seconds: PositiveSeconds = 120.0
    readiness_timeout_seconds: PositiveSeconds = 900.0
    level_slack_seconds: PositiveSeconds = 120.0
    reconcile_interval_seconds: PositiveSeconds = 15.0
    report_interval_seconds: PositiveSeconds = 30.0
    flush_timeout_seconds: Seconds = 3.0
    engine_slots: PositiveInt = 64
    engine_log_limit_mb: PositiveInt = 32
    allow_simulated_engine: bool = True
    model_roots: str = ""
    model_cache_dir: str = ""
    compile_cache_dir: str = ""
    compile_cache_mb: Count = 51_200
    compile_cache_days: PositiveSeconds = 30.0
    prepare_waiting: Literal["between_measurements", "always", "never"] = "between_measurements"
    prepare_spare_disk_percent: Percent = 20.0
    prepare_memory_percent: Percent = 50.0
    dataset_roots: str = ""
    dataset_hosts: str = ""
    dataset_private_hosts: str = ""
    dataset_max_mb: PositiveInt = 1024
    endpoint_hosts: str = ""
    dataset_cache_mb: Count = 10_240
    engines_file: str = ""
    engine_user: str = ""
    engine_variables: str = "HF_TOKEN"
    task_variables: str = ",".join(TASK_VARIABLES)
    docker_host: str = ""
    docker_device_ids: Literal["uuid", "index", "cdi"] = "uuid"
    mps_pipe_dir: str = DEFAULT_PIPE_DIR
    container_shm_mb: PositiveInt = 8192
    engine_memory_mb: Count = 0
    engine_cpus: Seconds = 0.0
    engine_pids: PositiveInt = 32_768
    engine_traffic: Literal["tls", "network-encrypted", "plaintext"] = "tls"
    cluster: bool = False
    cluster_namespace: str = "default"
    cluster_namespaces: str = ""
    cluster_access: Literal["service", "pod", "node_port"] = "service"
    cluster_queue: str = ""
    cluster_scheduler: str = ""
    cluster_cuda_labels: bool = False
    cluster_compile_cache: CacheVolumeName = ""

    @property
    def home(self) -> Path:
        return Path(self.data_dir) / "executor"

    @property
    def engine_home(self) -> Path:
        return Path(self.data_dir) / "engine-home"

    @property
    def model_root_paths(self) -> tuple[Path, ...]:
        return tuple(Path(root) for root in self.model_roots.split(os.pathsep) if root)

    @property
    def file_places(self) -> FilePlaces:
        """Return where files of loads may be."""
        roots = tuple(Path(root) for root in self.dataset_roots.split(os.pathsep) if root)
        cache = DatasetCache(
            directory=self.home / "datasets",
            hosts=AllowedHosts.of(self.dataset_hosts, self.dataset_private_hosts),
            max_file_bytes=self.dataset_max_mb * MEBIBYTE,
            max_bytes=self.dataset_cache_mb * MEBIBYTE,
        )
        return FilePlaces((*roots, *self.model_root_paths), cache)

    @property
    def endpoint_host_names(self) -> frozenset[str]:
        names = (part.strip().lower() for part in self.endpoint_hosts.split(","))
        return frozenset(name for name in names if name)

    @property
    def passed_variables(self) -> tuple[str, ...]:
        return tuple(name for part in self.engine_variables.split(",") if (name := part.strip()))

    @property
    def task_variable_patterns(self) -> tuple[str, ...]:
        return tuple(name for part in self.task_variables.split(",") if (name := part.strip()))

    @property
    def attempts_dir(self) -> Path:
        return self.home / "attempts"

    @property
    def phase_limits(self) -> PhaseLimits:
        return PhaseLimits(
            pulling=self.pull_timeout_seconds,
            starting=self.start_timeout_seconds,
            loading=self.readiness_timeout_seconds,
            level_slack=self.level_slack_seconds,
        )

    def attempt_dir(self, attempt_id: UUID) -> Path:
        return self.attempts_dir / str(attempt_id)
