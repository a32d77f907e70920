"""Nodes labelled with their driver's CUDA by an agent, and pods bound by those labels."""

from functools import partial
from pathlib import Path

from services.telemetry.kubernetes.cuda_labels import CudaLabels
from services.telemetry.kubernetes.resource_slices import ClusterApi
from shared.accelerator_rules.cuda_versions import CudaVersion
from shared.accelerator_rules.node_labels import cuda_terms
from shared.testing import eventually
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import make_device_plugin_nodes, pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MAY_PATCH = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}


def api_of(plane: ControlPlane, directory: Path, user: str) -> ClusterApi:
    token = directory / f"{user}.token"
    token.write_text(f"{plane.token(user)}\n")
    return ClusterApi(address=plane.url, token_file=token, authority_file=plane.ca_file)


async def test_pod_is_bound_where_driver_serves_cuda(
    empty_cluster: ControlPlane, tmp_path: Path
) -> None:
    await empty_cluster.allow("watcher", [MAY_PATCH])
    drivers = {"old": "12.2", "fits": "550.144.03", "other": "11.8"}
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, [*drivers, "silent"])
        agent = api_of(empty_cluster, tmp_path, "watcher")
        for node, cuda in drivers.items():
            await CudaLabels(agent, node, partial(str, cuda)).write()
        await CudaLabels(agent, "silent", lambda: None).write()
        await CudaLabels(api_of(empty_cluster, tmp_path, "denied"), "old", lambda: "13.0").write()

        pod = pod_object("engine", gpus=1)
        terms = cuda_terms(CudaVersion(12, 4))
        pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        await api.create(pod)

        async def bound_to() -> str | None:
            found = await api.get("api/v1/namespaces/default/pods/engine")
            node: str | None = found["spec"].get("nodeName")
            return node

        async def is_bound() -> bool:
            return await bound_to() is not None

        await eventually(is_bound, within_seconds=30, what="a node")
        assert await bound_to() == "fits"
        labels = (await api.get("api/v1/nodes/old"))["metadata"]["labels"]
        assert (labels["cuda-major-version"], labels["cuda-minor-version"]) == ("12", "2")


async def test_newer_major_cuda_serves_and_minor_0_is_any(
    empty_cluster: ControlPlane, tmp_path: Path
) -> None:
    await empty_cluster.allow("watcher", [MAY_PATCH])
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, ["old", "new"])
        agent = api_of(empty_cluster, tmp_path, "watcher")
        await CudaLabels(agent, "old", lambda: "11.8").write()
        await CudaLabels(agent, "new", lambda: "13.0").write()
        for name, runtime in (("two", (12, 0)), ("three", (13, 0))):
            pod = pod_object(name, gpus=1)
            terms = cuda_terms(CudaVersion(*runtime))
            pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
            await api.create(pod)

        async def both_are_bound() -> bool:
            found = await api.items("api/v1/namespaces/default/pods")
            return {each["spec"].get("nodeName") for each in found} == {"new"}

        await eventually(both_are_bound, within_seconds=30, what="the node of the newer driver")
