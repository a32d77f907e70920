"""Custom devices from their ConfigMaps to the pods of experiments, in a real control plane."""

from pathlib import Path

from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.gpus.checks import RequestsPolicy, ResourceDefinition
from schemas.gpus.device_grant import ClusterPlacement
from services.executor.runtimes.runtime import EngineRuntime
from services.orchestrator.domain.installation.offers import Offer
from shared.accelerator_rules.device_config import config_map_of
from shared.testing import eventually
from tests.support.kubernetes.api import Api, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import node_object
from tests.support.worlds.cluster_executor import ClusterRuntimes, cluster_settings, cluster_start
from tests.support.worlds.executor import NODE
from tests.support.worlds.orchestrator_records import make_file, make_plan
from tests.support.worlds.runtime_launches import launch_of

CORES, MEMORY = "vendor.example/npu-cores", "vendor.example/npu-memory"
DEFINITIONS = (
    ResourceDefinition(custom_name="npu", group="npu", key=CORES, default_value=2),
    ResourceDefinition(
        custom_name="npu",
        group="npu",
        key=MEMORY,
        default_value=16,
        requests=RequestsPolicy.DISABLED,
    ),
)


async def offered(runtime: EngineRuntime) -> RuntimeOffer:
    """Once the cluster has answered."""

    async def has_answered() -> bool:
        return (await runtime.offer()).version is not None

    await eventually(has_answered, within_seconds=30, what="an answer")
    return await runtime.offer()


async def test_group_defaults_reach_experiment_pod(
    empty_cluster: ControlPlane, api: Api, runtimes: ClusterRuntimes, tmp_path: Path
) -> None:
    await api.create(node_object("node-0", resource=CORES, resources={MEMORY: 64}))
    await api.create_all(map(config_map_of, DEFINITIONS))
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    offer = await offered(runtime)
    task = make_file(deployment_mode="kubernetes", gpus={"resource": CORES})
    cluster = Offer(executor_id=NODE, runtimes=(offer,), benchmark_tools=("builtin",))

    (planned,) = make_plan(task, (cluster,)).experiments
    place = ClusterPlacement(cluster_id=NODE, gpus=planned.request.gpus, resource=CORES)
    command = cluster_start(names=planned.engine.kubernetes, place=place)
    engine = await runtime.start(launch_of(command, settings))

    async def is_bound() -> bool:
        pods = await api.items(path_to("v1", "Pod", "default"))
        return [each["spec"].get("nodeName") for each in pods] == ["node-0"]

    await eventually(is_bound, within_seconds=30, what="a node")
    (pod,) = await api.items(path_to("v1", "Pod", "default"))
    await engine.stop(1.0)

    assert offer.devices == DEFINITIONS
    assert planned.request.gpus == 2
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {CORES: "2", MEMORY: "16"}
    [made] = [each for each in [planned.engine.kubernetes] if each is not None]
    assert made.devices.requests == {CORES: 2}


async def test_login_without_right_offers_no_devices(
    empty_cluster: ControlPlane, api: Api, runtimes: ClusterRuntimes, tmp_path: Path
) -> None:
    await api.create_all(map(config_map_of, DEFINITIONS))
    runtime = runtimes.make(
        Runtime.KUBERNETES, cluster_settings(empty_cluster, tmp_path, user="denied")
    )

    assert (await offered(runtime)).devices == ()
