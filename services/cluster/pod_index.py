"""Pods from which readings of a node's GPUs can be had."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from shared.kubernetes.objects.common import Metadata
from shared.kubernetes.objects.pods import Pod
from shared.labels import INSTALLATION_LABEL

METRICS_PORT: Final = "metrics"
AGENT_LABELS: Final = (
    ("app.kubernetes.io/name", "telemetry"),
    ("app.kubernetes.io/part-of", "gpusteward"),
)


class Exporter(Struct, frozen=True):
    """A running dcgm-exporter."""

    namespace: str
    name: str
    ip: str
    port: int


class OwnPod(Struct, frozen=True):
    """A running pod of this installation; `container` is its first."""

    namespace: str
    name: str
    container: str


class PodIndex:
    """By node, of bound and unfinished pods. `exporter_labels` are pairs of which a pod has one."""

    def __init__(
        self, exporter_labels: Iterable[tuple[str, str]], exporter_port: int, installation_id: str
    ) -> None:
        self.exporters: dict[str, Exporter] = {}
        self.own: dict[str, dict[tuple[str, str], OwnPod]] = {}
        self.agents: dict[str, tuple[str, str]] = {}  # our telemetry's pods
        self._labels = tuple(exporter_labels)
        self._port = exporter_port
        self._installation_id = installation_id
        self._node_of: dict[tuple[str, str], str] = {}

    def replace(self, pods: Iterable[Pod]) -> None:
        self.exporters.clear()
        self.own.clear()
        self.agents.clear()
        self._node_of.clear()
        for pod in pods:
            self.apply(pod)

    def apply(self, pod: Pod) -> None:
        self.remove(pod.metadata)
        node, labels = pod.spec.node_name, pod.metadata.labels
        if pod.status.phase != "Running" or not pod.spec.containers:
            return
        name, namespace = pod.metadata.name, pod.metadata.namespace
        if all(labels.get(key) == value for key, value in AGENT_LABELS):
            self.agents[node] = (namespace, name)
        elif any(labels.get(key) == value for key, value in self._labels):
            self.exporters[node] = Exporter(namespace, name, pod.status.pod_ip, self._port_of(pod))
        elif labels.get(INSTALLATION_LABEL) == self._installation_id:
            own_pod = OwnPod(namespace, name, pod.spec.containers[0].name)
            self.own.setdefault(node, {})[namespace, name] = own_pod
        else:
            return
        self._node_of[namespace, name] = node

    def remove(self, gone: Metadata) -> None:
        key = (gone.namespace, gone.name)
        node = self._node_of.pop(key, None)
        if node is None:
            return
        if self.agents.get(node) == key:
            del self.agents[node]
        exporter = self.exporters.get(node)
        if exporter is not None and (exporter.namespace, exporter.name) == key:
            del self.exporters[node]
        if (own_pods := self.own.get(node)) is not None:
            own_pods.pop(key, None)
            if not own_pods:
                del self.own[node]

    def _port_of(self, pod: Pod) -> int:
        ports = [port for container in pod.spec.containers for port in container.ports]
        port_numbers = (port.container_port for port in ports if port.name == METRICS_PORT)
        return next(port_numbers, self._port)
