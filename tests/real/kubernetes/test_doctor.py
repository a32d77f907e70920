"""`gpusteward doctor` in front of a real API."""

from asyncio import to_thread
from pathlib import Path

from services.cli.doctor.check import State
from services.cli.doctor.host_facts import HostFacts
from services.cli.doctor.kubernetes import cluster, gpus, ome, permissions
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
    WATCHER_PROXY_RIGHTS,
    WATCHER_RIGHTS,
)
from tests.support.kubernetes.api import ApiError
from tests.support.kubernetes.control_plane import ControlPlane, rule_of
from tests.support.kubernetes.kueue import kueue_kind
from tests.support.kubernetes.nodes import make_device_plugin_nodes, make_dra_nodes, node_object

TIMEOUT_SECONDS = 60.0


def facts_of(plane: ControlPlane, user: str = "admin", **environment: str) -> HostFacts:
    return HostFacts(
        data_dir=Path("nowhere"),
        environment={"KUBECONFIG": str(plane.kubeconfig(user)), **environment},
        program_seconds=TIMEOUT_SECONDS,
    )


async def test_doctor_finds_gpus_of_both_kinds(
    empty_cluster: ControlPlane,
) -> None:
    bare = await to_thread(gpus, facts_of(empty_cluster))
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, ["node-0", "node-1"])
        await make_dra_nodes(api, ["node-2"])

    found = await to_thread(gpus, facts_of(empty_cluster))

    assert (bare.state, "operator" in bare.fix) == (State.MISSING, True)
    assert found.state is State.OK
    assert found.found == "3 nodes: 16 nvidia.com/gpu, 8 devices of gpu.nvidia.com"


async def test_units_that_are_no_gpus_are_told_as_such(empty_cluster: ControlPlane) -> None:
    sharing = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "6"}
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, ["node-0"])
        t4 = node_object("t4", gpus=12, labels={"nvidia.com/gpu.count": "2", **sharing})
        await api.create_all([t4, node_object("more", gpus=9, labels={"gpushare": "true"})])

    found = await to_thread(gpus, facts_of(empty_cluster))

    assert found.found == (
        "3 nodes: 29 nvidia.com/gpu; not every unit is a GPU: more (and 1 more): gpushare=true:"
        " pods share its GPUs; take a node of exclusive GPUs"
    )


async def test_a_login_hears_what_it_may_not(empty_cluster: ControlPlane) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    await empty_cluster.allow("watcher", rules)
    named = {"GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACE": "engines"}

    everything = await to_thread(permissions, facts_of(empty_cluster))
    some = facts_of(empty_cluster, "watcher", **named)
    partly = await to_thread(permissions, some)

    assert everything.state is State.OK
    assert partly.state is State.MISSING
    assert "lacks rights on" in partly.found
    assert "may not list/watch/get nodes, watch pods" in partly.fix
    assert "delete pods in engines, get pods/log in engines" in partly.fix
    assert "permissions.yaml" in partly.fix
    assert (await to_thread(gpus, some)).state is State.WARN


async def test_doctor_names_rights_it_lacks(
    ome_cluster: ControlPlane,
) -> None:
    needed = [
        *(*WATCHER_RIGHTS, *WATCHER_DRA_RIGHTS, *WATCHER_EXEC_RIGHTS, *EXECUTOR_RIGHTS),
        *(*ENGINE_RIGHTS, *ENGINE_DRA_RIGHTS, *OME_RIGHTS, *OME_CLUSTER_RIGHTS),
    ]
    await ome_cluster.allow("watcher", [rule_of(each) for each in needed])
    async with ome_cluster.api() as api, kueue_kind(api):
        bare = await to_thread(permissions, facts_of(ome_cluster, "watcher"))
        telling = (*WATCHER_PROXY_RIGHTS, *DEVICE_RIGHTS)
        for each in (*telling, *OME_DEFINITION_RIGHTS, *KUEUE_RIGHTS, *SECRET_RIGHTS):
            await ome_cluster.allow("watcher", [rule_of(each)])
        whole = await to_thread(permissions, facts_of(ome_cluster, "watcher"))

    assert bare.state is State.WARN
    assert "how busy GPUs are, by dcgm-exporter (get pods/proxy)" in bare.found
    assert "which custom devices there are (list/watch configmaps in kube-public)" in bare.found
    assert bare.found.count("which fields of ours OME knows") == 1
    assert "why Kueue holds an engine back (list/watch workloads.kueue.x-k8s.io" in bare.found
    assert whole.state is State.OK


async def test_doctor_checks_ome_and_kubernetes_version(empty_cluster: ControlPlane) -> None:
    facts = facts_of(empty_cluster)
    async with empty_cluster.api() as api:
        try:
            await api.get("apis/ome.io")
            expected = State.OK
        except ApiError:
            expected = State.MISSING

    assert (await to_thread(ome, facts)).state is expected
    answers = await to_thread(cluster, facts)
    assert answers.state is State.OK
    assert "Kubernetes v1.34" in answers.found


async def test_expired_login_is_not_a_cluster_without_gpus(
    empty_cluster: ControlPlane, tmp_path: Path
) -> None:
    ended = tmp_path / "kubeconfig"
    text = empty_cluster.kubeconfig().read_text()
    ended.write_text(text.replace(empty_cluster.token(), "no such token"))
    facts = facts_of(empty_cluster, KUBECONFIG=str(ended))

    seen = await to_thread(gpus, facts)

    assert (seen.state, "Unauthorized" in seen.found) == (State.WARN, True)
    assert (await to_thread(ome, facts)).state is State.NOT_APPLICABLE
