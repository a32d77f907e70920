"""What a pod asks of its node, by the scheduler's own rule."""

from collections.abc import Callable

from services.cluster.domain.objects import Container, Pod
from services.cluster.domain.quantities import whole
from shared.accelerator_rules.modes import units_per_gpu

FINISHED = frozenset({"Succeeded", "Failed"})


def holds_its_node(pod: Pod) -> bool:
    """Bound and unfinished: also one that is being deleted, until it has gone."""
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED


def effective_request(pod: Pod, is_counted: Callable[[str], bool]) -> dict[str, int]:
    """Of each counted resource as many GPUs as the pod needs at once at any time of its life.

    Init containers run one after another before the containers; those that restart always run from
    then on beside all that follow. What a claim stands for is counted with the claim. A part of a
    GPU counts as all of it: which parts share one is not known.
    """
    claim = pod.status.extended_resource_claim_status
    by_claim = {each.resource_name for each in claim.request_mappings} if claim else set()
    names = {
        name
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name in (*container.resources.requests, *container.resources.limits)
        if is_counted(name) and name not in by_claim
    }
    needs = {name: -(-_need(pod, name) // units_per_gpu(name)) for name in names}
    return {name: count for name, count in needs.items() if count}


def _need(pod: Pod, name: str) -> int:
    beside = most = 0
    for container in pod.spec.init_containers:
        asked = _asked(container, name)
        if container.restart_policy == "Always":
            beside += asked
            most = max(most, beside)
        else:
            most = max(most, beside + asked)
    return max(most, beside + sum(_asked(each, name) for each in pod.spec.containers))


def _asked(container: Container, name: str) -> int:
    resources = container.resources
    return whole(resources.requests.get(name) or resources.limits.get(name) or "0")
