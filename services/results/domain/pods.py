"""Pods of Kubernetes, as they are stored."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct

from schemas.gpus.kinds import GpuKind
from schemas.telemetry.readings import GpuPod

# In place of a pod where it is not known whether one had the device.
UNKNOWN_POD: Final = UUID(int=2**128 - 1)
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
    found = _uuid(uid)
    return uuid5(_NAMELESS, f"{namespace}/{pod}") if found is None or found in _RESERVED else found


def parts_of(containers: Iterable[GpuPod]) -> list[PodPart]:
    """Add up, by pod, the containers that one device was given to."""
    of_pod: dict[UUID, list[GpuPod]] = {}
    for each in containers:
        if "\0" not in each.namespace + each.pod + each.owner:
            of_pod.setdefault(pod_id_of(each.namespace, each.pod, each.uid), []).append(each)
    return [
        PodPart(
            pod_id=pod_id,
            namespace=own[0].namespace,
            pod=own[0].pod,
            owner=own[0].owner,
            reservation_id=_uuid(own[0].reservation_id),
            kind=own[0].kind or GpuKind.PGPU.value,
            percent=_sum((each.percent for each in own), most=100),
            memory_mb=_sum(each.memory_mb for each in own),
        )
        for pod_id, own in of_pod.items()
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
