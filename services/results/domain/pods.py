"""Pods of Kubernetes, as they are stored."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct

from schemas.gpus.kinds import GpuKind
from schemas.telemetry.readings import GpuPod

# In place of a pod where it is not known whether one had the device.
UNKNOWN_POD: Final = UUID(int=2**128 - 1)
# A condition on the kind `$4`; `shared` are all that are given in parts.
OF_KIND: Final = "(kind = $4 OR $4 = 'shared' AND kind IN ('vgpu', 'mps', 'time_slice'))"
_NAMELESS: Final = UUID("8f0f7f0c-5d7e-4f39-9f0a-6d1f3c1f7b52")
_RESERVED: Final = frozenset({UUID(int=0), UNKNOWN_POD})


class PodPart(Struct, frozen=True, kw_only=True):
    """What one pod was given of a device, by all of its containers. None is unknown."""

    pod_id: UUID
    namespace: str
    pod: str
    owner: str
    reservation_id: UUID | None
    kind: str
    percent: int | None
    memory_mb: int | None


def pod_id_of(namespace: str, pod: str, uid: str) -> UUID:
    """Return Kubernetes' id of the pod; where it is not known one that follows from the names."""
    known_id = _uuid(uid)
    return (
        uuid5(_NAMELESS, f"{namespace}/{pod}")
        if known_id is None or known_id in _RESERVED
        else known_id
    )


def parts_of(containers: Iterable[GpuPod]) -> list[PodPart]:
    """Add up, by pod, the containers that one device was given to."""
    of_pod: dict[UUID, list[GpuPod]] = {}
    for container in containers:
        if "\0" not in container.namespace + container.pod + container.owner:
            of_pod.setdefault(
                pod_id_of(container.namespace, container.pod, container.uid), []
            ).append(container)
    return [
        PodPart(
            pod_id=pod_id,
            namespace=group[0].namespace,
            pod=group[0].pod,
            owner=group[0].owner,
            reservation_id=_uuid(group[0].reservation_id),
            kind=group[0].kind or GpuKind.PGPU.value,
            percent=_sum((container.percent for container in group), most=100),
            memory_mb=_sum(container.memory_mb for container in group),
        )
        for pod_id, group in of_pod.items()
    ]


def _sum(values: Iterable[int | None], most: int | None = None) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total if most is None else min(most, total)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
