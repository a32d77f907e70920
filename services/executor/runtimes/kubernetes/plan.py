"""What one engine in a cluster is made from, and the names and labels of its objects."""

from typing import Final

from msgspec import Struct

from schemas.cluster.kubernetes import KubernetesSpec
from schemas.executor.attempts import Runtime, StartExperiment
from schemas.gpus.device_grant import ClusterNodeName, ClusterPlacement
from services.executor.domain.pod_cache import PodCache
from services.executor.engines.engine import EngineCommand
from services.executor.engines.image import EngineImage
from services.executor.runtimes.kubernetes.kinds import BaseModelSpec
from services.executor.runtimes.runtime import Labels
from services.executor.settings import ExecutorSettings
from shared.kubernetes.names import label_value
from shared.labels import INSTALLATION_LABEL, NODE_LABEL, RESERVATION_LABEL, RUNTIME_LABEL

RANKS: Final = "-ranks"
LEADER_PORT: Final = 29_500  # of rank 0's pod, whose address is its own


class NamedModel(Struct, frozen=True, kw_only=True):
    """A model that OME knows."""

    name: str
    kind: str
    spec: BaseModelSpec


class EngineTls(Struct, frozen=True):
    """The key of an engine's server and its certificate, both PEM."""

    key: str
    certificate: str

    def __repr__(self) -> str:
        return "EngineTls()"


class Plan(Struct, frozen=True, kw_only=True):
    """What the objects are made from, beside the launch. `command` is complete.

    `rank` of `size` pods of one engine, of which the placement is its own; 0 serves. OME spreads
    all ranks but the first over `worker_nodes`, in an order that is its own. With `tls` it speaks
    nothing else; None: plain HTTP.
    """

    kind: Runtime
    namespace: str
    image: EngineImage
    reference: str
    command: EngineCommand
    names: KubernetesSpec
    placement: ClusterPlacement
    model: NamedModel | None = None
    cache: PodCache | None = None
    tls: EngineTls | None = None
    rank: int = 0
    size: int = 1
    worker_nodes: tuple[ClusterNodeName, ...] = ()

    @property
    def labelled_rank(self) -> int | None:
        """The rank that its objects are labelled by; None of one rank, and where OME makes them."""
        return self.rank if self.size > 1 and not self.worker_nodes else None

    @property
    def node_names(self) -> frozenset[str]:
        """The nodes of which its pod has to be on one; empty where the cluster chooses."""
        if self.rank and self.worker_nodes:
            return frozenset(node.node_name for node in self.worker_nodes)
        return frozenset(filter(None, (self.placement.node_name,)))

    @property
    def hostnames(self) -> tuple[str, ...]:
        """The labels `kubernetes.io/hostname` of these nodes."""
        if self.rank and self.worker_nodes:
            return tuple(node.hostname for node in self.worker_nodes)
        return tuple(filter(None, (self.placement.hostname,)))


def rank_name(command: StartExperiment, rank: int) -> str:
    """Return the name of what makes one rank's pod; rank 0 has the attempt's own."""
    return f"{workload_name(command)}-{rank}" if rank else workload_name(command)


def leader_address(command: StartExperiment, namespace: str) -> str:
    """Return where the ranks of one engine meet: the address of rank 0's pod."""
    return f"{workload_name(command)}{RANKS}.{namespace}.svc"


def service_host(command: StartExperiment, namespace: str) -> str:
    """Return the name of the Service that leads to the engine, inside the cluster."""
    return f"{workload_name(command)}.{namespace}.svc"


def workload_name(command: StartExperiment) -> str:
    """Return the name of all objects of one attempt, with room for what controllers append."""
    return f"gpusteward-{command.attempt_id.hex}"


def own_labels(settings: ExecutorSettings, kind: Runtime) -> dict[str, str]:
    """Return the labels that all objects of this installation and executor carry."""
    return {
        INSTALLATION_LABEL: label_value(settings.installation_id),
        NODE_LABEL: label_value(settings.node_id),
        RUNTIME_LABEL: kind.value,
    }


def finding_labels(settings: ExecutorSettings, kind: Runtime, labels: Labels) -> dict[str, str]:
    """Return the labels that show whose an object is; without all of them nothing is ever
    touched.
    """
    return {**own_labels(settings, kind), RESERVATION_LABEL: str(labels.reservation_id)}
