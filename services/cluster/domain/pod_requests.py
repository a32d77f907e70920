"""What a pod asks of its node, by the scheduler's own rule."""

from collections.abc import Callable, Iterable, Mapping

from schemas.base import LARGEST_INTEGER
from schemas.cluster.nodes import HostAmounts
from services.cluster.domain.objects import Pod, Resources
from shared.accelerator_rules.quantities import mebibytes, mebibytes_up, milli, milli_down, whole

FINISHED = frozenset({"Succeeded", "Failed"})


def holds_its_node(pod: Pod) -> bool:
    """Bound and unfinished: also one that is being deleted, until it has gone."""
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED


def effective_request(pod: Pod, is_counted: Callable[[str], bool]) -> dict[str, int]:
    """Of each counted resource as many as the pod needs at once at any time of its life.

    Init containers run one after another before the containers; those that restart always run from
    then on beside all that follow. What a claim stands for is counted with the claim.
    """
    claim = pod.status.extended_resource_claim_status
    by_claim = {each.resource_name for each in claim.request_mappings} if claim else set()
    names = {
        name
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name in (*container.resources.requests, *container.resources.limits)
        if is_counted(name) and name not in by_claim
    }
    needs = {name: _need(pod, name) for name in names}
    return {name: count for name, count in needs.items() if count}


def host_request(pod: Pod) -> HostAmounts:
    """What the pod needs of its node beside GPUs at any time of its life, with its overhead."""

    def needed(name: str, amount: Callable[[str], int]) -> int:
        whole_pod = _asked_of(pod.spec.resources, name) if pod.spec.resources else ""
        own = amount(whole_pod) if whole_pod else _need(pod, name, amount)
        return min(own + amount(pod.spec.overhead.get(name, "0")), LARGEST_INTEGER)

    return HostAmounts(
        cpu_milli=needed("cpu", milli),
        memory_mb=needed("memory", mebibytes_up),
        ephemeral_storage_mb=needed("ephemeral-storage", mebibytes_up),
        pods=1,
    )


def host_of(quantities: Mapping[str, str]) -> HostAmounts:
    """What a node says that its pods may have beside GPUs."""
    return HostAmounts(
        cpu_milli=min(milli_down(quantities.get("cpu", "0")), LARGEST_INTEGER),
        memory_mb=min(mebibytes(quantities.get("memory", "0")), LARGEST_INTEGER),
        ephemeral_storage_mb=min(
            mebibytes(quantities.get("ephemeral-storage", "0")), LARGEST_INTEGER
        ),
        pods=min(whole(quantities.get("pods", "0")), LARGEST_INTEGER),
    )


def total(amounts: Iterable[HostAmounts]) -> HostAmounts:
    """Their sum."""
    known = list(amounts)
    return HostAmounts(
        cpu_milli=min(sum(each.cpu_milli for each in known), LARGEST_INTEGER),
        memory_mb=min(sum(each.memory_mb for each in known), LARGEST_INTEGER),
        ephemeral_storage_mb=min(sum(each.ephemeral_storage_mb for each in known), LARGEST_INTEGER),
        pods=sum(each.pods for each in known),
    )


def _need(pod: Pod, name: str, amount: Callable[[str], int] = whole) -> int:
    beside = most = 0
    for container in pod.spec.init_containers:
        asked = amount(_asked_of(container.resources, name) or "0")
        if container.restart_policy == "Always":
            beside += asked
            most = max(most, beside)
        else:
            most = max(most, beside + asked)
    asked_by_all = sum(
        amount(_asked_of(each.resources, name) or "0") for each in pod.spec.containers
    )
    return max(most, beside + asked_by_all)


def _asked_of(resources: Resources, name: str) -> str:
    """A limit is a request too where none is given."""
    return resources.requests.get(name) or resources.limits.get(name) or ""
