"""GPUs that pods hold, counted from the API's own JSON and by none of our code."""

from collections import Counter

from shared.testing import eventually
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.nodes import GPU_RESOURCE


async def counted_by_plugin(api: Api) -> dict[str, int]:
    """Of every node with GPUs how many are asked for."""
    held: Counter[str] = Counter()
    for pod in await api.items("api/v1/pods"):
        if pod["status"].get("phase") in {"Pending", "Running"} and "nodeName" in pod["spec"]:
            for container in pod["spec"]["containers"]:
                limits = container.get("resources", {}).get("limits", {})
                held[pod["spec"]["nodeName"]] += int(limits.get(GPU_RESOURCE, 0))
    nodes = await api.items("api/v1/nodes")
    return {
        node["metadata"]["name"]: held[node["metadata"]["name"]]
        for node in nodes
        if GPU_RESOURCE in node["status"].get("allocatable", {})
    }


async def counted_by_claims(api: Api) -> dict[str, int]:
    """The same where claims hold devices: pools have their node's name."""
    held: Counter[str] = Counter()
    for claim in await api.items("apis/resource.k8s.io/v1/resourceclaims"):
        allocation = claim.get("status", {}).get("allocation")
        for result in allocation["devices"]["results"] if allocation else ():
            held[result["pool"]] += 1
    slices = await api.items("apis/resource.k8s.io/v1/resourceslices")
    nodes = {each["metadata"]["name"] for each in await api.items("api/v1/nodes")}
    return {each: held[each] for each in {one["spec"]["nodeName"] for one in slices} & nodes}


async def until_bound(api: Api, pods: int) -> None:
    async def bound() -> bool:
        found = await api.items("api/v1/pods", fieldSelector="spec.nodeName!=")
        return len(found) == pods

    await eventually(bound, within_seconds=60, every_seconds=0.2, what=f"{pods} bound pods")


def names(count: int) -> list[str]:
    return [f"node-{number:03}" for number in range(count)]
