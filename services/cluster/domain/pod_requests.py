"""What a pod asks of its node, by the scheduler's own rule."""

from collections.abc import Callable, Iterable, Mapping

from schemas.base import MAX_INTEGER
from schemas.cluster.nodes import HostAmounts
from shared.accelerator_rules.quantities import mebibytes, mebibytes_up, milli, milli_down, whole
from shared.kubernetes.objects.pods import Pod, Resources

FINISHED = frozenset({"Succeeded", "Failed"})


def holds_its_node(pod: Pod) -> bool:
    """Bound and unfinished: also one that is being deleted, until it has gone."""
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED


def effective_request(pod: Pod, is_counted: Callable[[str], bool]) -> dict[str, int]:
    """Return the largest amount of each counted resource that the pod needs at any time of its
    life.

    Init containers run one after another before the containers; those that restart always run from
    then on beside all that follow. What a claim stands for is counted with the claim.
    """
    claim = pod.status.extended_resource_claim_status
    by_claim = (
        {request_mapping.resource_name for request_mapping in claim.request_mappings}
        if claim
        else set()
    )
    names = {
        name
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name in (*container.resources.requests, *container.resources.limits)
        if is_counted(name) and name not in by_claim
    }
    needs = {name: _need(pod, name) for name in names}
    return {name: count for name, count in needs.items() if count}


def host_request(pod: Pod) -> HostAmounts:
    """Return the CPUs and memory that the pod needs at any time of its life, with its overhead."""

    def amount_needed(name: str, amount: Callable[[str], int]) -> int:
        whole_pod = _quantity_of(pod.spec.resources, name) if pod.spec.resources else ""
        own_amount = amount(whole_pod) if whole_pod else _need(pod, name, amount)
        return min(own_amount + amount(pod.spec.overhead.get(name, "0")), MAX_INTEGER)

    return HostAmounts(
        cpu_milli=amount_needed("cpu", milli),
        memory_mb=amount_needed("memory", mebibytes_up),
        ephemeral_storage_mb=amount_needed("ephemeral-storage", mebibytes_up),
        pods=1,
    )


def host_of(quantities: Mapping[str, str]) -> HostAmounts:
    """Return the CPUs and memory that a node offers its pods."""
    return HostAmounts(
        cpu_milli=min(milli_down(quantities.get("cpu", "0")), MAX_INTEGER),
        memory_mb=min(mebibytes(quantities.get("memory", "0")), MAX_INTEGER),
        ephemeral_storage_mb=min(mebibytes(quantities.get("ephemeral-storage", "0")), MAX_INTEGER),
        pods=min(whole(quantities.get("pods", "0")), MAX_INTEGER),
    )


def total(amounts: Iterable[HostAmounts]) -> HostAmounts:
    """Their sum."""
    host_amounts = list(amounts)
    return HostAmounts(
        cpu_milli=min(sum(amount.cpu_milli for amount in host_amounts), MAX_INTEGER),
        memory_mb=min(sum(amount.memory_mb for amount in host_amounts), MAX_INTEGER),
        ephemeral_storage_mb=min(
            sum(amount.ephemeral_storage_mb for amount in host_amounts), MAX_INTEGER
        ),
        pods=sum(amount.pods for amount in host_amounts),
    )


def _need(pod: Pod, name: str, amount: Callable[[str], int] = whole) -> int:
    beside = most = 0
    for container in pod.spec.init_containers:
        container_amount = amount(_quantity_of(container.resources, name) or "0")
        if container.restart_policy == "Always":
            beside += container_amount
            most = max(most, beside)
        else:
            most = max(most, beside + container_amount)
    asked_by_all = sum(
        amount(_quantity_of(container.resources, name) or "0") for container in pod.spec.containers
    )
    return max(most, beside + asked_by_all)


def _quantity_of(resources: Resources, name: str) -> str:
    """A limit is a request too where none is given."""
    return resources.requests.get(name) or resources.limits.get(name) or ""
