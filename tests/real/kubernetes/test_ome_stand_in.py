"""The stand-in for OME's controller on a real control plane; its rules are in
tests/unit/support/test_ome_rules.py.
"""

from collections.abc import AsyncIterator
from ipaddress import ip_address, ip_network

import pytest

from shared.testing import eventually
from tests.support.kubernetes.api import Api, ApiError, Object
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.kubernetes.ome_stand_in import ome_stand_in

SERVICES = "apis/ome.io/v1beta1/namespaces/default/inferenceservices"
RUNTIMES = "apis/ome.io/v1beta1/namespaces/default/servingruntimes"
PODS = "api/v1/namespaces/default/pods"


def runtime(image: str = "engine:1") -> Object:
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ServingRuntime",
        "metadata": {"name": "engine"},
        "spec": {
            "engineConfig": {
                "runner": {
                    "name": "ome-container",
                    "image": image,
                    "command": ["serve", "--tp-size=2"],
                    "resources": {"limits": {"nvidia.com/gpu": "2"}},
                }
            }
        },
    }


def service(name: str = "chat", **engine: object) -> Object:
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {
            "runtime": {"name": "engine", "kind": "ServingRuntime"},
            "engine": engine,
        },
    }


@pytest.fixture
async def api(ome_cluster: ControlPlane) -> AsyncIterator[Api]:
    async with ome_cluster.api() as api:
        await make_device_plugin_nodes(api, ["node-0"])
        yield api


async def ready_url(api: Api, name: str = "chat") -> str | None:
    status = (await api.get(f"{SERVICES}/{name}")).get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    url: str | None = status.get("url") if conditions.get("Ready") == "True" else None
    return url


async def test_ome_service_becomes_pods_and_is_ready(api: Api, ome_cluster: ControlPlane) -> None:
    async with ome_stand_in(ome_cluster, url_of="http://127.0.0.1:1"):
        await api.create(runtime())
        await api.create(service(minReplicas=1))

        async def is_ready() -> bool:
            return await ready_url(api) == "http://127.0.0.1:1"

        await eventually(is_ready, within_seconds=30, what="the service to be ready")
        [pod] = await api.items(PODS, labelSelector="ome.io/inferenceservice=chat")
        assert pod["spec"]["nodeName"] == "node-0"
        assert pod["spec"]["containers"][0]["command"] == ["serve", "--tp-size=2"]
        networks = ome_cluster.networks
        assert ip_address(pod["status"]["podIP"]) in ip_network(networks.pods)
        front = await api.get("api/v1/namespaces/default/services/chat")
        assert ip_address(front["spec"]["clusterIP"]) in ip_network(networks.services)


async def test_deleting_ome_service_deletes_its_objects(
    api: Api, ome_cluster: ControlPlane
) -> None:
    async with ome_stand_in(ome_cluster) as stand_in:
        await api.create(runtime())
        await api.create(service())

        async def is_ready() -> bool:
            return await ready_url(api) is not None

        async def all_is_gone() -> bool:
            return not (await api.items(PODS) or await api.items(SERVICES))

        await eventually(is_ready, within_seconds=30)
        with stand_in.paused():
            await api.delete(f"{SERVICES}/chat")
            held = await api.get(f"{SERVICES}/chat")
            assert "deletionTimestamp" in held["metadata"]
            assert await api.items(PODS)
        await eventually(all_is_gone, within_seconds=30, what="everything to be gone")


async def test_a_runtime_that_changes_changes_the_pods(api: Api, ome_cluster: ControlPlane) -> None:
    async with ome_stand_in(ome_cluster):
        await api.create(runtime())
        await api.create(service())

        async def image_is(image: str) -> bool:
            pods = await api.items(PODS)
            return [each["spec"]["containers"][0]["image"] for each in pods] == [image]

        await eventually(lambda: image_is("engine:1"), within_seconds=30)
        await api.apply(runtime("engine:2"), manager="test")
        await eventually(lambda: image_is("engine:2"), within_seconds=30)


@pytest.mark.parametrize("image", ["no-such-image:1", "crashing:1"])
async def test_failing_ome_engine_is_never_ready(
    api: Api, ome_cluster: ControlPlane, image: str
) -> None:
    async with ome_stand_in(ome_cluster):
        await api.create(runtime(image))
        await api.create(service())

        async def waits_for_its_container() -> bool:
            return any(
                "waiting" in container["state"]
                for each in await api.items(PODS)
                for container in each["status"].get("containerStatuses", [])
            )

        await eventually(waits_for_its_container, within_seconds=30)
        assert await ready_url(api) is None


@pytest.mark.long
async def test_ome_stand_in_survives_apiserver_restart(api: Api, ome_cluster: ControlPlane) -> None:
    async with ome_stand_in(ome_cluster):
        await api.create(runtime())
        await ome_cluster.restart_apiserver()
        await api.create(service())

        async def is_ready() -> bool:
            return await ready_url(api) is not None

        await eventually(is_ready, within_seconds=30)


async def test_a_missing_runtime_is_said_in_the_status(api: Api, ome_cluster: ControlPlane) -> None:
    async with ome_stand_in(ome_cluster):
        await api.create(service())

        async def is_said() -> bool:
            found = await api.get(f"{SERVICES}/chat")
            reasons = [each.get("reason") for each in found.get("status", {}).get("conditions", [])]
            return "RuntimeNotFound" in reasons

        await eventually(is_said, within_seconds=30)


async def test_the_kinds_are_held_to_their_schema(api: Api) -> None:
    with pytest.raises(ApiError, match="422"):
        await api.create(service(minReplicas="one"))
