"""The recipes beside other schedulers: their YAML, and a pod that another scheduler binds."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import msgspec
import yaml

from schemas.executor.attempts import Runtime
from schemas.gpus.device_grant import ClusterPlacement
from schemas.task.task_file import TaskFile
from shared.task_files.form import form_of
from tests.support.kubernetes.api import Api, Object, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import pod_engines
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.paths import ROOT
from tests.support.worlds.cluster_executor import ClusterRuntimes, cluster_settings, cluster_start
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import launch_of

PAGE = ROOT / "docs/how-to/operate/beside-other-schedulers.md"
FOREIGN = ("kueue.x-k8s.io/", "scheduling.run.ai/")


def documents() -> Iterator[Object]:
    """Every document of every YAML block of the page."""
    for block in re.findall(r"```yaml\n(.*?)\n *```", PAGE.read_text(), re.DOTALL):
        yield from yaml.safe_load_all(dedent(block))


async def test_yaml_of_the_recipes_is_taken(api: Api) -> None:
    objects = [each for each in documents() if "apiVersion" in each]
    await api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpusteward-engines"}}
    )

    for each in objects:
        if not each["apiVersion"].startswith(FOREIGN):
            await api.create(each, dryRun="All", fieldValidation="Strict")

    assert {each["kind"] for each in objects} == {
        *("ResourceFlavor", "ClusterQueue", "LocalQueue", "Role", "RoleBinding", "Queue")
    }


def test_task_of_the_recipes_is_one() -> None:
    [task] = [each for each in documents() if "apiVersion" not in each]

    form = form_of(msgspec.json.encode(task))

    assert form.mistakes == ()
    gpus = msgspec.json.decode(form.body, type=TaskFile).gpus
    assert gpus is not None
    assert not gpus.select_node


async def test_pod_is_taken_where_another_scheduler_binds_it(
    empty_cluster: ControlPlane, api: Api, runtimes: ClusterRuntimes, tmp_path: Path
) -> None:
    await make_device_plugin_nodes(api, ["node-0", "node-1"])
    settings = cluster_settings(
        empty_cluster, tmp_path, cluster_scheduler="kai-scheduler", cluster_queue="tuning"
    )
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(
        place=ClusterPlacement(cluster_id=NODE, gpus=2, resource="nvidia.com/gpu")
    )
    path = path_to("v1", "Pod", "default")

    async def bind() -> Object:
        """As a scheduler of that name does."""
        while True:
            for pod in await api.items(path, labelSelector="kai.scheduler/queue=tuning"):
                name = pod["metadata"]["name"]
                await api.call(
                    "POST",
                    f"{path}/{name}/binding",
                    {
                        "apiVersion": "v1",
                        "kind": "Binding",
                        "metadata": {"name": name},
                        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
                    },
                )
                return pod
            await asyncio.sleep(0.1)

    async with pod_engines(empty_cluster):
        engine = await runtime.start(launch_of(command, settings))
        async with asyncio.timeout(30):
            pod = await bind()
        await engine.until_ready(60.0)
        [bound] = await api.items(path, labelSelector="gpusteward.reservation")
        await engine.stop(1.0)

    assert pod["spec"]["schedulerName"] == "kai-scheduler"
    assert "nodeName" not in pod["spec"]
    assert bound["spec"]["nodeName"] == "node-1"
