"""What Kueue puts into a cluster, as far as it is read: its kind of workloads, and one of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from shared.testing import eventually
from tests.support.kubernetes.api import Api, ApiError, Object

GATE: Final = "kueue.x-k8s.io/admission"
QUOTA: Final = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor h100, 1 more needed"
)
_GROUP: Final = "kueue.x-k8s.io"
_VERSION: Final = f"{_GROUP}/v1beta1"
_DEFINITIONS: Final = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@asynccontextmanager
async def kueue_kind(api: Api) -> AsyncIterator[None]:
    """Without its fields: none of them is asked for here."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "workloads", "singular": "workload", "kind": "Workload"}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    await api.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"workloads.{_GROUP}"},
            "spec": {
                "group": _GROUP,
                "names": names,
                "scope": "Namespaced",
                "versions": [version],
            },
        }
    )

    async def is_served() -> bool:
        try:
            await api.get(f"apis/{_VERSION}/workloads")
        except ApiError:
            return False
        return True

    await eventually(is_served, within_seconds=30, what="workloads of Kueue")
    try:
        yield
    finally:
        await api.delete(f"{_DEFINITIONS}/workloads.{_GROUP}")

        async def is_forgotten() -> bool:
            return _GROUP not in [each["name"] for each in (await api.get("apis"))["groups"]]

        await eventually(is_forgotten, within_seconds=30, what="the end of Kueue's kind")


async def hold(api: Api, pod: Object, message: str = QUOTA) -> Object:
    """Kueue's workload of a pod for which there is no quota."""
    metadata = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    at = metadata["creationTimestamp"]
    conditions = [
        {"type": "Admitted", "status": "False", "reason": "NoReservation", "message": "no quota"},
        {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message},
    ]
    return await api.create(
        {
            "apiVersion": _VERSION,
            "kind": "Workload",
            "metadata": {
                "name": f"pod-{metadata['name']}",
                "namespace": metadata["namespace"],
                "ownerReferences": [owner],
            },
            "status": {"conditions": [{**each, "lastTransitionTime": at} for each in conditions]},
        }
    )


async def admit(api: Api, pod: Object) -> None:
    path = f"api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    await api.merge(path, {"spec": {"schedulingGates": None}})
