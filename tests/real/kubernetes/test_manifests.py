"""compose/kubernetes in a real API: taken as it is, and no account may more than it needs."""

from typing import Final

from shared.kubernetes.requirements import (
    DEVICE_RIGHTS,
    ENGINE_DRA_RIGHTS,
    ENGINE_RIGHTS,
    EXECUTOR_RIGHTS,
    KUEUE_RIGHTS,
    OME_CLUSTER_RIGHTS,
    OME_DEFINITION_RIGHTS,
    OME_RIGHTS,
    WATCHER_DRA_RIGHTS,
    WATCHER_EXEC_RIGHTS,
    WATCHER_RIGHTS,
    Right,
)
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.manifests import install, pod_templates, rendered, token_of

DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}
ACCOUNTS: Final = {
    "cluster": "gpusteward-cluster",
    "executor": "gpusteward-cluster",
    "agent": "gpusteward-agents",
    "platform": "gpusteward",
}
# What each needs in the whole cluster, and what in the namespace of engines besides.
NEEDS: Final[dict[str, tuple[Right, ...]]] = {
    "cluster": (*WATCHER_RIGHTS, *WATCHER_DRA_RIGHTS),
    "executor": (*EXECUTOR_RIGHTS, *OME_CLUSTER_RIGHTS, *OME_DEFINITION_RIGHTS),
}
ENGINE_NEEDS: Final[dict[str, tuple[Right, ...]]] = {
    "cluster": WATCHER_EXEC_RIGHTS,
    "executor": (*ENGINE_RIGHTS, *ENGINE_DRA_RIGHTS, *OME_RIGHTS, *KUEUE_RIGHTS),
}
NAMESPACES: Final = ("default", "kube-public", "kube-system", "gpusteward", "gpusteward-engines")
# What joins claims to GPUs, where there are claims; pods to their owners and processes; and how
# GPUs are shared.
AGENT_NEEDS: Final = {
    ("resourceslices.resource.k8s.io", "list"),
    ("pods", "list"),
    ("nodes", "get"),
}
NVIDIA_RUNTIME: Final[Object] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


async def test_everything_is_taken_as_it_is_and_no_account_may_more_than_it_needs(
    empty_cluster: ControlPlane,
) -> None:
    async with empty_cluster.api() as admin:
        await install(admin, "Namespace")
        for each in rendered():
            if each["kind"] != "Namespace":
                await admin.create(each, **DRY_RUN)

        await admit_pods(admin)

        await install(admin, *(each["kind"] for each in rendered() if "spec" not in each))
    for account, home in ACCOUNTS.items():
        token = await token_of(empty_cluster, home, account)
        async with Api.connected(empty_cluster.url, token, str(empty_cluster.ca_file)) as api:
            for namespace in NAMESPACES:
                await check_rules(api, account, namespace)


async def admit_pods(admin: Api) -> None:
    """What deployments would make passes the security level of their namespace."""
    await admin.call("POST", "apis/node.k8s.io/v1/runtimeclasses", NVIDIA_RUNTIME)
    try:
        for name, namespace, template in pod_templates():
            metadata = {**template["metadata"], "name": name, "namespace": namespace}
            pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}
            await admin.create(pod, **DRY_RUN)
    finally:
        await admin.delete("apis/node.k8s.io/v1/runtimeclasses/nvidia")


async def check_rules(api: Api, account: str, namespace: str) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = "apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    answer = await api.call("POST", path, review)
    # Everybody may ask what it may itself.
    own = [
        rule
        for rule in answer["status"]["resourceRules"]
        if not {"authorization.k8s.io", "authentication.k8s.io"}.intersection(rule["apiGroups"])
    ]
    may = {
        (f"{resource}.{group}".rstrip(".") if "/" not in resource else resource, verb)
        for rule in own
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    rights = NEEDS.get(account, ())
    if namespace == "gpusteward-engines":
        rights = (*rights, *ENGINE_NEEDS.get(account, ()))
    if namespace == "kube-public" and account in {"cluster", "executor"}:
        rights = (*rights, *DEVICE_RIGHTS)
    needed = {(each.place, verb) for each in rights for verb in each.verbs}
    if account == "agent":
        needed = AGENT_NEEDS

    assert may == needed
