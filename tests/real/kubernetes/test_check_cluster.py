"""`gpusteward check cluster` in front of a real API; the real scheduler reads what it prints."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.accelerator_rules.scheduler_extenders import CONFIGURATION_PATH, PLUGINS
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.binaries import program
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import node_object

pytestmark = pytest.mark.long

_, VGPU, _ = PLUGINS


async def ran(*command: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    told, _ = await process.communicate()
    return process.returncode, told.decode()


async def checked(plane: ControlPlane, *arguments: str) -> tuple[int | None, str]:
    own = ("-m", "services.cli", "check", "cluster", "--kubeconfig", str(plane.kubeconfig()))
    return await ran(sys.executable, *own, *arguments)


async def install(api: Api) -> None:
    """What GPU-Manager and a control node bring, as far as the API shows it."""
    await api.create(node_object("node-0", resource=VGPU.resource, gpus=800))
    labels = {"component": "kube-scheduler"}
    command = ["kube-scheduler", f"--config={CONFIGURATION_PATH}"]
    container = {"name": "kube-scheduler", "image": "kube-scheduler", "command": command}
    service = {"ports": [{"port": 3456}], "selector": {"app": VGPU.service}}
    for api_version, kind, name, spec in (
        ("v1", "Service", VGPU.service, service),
        ("v1", "Pod", "kube-scheduler-a", {"containers": [container]}),
    ):
        metadata = {"name": name, "namespace": "kube-system", "labels": labels}
        made = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
        await api.create(made)


async def test_missing_cluster_parts_come_with_configuration(
    empty_cluster: ControlPlane, api: Api, tmp_path: Path
) -> None:
    bare = await checked(empty_cluster, "--mode", "vgpu", "--json")
    await install(api)
    written = yaml.safe_dump(json.loads(bare[1])["configuration"])
    (tmp_path / "scheduler-config.yaml").write_text(written)
    whole = await checked(
        empty_cluster, "--scheduler-config", str(tmp_path / "scheduler-config.yaml")
    )
    none = yaml.safe_dump(yaml.safe_load(written) | {"extenders": []})
    (tmp_path / "empty.yaml").write_text(none)
    empty = await checked(empty_cluster, "--scheduler-config", str(tmp_path / "empty.yaml"))

    assert bare[0] == 7
    assert {each["rule"] for each in json.loads(bare[1])["findings"]} == {
        *("device_plugin", "extender_service", "scheduler_config_option")
    }
    assert whole[0] == 0, whole[1]
    assert (empty[0], "- enableHTTPS: true" in empty[1]) == (7, True)


@pytest.mark.parametrize(("version", "is_read"), [("v1", True), ("v1beta2", False)])
async def test_scheduler_accepts_printed_configuration(
    empty_cluster: ControlPlane, tmp_path: Path, version: str, *, is_read: bool
) -> None:
    _, told = await checked(empty_cluster, "--mode", "vgpu", "--mode", "mps", "--json")
    given: dict[str, Any] = json.loads(told)["configuration"]
    given["apiVersion"] = f"kubescheduler.config.k8s.io/{version}"
    given["clientConnection"]["kubeconfig"] = str(empty_cluster.kubeconfig())
    authority, key = str(empty_cluster.ca_file), str(empty_cluster.key_file)
    for each in given["extenders"]:  # where this control plane has them
        each["tlsConfig"] |= {"certFile": authority, "keyFile": key, "caFile": authority}
    (tmp_path / "given.yaml").write_text(yaml.safe_dump(given))

    written = tmp_path / "read.yaml"
    _, said = await ran(
        *(str(program("kube-scheduler")), f"--config={tmp_path}/given.yaml", "--secure-port=0"),
        *("--authentication-skip-lookup", f"--write-config-to={written}"),
    )

    assert written.exists() is is_read, said
    if is_read:
        read: dict[str, Any] = yaml.safe_load(written.read_text())
        managed = [each["managedResources"][0]["name"] for each in read["extenders"]]
        assert managed == ["tencent.com/vcuda-core", "nvidia.com/mps-core"]
    else:
        assert "v1beta2" in said
