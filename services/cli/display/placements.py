"""Where in a Kubernetes cluster a reservation's GPUs are, as text."""

from schemas.cluster.nodes import GpuSupply
from schemas.gpus.device_grant import ClusterPlacement
from schemas.scheduler.views import ReservationView
from shared.accelerator_rules.modes import memory_resource_of, units_per_gpu
from shared.accelerator_rules.node_labels import HOSTNAME_LABEL, whole_gpu_expressions
from shared.labels import RESERVATION_LABEL


def pod_lines(reservation: ReservationView) -> list[str]:
    """Say how a pod gets the GPUs held of a cluster; empty for devices."""
    if (place := reservation.cluster) is None:
        return []
    lines = [place.message, "a pod takes them with"]
    lines.append(f"  label         {RESERVATION_LABEL}: {reservation.reservation_id}")
    if place.hostname is not None:
        lines.append(f"  nodeSelector  {HOSTNAME_LABEL}: {place.hostname}")
    elif place.units is None:
        for expression in whole_gpu_expressions(place.resource, place.avoided_hostnames):
            values = f" [{', '.join(expression['values'])}]" if "values" in expression else ""
            lines.append(f"  nodeAffinity  {expression['key']} {expression['operator']}{values}")
    if place.supply is GpuSupply.DRA:
        lines.append(f"  claim         {place.gpus} of DeviceClass {place.resource}")
    elif place.resource is not None:
        units = place.units or place.gpus * units_per_gpu(place.resource)
        lines.append(f"  limit         {place.resource}: {units}")
        if place.memory_units is not None:
            memory = memory_resource_of(place.resource)
            lines.append(f"  limit         {memory}: {place.memory_units}")
    return lines


def placement_text(placement: ClusterPlacement | None) -> str:
    """`k8s/gpu-7`, or `k8s` where the cluster's own scheduler chooses."""
    if placement is None:
        return ""
    node = placement.node_name
    return f"{placement.cluster_id}/{node}" if node is not None else placement.cluster_id
