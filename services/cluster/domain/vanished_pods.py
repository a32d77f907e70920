"""Pods that left the API without their end being seen: their containers may run on.

A pod that is deleted by force is gone from the API at once, and Kubernetes gives its GPUs out again
while kubelet still stops its containers, or cannot. Which GPUs they were is known to nobody here.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from schemas.cluster.nodes import VanishedPod
from services.cluster.domain.pod_requests import FINISHED
from shared.kubernetes.objects.nodes import Node
from shared.kubernetes.objects.pods import Pod

# A node's annotation by which an operator says that nothing of before a time runs there any more.
CONFIRMED_EMPTY: Final = "gpusteward.io/confirmed-empty-at"


class Vanished(Struct, frozen=True, kw_only=True):
    """Such a pod on its node; `boot_id` is the node's boot in which it ran, empty if unknown."""

    node: str
    boot_id: str
    pod: VanishedPod


def has_ended(pod: Pod) -> bool:
    """Return True if kubelet has reported that no container of the pod runs, as it does before it
    lets the API forget a pod.
    """
    statuses = pod.status.container_statuses
    return pod.status.phase in FINISHED or (
        bool(statuses) and all(status.state.terminated is not None for status in statuses)
    )


class VanishedPods:
    """By node, until the node has booted anew, has gone, or an operator vouches for it.

    What an agent sees of them is compared elsewhere. `is_changed` until it is set back.
    """

    def __init__(self) -> None:
        self.is_changed = False
        self._by_node: dict[str, list[Vanished]] = {}

    @property
    def all(self) -> list[Vanished]:
        return [vanished for pods in self._by_node.values() for vanished in pods]

    def add(self, vanished: Iterable[Vanished]) -> set[str]:
        """Return the nodes concerned."""
        nodes = set()
        for new in vanished:
            self._by_node.setdefault(new.node, []).append(new)
            nodes.add(new.node)
        self.is_changed |= bool(nodes)
        return nodes

    def on(self, node: str) -> tuple[VanishedPod, ...]:
        return tuple(vanished.pod for vanished in self._by_node.get(node, ()))

    def forget(self, node: str) -> None:
        """Forget a node's pods: it has gone."""
        self.is_changed |= self._by_node.pop(node, None) is not None

    def apply_node(self, node: Node) -> None:
        """Forget the pods of earlier boots, and of before what an operator vouches for."""
        name = node.metadata.name
        pods = self._by_node.get(name)
        if pods is None:
            return
        boot_id = node.status.node_info.boot_id
        empty_at = _time(node.metadata.annotations.get(CONFIRMED_EMPTY, ""))
        staying = [
            vanished
            for vanished in pods
            if (not boot_id or vanished.boot_id in {"", boot_id})
            and (empty_at is None or vanished.pod.since_at > empty_at)
        ]
        if len(staying) < len(pods):
            self.is_changed = True
            self._by_node[name] = staying


def _time(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
