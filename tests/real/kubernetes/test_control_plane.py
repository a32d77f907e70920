"""The control plane of the tests, before anything of ours uses it."""

import secrets
from collections import Counter
from contextlib import ExitStack, closing, suppress
from ipaddress import IPv4Network, ip_address, ip_network

import pytest

from shared.testing import eventually
from tests.support.kubernetes.api import Api, ApiError, Object
from tests.support.kubernetes.binaries import KUBERNETES_VERSION
from tests.support.kubernetes.control_plane import MANY_NODES, ControlPlane
from tests.support.kubernetes.loopback_networks import LoopbackNetworks
from tests.support.kubernetes.nodes import (
    claim_template,
    device_uuid,
    make_device_plugin_nodes,
    make_dra_nodes,
    pod_object,
)
from tests.support.kubernetes.webhooks import hanging_webhook, refusing_webhook


async def running_pods(api: Api) -> int:
    return sum(each["status"]["phase"] == "Running" for each in await api.items("api/v1/pods"))


def test_control_planes_share_no_address() -> None:
    with ExitStack() as stack:
        claimed = [stack.enter_context(closing(LoopbackNetworks())) for _ in range(40)]

        networks = {IPv4Network(each) for one in claimed for each in (one.pods, one.services)}

    assert len(networks) == 80
    assert all(each.is_loopback for each in networks)
    assert not any(ip_address("127.0.0.1") in each for each in networks)


async def test_pods_that_ask_for_gpus_are_bound_and_run(empty_cluster: ControlPlane) -> None:
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, [f"node-{number}" for number in range(50)])

        await api.create_all(pod_object(f"pod-{number}", gpus=4) for number in range(90))

        async def all_run() -> bool:
            return await running_pods(api) == 90

        await eventually(all_run, within_seconds=60, what="90 running pods")
        pods = await api.items("api/v1/pods")
        assert max(Counter(each["spec"]["nodeName"] for each in pods).values()) <= 2
        network = ip_network(empty_cluster.networks.pods)
        assert all(ip_address(each["status"]["podIP"]) in network for each in pods)
        assert (await api.get("version"))["gitVersion"] == f"v{KUBERNETES_VERSION}"


async def test_claims_get_devices_until_there_are_none(empty_cluster: ControlPlane) -> None:
    async with empty_cluster.api() as api:
        await make_dra_nodes(api, ["node-0"])
        await api.create(claim_template("one-gpu"))

        await api.create_all(
            pod_object(f"pod-{number}", claim_template_name="one-gpu") for number in range(9)
        )

        async def eight_run_and_one_waits() -> bool:
            pods = await api.items("api/v1/pods")
            reasons = [
                condition.get("message", "")
                for each in pods
                for condition in each["status"].get("conditions", ())
            ]
            return await running_pods(api) == 8 and any(
                "cannot allocate all claims" in each for each in reasons
            )

        await eventually(eight_run_and_one_waits, within_seconds=60)
        claims = await api.items("apis/resource.k8s.io/v1/resourceclaims")
        given = [
            result["device"]
            for each in claims
            for result in each["status"].get("allocation", {"devices": {"results": []}})["devices"][
                "results"
            ]
        ]
        assert sorted(given) == [f"gpu-{number}" for number in range(8)]
        assert device_uuid("node-0", 0) != device_uuid("node-0", 1)


@pytest.mark.long
async def test_watch_from_before_restart_expires(empty_cluster: ControlPlane) -> None:
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, ["node-0"])
        before = (await api.get("api/v1/nodes"))["metadata"]["resourceVersion"]
        await api.merge("api/v1/nodes/node-0", {"spec": {"unschedulable": True}})

        await empty_cluster.restart_apiserver()

        events = api.watch("api/v1/nodes", since=before)
        kind, status = await anext(events)
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        await events.aclose()


async def test_users_may_what_their_roles_say(empty_cluster: ControlPlane) -> None:
    await empty_cluster.allow(
        "watcher", [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    )

    async with empty_cluster.api("watcher") as watcher, empty_cluster.api("denied") as denied:
        await eventually_allowed(watcher)
        with pytest.raises(ApiError, match="403 Forbidden"):
            await watcher.items("api/v1/pods")
        with pytest.raises(ApiError, match="403 Forbidden"):
            await denied.items("api/v1/nodes")


async def test_a_deployment_gets_pods_that_go_with_it(empty_cluster: ControlPlane) -> None:
    labels = {"app": "engine"}
    pod = pod_object("unused", labels=labels)
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, ["node-0"])

        await api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "engine"},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
                },
            }
        )

        async def running_are(count: int) -> bool:
            return await running_pods(api) == count

        await eventually(lambda: running_are(2), within_seconds=30)
        path = "apis/apps/v1/namespaces/default/deployments/engine"
        await api.delete(path, propagationPolicy="Background")
        await eventually(lambda: running_are(0), within_seconds=30)


async def test_what_a_pod_does_follows_from_its_image(empty_cluster: ControlPlane) -> None:
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, ["node-0"])

        for image in ("no-such-image", "crashing"):
            await api.create(pod_object(image, image=f"registry.invalid/{image}:1"))

        async def reasons() -> set[str]:
            return {
                container["state"]["waiting"]["reason"]
                for pod in await api.items("api/v1/pods")
                for container in pod["status"].get("containerStatuses", ())
            }

        async def both_wait() -> bool:
            return await reasons() == {"ImagePullBackOff", "CrashLoopBackOff"}

        await eventually(both_wait, within_seconds=30)


async def test_a_pod_has_logs_and_runs_programs(empty_cluster: ControlPlane) -> None:
    program = empty_cluster.pod_programs / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "asked for $*"\n')
    program.chmod(0o755)
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, ["node-0"])
        await api.create(pod_object("pod"))

        async def runs() -> bool:
            return await running_pods(api) == 1

        await eventually(runs, within_seconds=30)
        path = "api/v1/namespaces/default/pods/pod"
        assert await api.get(f"{path}/log") == "a line of a pretended pod\n"
        assert await api.execute(f"{path}/exec", "nvidia-smi", "-q") == "asked for -q\n"


async def test_objects_in_system_namespaces_are_wiped(
    empty_cluster: ControlPlane,
) -> None:
    path = "api/v1/namespaces/kube-system/pods"
    async with empty_cluster.api() as api:
        await api.create(pod_object("of-a-test", namespace="kube-system"))
        assert [each["metadata"]["name"] for each in await api.items(path)] == ["of-a-test"]

        await empty_cluster.wipe()

        assert await api.items(path) == []


@pytest.mark.long
async def test_many_nodes_are_wiped_by_starting_anew(empty_cluster: ControlPlane) -> None:
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, [f"node-{number}" for number in range(MANY_NODES)])

    await empty_cluster.wipe()

    async with empty_cluster.api() as api:
        assert await api.items("api/v1/nodes") == []


async def test_silent_webhook_delays_creations(
    empty_cluster: ControlPlane,
) -> None:
    async with (
        empty_cluster.api() as api,
        hanging_webhook(empty_cluster, resources={"": ["configmaps"]}),
    ):

        async def is_held_up() -> bool:
            try:
                await api.create(config_map(secrets.token_hex(4)))
            except ApiError as error:
                return error.code == 500 and "deadline exceeded" in error.message
            return False

        await eventually(is_held_up)


async def test_a_webhook_that_refuses_says_why(empty_cluster: ControlPlane) -> None:
    async with (
        empty_cluster.api() as api,
        refusing_webhook(empty_cluster, "no quota", resources={"": ["configmaps"]}) as reviews,
    ):

        async def is_refused() -> bool:
            try:
                await api.create(config_map(secrets.token_hex(4)))
            except ApiError as error:
                return "no quota" in error.message
            return False

        await eventually(is_refused)
        assert reviews


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def eventually_allowed(api: Api) -> None:
    async def is_allowed() -> bool:
        with suppress(ApiError):
            await api.items("api/v1/nodes")
            return True
        return False

    await eventually(is_allowed)
