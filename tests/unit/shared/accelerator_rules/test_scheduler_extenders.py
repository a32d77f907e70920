"""What a cluster lacks for parts of GPUs, and the configuration that names its extenders."""

from typing import Any

import pytest

from schemas.gpus.checks import GpuMode, Verdict
from shared.accelerator_rules.scheduler_extenders import (
    CONFIGURATION_PATH,
    PLUGINS,
    ClusterSetup,
    DaemonSet,
    check_setup,
    extender,
    plugins_in_use,
    scheduler_configuration,
)

PGPU, VGPU, MPS = PLUGINS
APISERVER = "192.168.130.240:6443"
OPTION = f"--config={CONFIGURATION_PATH}"


def configuration(version: str = "v1", **changes: Any) -> dict[str, Any]:
    entry = {**extender(VGPU, APISERVER), **changes}
    kind = {"apiVersion": f"kubescheduler.config.k8s.io/{version}"}
    return {**kind, "kind": "KubeSchedulerConfiguration", "extenders": [entry]}


def without(name: str) -> dict[str, Any]:
    made = configuration()
    del made["extenders"][0][name]
    return made


def setup(**changes: Any) -> ClusterSetup:
    """All that GPU-Manager takes."""
    whole: dict[str, Any] = {
        "kubernetes": (1, 34),
        "resources": {VGPU.resource: 800},
        "daemon_sets": {VGPU.daemon_set: DaemonSet(1, 1)},
        "services": frozenset({VGPU.service}),
        "commands": {"kube-scheduler-a": ["kube-scheduler", OPTION]},
        "configurations": {"a.yaml": configuration()},
    }
    return ClusterSetup(**whole | changes)


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        pytest.param({}, set(), id="whole"),
        pytest.param({"resources": {}}, {"device_plugin"}, id="nothing is counted"),
        pytest.param(
            {"resources": {}, "daemon_sets": {}}, {"device_plugin"}, id="no plugin is there"
        ),
        pytest.param(
            {"daemon_sets": {VGPU.daemon_set: DaemonSet(3, 2)}},
            {"device_plugin_ready"},
            id="one is not ready",
        ),
        pytest.param({"services": frozenset()}, {"extender_service"}, id="no extender"),
        pytest.param(
            {"commands": {"kube-scheduler-a": ["kube-scheduler", "--config", "/other.yaml"]}},
            {"scheduler_config_option"},
            id="another file",
        ),
        pytest.param(
            {"commands": {"kube-scheduler-a": ["kube-scheduler", "--config", CONFIGURATION_PATH]}},
            set(),
            id="the file as a word of its own",
        ),
        pytest.param(
            {"commands": {"kube-scheduler-a": ["kube-scheduler", "--config"]}},
            {"scheduler_config_option"},
            id="an option without its file",
        ),
        pytest.param({"commands": {}}, {"scheduler_config_option"}, id="the scheduler is hidden"),
        pytest.param(
            {"commands": {}, "kubernetes": (1, 23), "configurations": {}},
            {"scheduler_config_option"},
            id="1.23",
        ),
        pytest.param({"commands": {}, "kubernetes": (1, 22)}, {"configuration_version"}, id="1.22"),
        pytest.param({"configurations": {}}, set(), id="no file was given"),
        pytest.param(
            {"configurations": {"a.yaml": configuration(managedResources=[])}},
            {"extender_configured"},
            id="it manages nothing",
        ),
        pytest.param(
            {"configurations": {"a.yaml": configuration(urlPrefix="https://elsewhere")}},
            {"extender_configured"},
            id="it is elsewhere",
        ),
        pytest.param(
            {"configurations": {"a.yaml": without("nodeCacheCapable")}}, set(), id="its default"
        ),
        pytest.param(
            {"configurations": {"a.yaml": without("enableHTTPS")}},
            {"extender_configured"},
            id="without TLS",
        ),
        pytest.param(
            {"configurations": {"a.yaml": {"kind": "Policy"}}},
            {"configuration_kind", "extender_configured"},
            id="no configuration",
        ),
    ],
)
def test_what_is_missing_is_named_by_its_rule(changes: dict[str, Any], rules: set[str]) -> None:
    findings = check_setup(setup(**changes), [VGPU])

    bad = [each for each in findings if each.verdict is not Verdict.SUPPORTED]
    assert {each.rule for each in bad} == rules
    assert all(each.action for each in bad)


@pytest.mark.parametrize(
    ("daemon_sets", "says"),
    [
        ({}, f"there is no DaemonSet {VGPU.daemon_set}"),
        ({VGPU.daemon_set: DaemonSet(1, 1)}, f"DaemonSet {VGPU.daemon_set} is there"),
    ],
)
def test_no_count_tells_whether_plugin_is_present(
    daemon_sets: dict[str, DaemonSet], says: str
) -> None:
    findings = check_setup(setup(resources={}, daemon_sets=daemon_sets), [VGPU])

    (lack,) = [each for each in findings if each.rule == "device_plugin"]
    assert says in lack.message


@pytest.mark.parametrize(
    ("kubernetes", "version", "is_read"),
    [
        ((1, 21), "v1beta2", False),
        ((1, 22), "v1beta2", True),
        ((1, 22), "v1beta3", False),
        ((1, 23), "v1beta2", True),
        ((1, 24), "v1", False),
        ((1, 25), "v1", True),
        ((1, 27), "v1beta2", True),
        ((1, 28), "v1beta2", False),
        ((1, 28), "v1beta3", True),
        ((1, 29), "v1beta3", False),
    ],
)
def test_configuration_fits_its_kubernetes_version(
    kubernetes: tuple[int, int], version: str, *, is_read: bool
) -> None:
    given = {"a.yaml": configuration(version)}

    findings = check_setup(setup(kubernetes=kubernetes, configurations=given), [VGPU])

    assert ("configuration_version" not in {each.rule for each in findings}) is is_read
    own = scheduler_configuration([VGPU], apiserver=APISERVER, kubernetes=kubernetes)
    again = check_setup(setup(kubernetes=kubernetes, configurations={"own": own}), [VGPU])
    assert {each.verdict for each in again} == {Verdict.SUPPORTED}


def test_whole_gpus_need_no_extender() -> None:
    whole = setup(resources={PGPU.resource: 8}, configurations={}, commands={}, daemon_sets={})

    findings = check_setup(whole, [PGPU])

    assert [each.rule for each in findings] == ["device_plugin"]


def test_plugins_are_those_counted_or_present() -> None:
    both = setup(services=frozenset({MPS.service}))

    assert [each.mode for each in plugins_in_use(both)] == [GpuMode.VGPU, GpuMode.MPS]
    assert plugins_in_use(setup(resources={}, services=frozenset(), daemon_sets={})) == ()


def test_plugins_are_configured_as_documented() -> None:
    assert extender(MPS, APISERVER) == {
        "enableHTTPS": True,
        "filterVerb": "predicates",
        "managedResources": [{"ignoredByScheduler": False, "name": "nvidia.com/mps-core"}],
        "nodeCacheCapable": False,
        "urlPrefix": f"https://{APISERVER}/api/v1/namespaces/kube-system/services/"
        "nvidia-mps-scheduler-plugin/proxy/scheduler",
        "tlsConfig": {
            "insecure": False,
            "certFile": "/etc/kubernetes/pki/apiserver-kubelet-client.crt",
            "keyFile": "/etc/kubernetes/pki/apiserver-kubelet-client.key",
            "caFile": "/etc/kubernetes/pki/ca.crt",
        },
    }
