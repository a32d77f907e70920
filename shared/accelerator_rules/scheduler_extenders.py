"""What a Kubernetes cluster has to have for parts of GPUs: device plugins, and their extenders of
kube-scheduler with the configuration that names them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.gpus.checks import Finding, GpuMode, Verdict
from shared.accelerator_rules.modes import FORMS

GUIDE: Final = "accelerator guide, Configure Hardware accelerator on GPU nodes"
VERSIONS_SOURCE: Final = "https://www.kubernetes.dev/resources/keps/785/"
CONFIGURATION_PATH: Final = "/etc/kubernetes/scheduler-config.yaml"
MANIFEST: Final = "/etc/kubernetes/manifests/kube-scheduler.yaml"
CONFIGURED_FROM: Final = (1, 23)  # before, a policy file named extenders
GROUP: Final = "kubescheduler.config.k8s.io"
# From which Kubernetes on, and up to which, it is read. The guide writes v1beta2 whatever runs.
VERSIONS: Final[Mapping[str, tuple[tuple[int, int], tuple[int, int]]]] = {
    "v1": ((1, 25), (99, 0)),
    "v1beta3": ((1, 23), (1, 28)),
    "v1beta2": ((1, 22), (1, 27)),
}
KIND: Final = "KubeSchedulerConfiguration"
PKI: Final = "/etc/kubernetes/pki"


class Plugin(Struct, frozen=True, kw_only=True):
    """By which a mode's GPUs are counted. `service` is its extender of kube-scheduler, which is
    asked about pods that want `resource`; None: it needs none.
    """

    mode: GpuMode
    daemon_set: str
    service: str | None = None

    @property
    def resource(self) -> str:
        return next(form.resource for form in FORMS if form.mode is self.mode)


PLUGINS: Final = (
    Plugin(mode=GpuMode.PGPU, daemon_set="nvidia-device-plugin-ds"),
    Plugin(
        mode=GpuMode.VGPU,
        daemon_set="gpu-manager-daemonset",
        service="gpu-quota-admission",
    ),
    Plugin(
        mode=GpuMode.MPS,
        daemon_set="nvidia-mps-device-plugin-daemonset",
        service="nvidia-mps-scheduler-plugin",
    ),
)


class DaemonSet(Struct, frozen=True):
    """Pods that nodes should have, and those that are ready."""

    desired: int
    ready: int


class ClusterSetup(Struct, frozen=True, kw_only=True):
    """What a cluster shows. `resources` are counts over all nodes, `services` those of kube-system.

    `commands` are kube-scheduler's, of each pod by its name; empty: no pod of it is to be seen.
    `configurations` are files of it by their place.
    """

    kubernetes: tuple[int, int]
    resources: Mapping[str, int]
    daemon_sets: Mapping[str, DaemonSet]
    services: frozenset[str]
    commands: Mapping[str, Sequence[str]]
    configurations: Mapping[str, Mapping[str, Any]] = {}


def plugins_in_use(setup: ClusterSetup) -> tuple[Plugin, ...]:
    """Return the plugins whose resource a node counts, or whose own objects exist."""
    return tuple(
        plugin
        for plugin in PLUGINS
        if setup.resources.get(plugin.resource)
        or plugin.daemon_set in setup.daemon_sets
        or plugin.service in setup.services
    )


def check_setup(setup: ClusterSetup, plugins: Iterable[Plugin]) -> tuple[Finding, ...]:
    """Return a finding for everything that each of the plugins has or lacks."""
    plugins_in_use = tuple(plugins)
    extenders = [plugin for plugin in plugins_in_use if plugin.service is not None]
    return (
        *(finding for plugin in plugins_in_use for finding in _plugin(setup, plugin)),
        *(_commands(setup) if extenders and setup.kubernetes >= CONFIGURED_FROM else ()),
        *(
            finding
            for place, configuration in setup.configurations.items()
            if extenders
            for finding in _configuration(setup, place, configuration, extenders)
        ),
    )


def scheduler_configuration(
    plugins: Iterable[Plugin], *, apiserver: str, kubernetes: tuple[int, int]
) -> dict[str, Any]:
    """The whole file for a scheduler that has none."""
    return {
        "apiVersion": f"{GROUP}/{_read_by(kubernetes)[0]}",
        "kind": KIND,
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "extenders": [
            extender(plugin, apiserver) for plugin in plugins if plugin.service is not None
        ],
    }


def extender(plugin: Plugin, apiserver: str) -> dict[str, Any]:
    """Return one entry of `extenders`, reached through the apiserver's proxy."""
    return {
        "enableHTTPS": True,
        "filterVerb": "predicates",
        "managedResources": [{"ignoredByScheduler": False, "name": plugin.resource}],
        "nodeCacheCapable": False,
        "urlPrefix": f"https://{apiserver}/api/v1/namespaces/kube-system/services/"
        f"{plugin.service}/proxy/scheduler",
        "tlsConfig": {
            "insecure": False,
            "certFile": f"{PKI}/apiserver-kubelet-client.crt",
            "keyFile": f"{PKI}/apiserver-kubelet-client.key",
            "caFile": f"{PKI}/ca.crt",
        },
    }


def _plugin(setup: ClusterSetup, plugin: Plugin) -> Iterator[Finding]:
    name, mode = plugin.daemon_set, plugin.mode.value
    pods = setup.daemon_sets.get(name)
    counted = setup.resources.get(plugin.resource, 0)
    if pods is not None and pods.ready < pods.desired:
        yield _lacks(
            "device_plugin_ready",
            f"{pods.ready} of {pods.desired} pods of DaemonSet {name} are ready",
            f"kubectl -n kube-system describe daemonset {name}",
            mode,
        )
    if counted:
        yield _has("device_plugin", f"nodes count {counted} {plugin.resource}", mode)
    elif pods is None:
        yield _lacks(
            "device_plugin",
            f"no node counts {plugin.resource}, and there is no DaemonSet {name}",
            f"install the plugin with its option for {mode}, and label the nodes meant for it",
            mode,
        )
    else:
        yield _lacks(
            "device_plugin",
            f"DaemonSet {name} is there, and no node counts {plugin.resource}",
            f"give nodes the device label of {mode}; look at the log of its pods for the driver",
            mode,
        )
    if plugin.service is not None and plugin.service not in setup.services:
        yield _lacks(
            "extender_service",
            f"there is no Service {plugin.service} in kube-system, which the scheduler would ask",
            f"install the plugin with its option for {mode}",
            mode,
        )


def _commands(setup: ClusterSetup) -> Iterator[Finding]:
    if not setup.commands:
        yield Finding(
            verdict=Verdict.CASE_BY_CASE,
            rule="scheduler_config_option",
            message="no pod of kube-scheduler is to be seen: it runs elsewhere, or is hidden",
            action=f"see that it is started with --config={CONFIGURATION_PATH}",
            source=GUIDE,
            subject="kube-scheduler",
        )
    for pod, command in setup.commands.items():
        if _option(command, "--config") == CONFIGURATION_PATH:
            yield _has("scheduler_config_option", f"it reads {CONFIGURATION_PATH}", pod)
        else:
            config_path = _option(command, "--config")
            yield _lacks(
                "scheduler_config_option",
                f"expected --config={CONFIGURATION_PATH}, got {config_path or 'none'}",
                f"add --config={CONFIGURATION_PATH} to {MANIFEST} on its node, and mount that file",
                pod,
            )


def _option(command: Sequence[str], name: str) -> str | None:
    for place, word in enumerate(command):
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
        if word == name and place + 1 < len(command):
            return command[place + 1]
    return None


def _configuration(
    setup: ClusterSetup, place: str, configuration: Mapping[str, Any], extenders: Iterable[Plugin]
) -> Iterator[Finding]:
    yield from _readable(configuration, setup.kubernetes, place)
    for plugin in extenders:
        yield _plugin_finding(plugin, place, configuration)


def _plugin_finding(plugin: Plugin, place: str, configuration: Mapping[str, Any]) -> Finding:
    extenders = [
        extender
        for extender in _extenders(configuration)
        if plugin.resource in _list_managed(extender)
    ]
    if not extenders:
        return _lacks(
            "extender_configured",
            f"no extender manages {plugin.resource}",
            "append the entry below to `extenders`, and restart kube-scheduler on every node",
            place,
        )
    expected_extender = extender(plugin, "")
    names = ("enableHTTPS", "filterVerb", "nodeCacheCapable")
    wrong = [name for name in names if extenders[0].get(name, False) != expected_extender[name]]
    if not str(extenders[0].get("urlPrefix", "")).endswith(f"/{plugin.service}/proxy/scheduler"):
        wrong.append("urlPrefix")
    if wrong:
        return _lacks(
            "extender_configured",
            f"the extender of {plugin.resource} has another {', '.join(wrong)}",
            "replace it by the entry below",
            place,
        )
    return _has("extender_configured", f"an extender manages {plugin.resource}", place)


def _readable(
    configuration: Mapping[str, Any], kubernetes: tuple[int, int], place: str
) -> tuple[Finding, ...]:
    """Say why this Kubernetes version cannot read the configuration; nothing if it can."""
    version, kind = str(configuration.get("apiVersion")), configuration.get("kind")
    if kind != KIND:
        says = f"expected a {KIND}, got {kind!r}"
        action = f"give {CONFIGURATION_PATH} of a control node"
        return (_lacks("configuration_kind", says, action, place),)
    group, _, name = version.rpartition("/")
    if group == GROUP and name in _read_by(kubernetes):
        return ()
    best = f"{GROUP}/{_read_by(kubernetes)[0]}"
    return (
        Finding(
            verdict=Verdict.BLOCKED,
            rule="configuration_version",
            message=f"expected {best}, got {version}, which this Kubernetes does not read",
            action=f"write apiVersion: {best}",
            source=VERSIONS_SOURCE,
            subject=place,
        ),
    )


def _read_by(kubernetes: tuple[int, int]) -> list[str]:
    """The newest first."""
    versions = [name for name, (first, last) in VERSIONS.items() if first <= kubernetes <= last]
    return versions or ["v1"]


def _extenders(configuration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    extenders = configuration.get("extenders")
    return (
        [extender for extender in extenders if isinstance(extender, Mapping)]
        if isinstance(extenders, list)
        else []
    )


def _list_managed(entry: Mapping[str, Any]) -> set[str]:
    managed = entry.get("managedResources")
    several = managed if isinstance(managed, list) else []
    return {str(resource.get("name")) for resource in several if isinstance(resource, Mapping)}


def _has(rule: str, message: str, subject: str) -> Finding:
    return Finding(
        verdict=Verdict.SUPPORTED, rule=rule, message=message, source=GUIDE, subject=subject
    )


def _lacks(rule: str, message: str, action: str, subject: str) -> Finding:
    return Finding(
        verdict=Verdict.BLOCKED,
        rule=rule,
        message=message,
        action=action,
        source=GUIDE,
        subject=subject,
    )
