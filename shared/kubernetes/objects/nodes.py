"""Nodes."""

from msgspec import field

from shared.kubernetes.objects.common import AnnotatedMetadata, ApiObject, Condition, Metadata
from shared.kubernetes.objects.pods import Quantities


class Taint(ApiObject, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiObject, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class SystemInfo(ApiObject, frozen=True):
    boot_id: str = field(default="", name="bootID")


class NodeStatus(ApiObject, frozen=True):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()
    node_info: SystemInfo = SystemInfo()


class Node(ApiObject, frozen=True):
    metadata: AnnotatedMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodeStatusDetails(ApiObject, frozen=True):
    node_info: SystemInfo = SystemInfo()


class NodeDetails(ApiObject, frozen=True):
    metadata: Metadata
    status: NodeStatusDetails = NodeStatusDetails()
