"""The chart in a real API: taken as it is, and no account may more than it needs."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from shared.kubernetes.requirements import (
    DEVICE_RIGHTS,
    ENGINE_DRA_RIGHTS,
    ENGINE_RIGHTS,
    EXECUTOR_RIGHTS,
    KUEUE_RIGHTS,
    OME_CLUSTER_RIGHTS,
    OME_DEFINITION_RIGHTS,
    OME_RIGHTS,
    SECRET_RIGHTS,
    WATCHER_DRA_RIGHTS,
    WATCHER_EXEC_RIGHTS,
    WATCHER_RIGHTS,
    Right,
)
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.chart import (
    CHART,
    EXAMPLES,
    RELEASE,
    install,
    pod_templates,
    rendered,
    run_helm,
    token_of,
    until_no_namespace_ends,
)
from tests.support.kubernetes.control_plane import ControlPlane

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
    "executor": (
        *(*ENGINE_RIGHTS, *ENGINE_DRA_RIGHTS, *OME_RIGHTS, *KUEUE_RIGHTS, *SECRET_RIGHTS),
    ),
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


@pytest.mark.parametrize("example", EXAMPLES)
async def test_api_takes_what_values_make(empty_cluster: ControlPlane, example: str) -> None:
    async with empty_cluster.api() as admin:
        await install(admin, "Namespace", example=example)
        for thing in rendered(example):
            # Prometheus' operator and cert-manager bring the kinds of their own.
            brought = {"ServiceMonitor", "PodMonitor", "Certificate"}
            if thing["kind"] not in {"Namespace", *brought}:
                await admin.create(thing, **DRY_RUN)


async def test_release_is_installed_upgraded_and_taken_back(empty_cluster: ControlPlane) -> None:
    release: list[str | Path] = [RELEASE, CHART, "--namespace", RELEASE]
    place: list[str | Path] = ["--kubeconfig", empty_cluster.kubeconfig()]
    async with empty_cluster.api() as admin:
        await until_no_namespace_ends(admin)
        values: list[str | Path] = ["--values", EXAMPLES["smallest"]]
        installed = await asyncio.to_thread(
            run_helm, "install", *release, "--create-namespace", *values, *place
        )
        deployments = await admin.items("apis/apps/v1/deployments")
        secret = f"api/v1/namespaces/{RELEASE}/secrets/gateway-tls"
        made = await admin.get(secret)
        values = ["--values", EXAMPLES["ingress"], "--set", "serviceMonitor.enabled=false"]
        upgraded = await asyncio.to_thread(run_helm, "upgrade", *release, *values, *place)
        kept = await admin.get(secret)
        ingresses = await admin.items("apis/networking.k8s.io/v1/ingresses")
        uninstall = ["uninstall", RELEASE, "--namespace", RELEASE]
        uninstalled = await asyncio.to_thread(run_helm, *uninstall, *place)
        claims = await admin.items("api/v1/persistentvolumeclaims")
        namespaces = await admin.items("api/v1/namespaces")
        roles = await admin.items("apis/rbac.authorization.k8s.io/v1/clusterroles")

    for ended in (installed, upgraded, uninstalled):
        assert ended.returncode == 0, ended.stderr
    assert made["data"] == kept["data"]
    assert "Pods wait until these Secrets are there." in installed.stdout
    names = {thing["metadata"]["name"] for thing in deployments}
    assert names == {"scheduler", "orchestrator", "results", "gateway", "cluster", "executor"}
    assert [thing["spec"]["rules"][0]["host"] for thing in ingresses] == ["gpus.example.org"]
    assert [thing["metadata"]["name"] for thing in claims] == ["executor"]
    assert {"gpusteward-cluster", "gpusteward-engines", "gpusteward-agents"} <= {
        thing["metadata"]["name"] for thing in namespaces
    }
    assert not any(thing["metadata"]["name"].startswith("gpusteward") for thing in roles)


async def test_accounts_of_the_chart_have_least_rights(empty_cluster: ControlPlane) -> None:
    async with empty_cluster.api() as admin:
        await install(admin, "Namespace")
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
