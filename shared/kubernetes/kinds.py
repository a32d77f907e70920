"""Kinds of objects that several services read, by their place in the API."""

from typing import Final

from shared.kubernetes.names import Resource

PODS: Final = Resource("v1", "pods")
NODES: Final = Resource("v1", "nodes", is_namespaced=False)
SERVICES: Final = Resource("v1", "services")
CONFIG_MAPS: Final = Resource("v1", "configmaps")
