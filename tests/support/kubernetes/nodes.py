"""Nodes with GPUs that kwok runs, in both worlds: counted by a device plugin, or as devices of
ResourceSlices. No driver and no plugin runs; what they would publish is made here.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.support.kubernetes.api import Api, Object

GPU_RESOURCE: Final = "nvidia.com/gpu"
POD_ADDRESS_LABEL: Final = "pod-address"  # in pods.yaml
DRA_DRIVER: Final = "gpu.nvidia.com"
DEVICE_CLASS: Final = DRA_DRIVER
PRODUCT: Final = "NVIDIA-H100-80GB-HBM3"
MEMORY_MIB: Final = 81_559
DEVICES_PER_SLICE: Final = 128  # the API's own limit


def node_object(
    name: str,
    *,
    gpus: int = 8,
    resource: str | None = GPU_RESOURCE,
    resources: Mapping[str, int] | None = None,
    product: str = PRODUCT,
    memory_mib: int = MEMORY_MIB,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Object] = (),
    unschedulable: bool = False,
    cpus: int = 192,
    memory_gib: int = 2048,
) -> Object:
    """A node whose device plugin counts its GPUs as `resource`, with the labels of GPU Feature
    Discovery; None for a node of the DRA world, which has neither. `resources` adds others.
    """
    amounts = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", "pods": "250"}
    all_labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    if resource is not None:
        amounts[resource] = str(gpus)
        all_labels |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": product,
            "nvidia.com/gpu.memory": str(memory_mib),
            "nvidia.com/gpu.count": str(gpus),
        }
    amounts |= {other: str(amount) for other, amount in (resources or {}).items()}
    spec: Object = {"taints": list(taints)} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**all_labels, **(labels or {})}},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def device_uuid(node_name: str, index: int) -> str:
    """The same for every run."""
    digest = hashlib.sha256(f"{node_name}/{index}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def resource_slices(
    node_name: str,
    *,
    gpus: int = 8,
    product: str = PRODUCT,
    memory_mib: int = MEMORY_MIB,
    slice_count: int = 1,
    generation: int = 1,
) -> list[Object]:
    """What a DRA driver publishes of one node: a pool of its name, in `slice_count` slices."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": device_uuid(node_name, index)},
                "productName": {"string": product.replace("-", " ")},
                "brand": {"string": "Nvidia"},
                "architecture": {"string": "Hopper"},
                "cudaComputeCapability": {"version": "9.0.0"},
                "driverVersion": {"version": "580.95.5"},
                "index": {"int": index},
            },
            "capacity": {"memory": {"value": f"{memory_mib}Mi"}},
        }
        for index in range(gpus)
    ]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node_name}-{DRA_DRIVER}-{number}"},
            "spec": {
                "driver": DRA_DRIVER,
                "nodeName": node_name,
                "pool": {
                    "name": node_name,
                    "generation": generation,
                    "resourceSliceCount": slice_count,
                },
                "devices": devices[number::slice_count],
            },
        }
        for number in range(slice_count)
    ]


def device_class(name: str = DEVICE_CLASS) -> Object:
    """Whole GPUs, as NVIDIA's DRA driver names them."""
    expression = (
        f"device.driver == '{DRA_DRIVER}' && device.attributes['{DRA_DRIVER}'].type == 'gpu'"
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def claim_template(name: str, *, gpus: int = 1, namespace: str = "default") -> Object:
    """Claims of its pods ask for that many whole GPUs."""
    request = {"name": "gpus", "exactly": {"deviceClassName": DEVICE_CLASS, "count": gpus}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod_object(
    name: str,
    *,
    gpus: int = 0,
    resource: str = GPU_RESOURCE,
    namespace: str = "default",
    node_name: str | None = None,
    claim_template_name: str | None = None,
    image: str = "engine",
    labels: Mapping[str, str] | None = None,
) -> Object:
    """A pod that holds GPUs: counted ones, or those of a claim made for it from a template.

    `node_name` binds it past the scheduler. The label POD_ADDRESS_LABEL is the address it gets;
    otherwise kwok gives it one, and now and then another one later.
    """
    container: Object = {"name": "main", "image": image}
    spec: Object = {"containers": [container]}
    if gpus:
        container["resources"] = {"limits": {resource: str(gpus)}}
    if claim_template_name is not None:
        spec["resourceClaims"] = [
            {"name": "gpus", "resourceClaimTemplateName": claim_template_name}
        ]
        container["resources"] = {"claims": [{"name": "gpus"}]}
    if node_name is not None:
        spec["nodeName"] = node_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": spec,
    }


def on_node(pod: Object, hostname: str) -> Object:
    """The pod, which the cluster's scheduler may bind there alone."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [hostname]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return pod | {"spec": pod["spec"] | {"affinity": affinity}}


async def make_device_plugin_nodes(api: Api, names: Iterable[str], *, gpus: int = 8) -> None:
    """About 1 s per 100."""
    await api.create_all(node_object(name, gpus=gpus) for name in names)


async def make_dra_nodes(api: Api, names: Iterable[str], *, gpus: int = 8) -> None:
    """With the DeviceClass, which must not be there yet, and one slice for each."""
    names = list(names)
    await api.create(device_class())
    await api.create_all(node_object(name, resource=None) for name in names)
    await api.create_all(each for name in names for each in resource_slices(name, gpus=gpus))
