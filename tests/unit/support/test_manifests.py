"""What every manifest of ours keeps to, without a cluster."""

from typing import Any

import pytest

from services.cluster.settings import ClusterSettings
from services.executor.settings import ExecutorSettings
from services.scheduler.settings import SchedulerSettings
from services.telemetry.settings import TelemetrySettings
from shared.settings import load_settings
from tests.support.kubernetes.manifests import MANIFESTS, pod_templates, rendered

TEMPLATES = {name: template["spec"] for name, _, template in pod_templates()}
CONTAINERS = {name: spec["containers"] for name, spec in TEMPLATES.items()}
every_pod = pytest.mark.parametrize("name", TEMPLATES)


def test_every_file_is_part_of_a_kustomization() -> None:
    files = {path for path in MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml"}
    objects = rendered()

    assert sum(text.read_text().count("\nkind: ") for text in files) == len(objects)
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in objects
    ]
    assert len(names) == len(set(names))


@every_pod
def test_a_pod_may_as_little_as_it_can(name: str) -> None:
    spec = TEMPLATES[name]

    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "hostNetwork" not in spec
    assert "hostIPC" not in spec
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert "readinessProbe" in container
    if name != "telemetry":
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert "hostPID" not in spec
    calls_the_api = name in {"cluster", "executor", "telemetry"}
    assert spec["automountServiceAccountToken"] is calls_the_api


@every_pod
def test_what_is_mounted_of_the_host_is_kubelets_folder_alone_and_read_only(name: str) -> None:
    paths = [each["hostPath"]["path"] for each in TEMPLATES[name]["volumes"] if "hostPath" in each]
    mounts = {each["name"]: each for each in CONTAINERS[name][0]["volumeMounts"]}

    assert paths == (["/var/lib/kubelet/pod-resources"] if name == "telemetry" else [])
    assert mounts.keys() == {each["name"] for each in TEMPLATES[name]["volumes"]}
    for each in ("credentials", "pod-resources", "tokens"):
        assert mounts.get(each, {"readOnly": True})["readOnly"] is True


def test_there_are_two_schedulers() -> None:
    [scheduler] = [
        each
        for each in rendered()
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "scheduler"
    ]
    assert scheduler["spec"]["replicas"] == 2


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    maps = {
        each["metadata"]["name"]: each["data"] for each in rendered() if each["kind"] == "ConfigMap"
    }
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= maps[source["configMapRef"]["name"]]
    given = {each["name"]: each.get("value") or referred(each) for each in container["env"]}
    return found | given


def referred(variable: dict[str, Any]) -> str:
    """Of a secret, which only databases' addresses come from, or of the pod's node."""
    is_secret = "secretKeyRef" in variable["valueFrom"]
    return "postgresql://db.example.org/steward" if is_secret else "node-1.example.org"


def test_the_settings_are_ones_that_there_are() -> None:
    telemetry = environment_of(CONTAINERS["telemetry"][0])
    agent = load_settings(TelemetrySettings, "telemetry", telemetry)
    scheduler = load_settings(
        SchedulerSettings, "scheduler", environment_of(CONTAINERS["scheduler"][0])
    )

    watcher = load_settings(ClusterSettings, "cluster", environment_of(CONTAINERS["cluster"][0]))
    executor = load_settings(
        ExecutorSettings, "executor", environment_of(CONTAINERS["executor"][0])
    )

    assert (watcher.node_id, executor.node_id) == ("cluster", "cluster")
    assert (executor.cluster, executor.cluster_namespace) == (True, "gpusteward-engines")
    assert agent.labels == "gpusteward.io/cluster=cluster"
    assert agent.node_id.startswith("node-1-example-org-")
    assert agent.kubernetes_node == "node-1.example.org"
    assert scheduler.admits("cluster")
    assert not scheduler.admits("node-1")
