"""`check cluster`: what a Kubernetes cluster lacks for GPUs that device plugins divide."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

import click
import yaml

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.gpus.checks import CheckView, Finding, GpuMode, Verdict
from services.cli.commands.gpus.check import WORKS, finding_table
from services.cli.config_map_files import read_documents
from services.cli.display.output import print_json, print_table, wide_option
from services.cli.failures import CommandFailed, leave
from services.cli.options import context_option, kubeconfig_option
from shared.accelerator_rules.scheduler_extenders import (
    CONFIGURATION_PATH,
    PLUGINS,
    ClusterSetup,
    DaemonSet,
    Plugin,
    check_setup,
    extender,
    plugins_in_use,
    scheduler_configuration,
)
from shared.accelerator_rules.verdicts import worst
from shared.kubernetes.access import ClusterAccess
from shared.kubernetes.client import KubernetesClient
from shared.kubernetes.kinds import NODES, PODS, SERVICES
from shared.kubernetes.names import Resource
from shared.kubernetes.objects.common import ApiObject, Metadata, NamedObject
from shared.kubernetes.objects.nodes import Node
from shared.kubernetes.objects.pods import PodDetails
from shared.kubernetes.requirements import version_of
from shared.kubernetes.watching import list_objects

DAEMON_SETS: Final = Resource("apps/v1", "daemonsets")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io/v1", "endpointslices")
SYSTEM: Final = "kube-system"
SCHEDULER: Final = "component=kube-scheduler"
ASSUMED_VERSION: Final = (99, 0)  # of a version that cannot be read
UNKNOWN_APISERVER: Final = "APISERVER:6443"


class _DaemonSetStatus(ApiObject, frozen=True):
    desired_number_scheduled: int = 0
    number_ready: int = 0


class _DaemonSet(ApiObject, frozen=True):
    metadata: Metadata
    status: _DaemonSetStatus = _DaemonSetStatus()


class _Endpoint(ApiObject, frozen=True):
    addresses: tuple[str, ...] = ()


class _Port(ApiObject, frozen=True):
    port: int | None = None


class _EndpointSlice(ApiObject, frozen=True):
    metadata: Metadata
    endpoints: tuple[_Endpoint, ...] | None = ()
    ports: tuple[_Port, ...] | None = ()


@click.command("cluster")
@click.option(
    "--mode",
    "modes",
    type=click.Choice([plugin.mode.value for plugin in PLUGINS]),
    multiple=True,
    help="Mode that the cluster must support; repeatable [default: those found there].",
)
@click.option(
    "--scheduler-config",
    "files",
    type=click.File("rb"),
    multiple=True,
    metavar="FILE",
    help=f"A copy of a control node's {CONFIGURATION_PATH}, to be checked too; may be given again.",
)
@kubeconfig_option
@context_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@wide_option
def cluster(
    modes: tuple[str, ...],
    files: tuple[BinaryIO, ...],
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
) -> None:
    """Check whether a cluster has the device plugins of its modes, and a scheduler that asks them.

    pgpu is NVIDIA's device plugin, vgpu GPU-Manager, mps the MPS plugin; the last two extend
    kube-scheduler. For all that is missing it says what to do, and prints the exact configuration.
    Needs no platform.
    """
    configurations = dict(map(_configuration, files))
    setup, apiserver = asyncio.run(
        _ask(ClusterAccess(kubeconfig=kubeconfig, context=context), configurations)
    )
    chosen_modes = {GpuMode(mode) for mode in modes}
    plugins = (
        tuple(plugin for plugin in PLUGINS if plugin.mode in chosen_modes)
        if chosen_modes
        else plugins_in_use(setup)
    )
    if not plugins:
        names = ", ".join(plugin.resource for plugin in PLUGINS)
        raise CommandFailed(
            ErrorCode.NOT_FOUND,
            f"no node of this cluster counts any of {names}: --mode says what it is to have",
        )
    findings = check_setup(setup, plugins)
    view = CheckView(verdict=worst(finding.verdict for finding in findings), findings=findings)
    written = _to_add(setup, plugins, apiserver, findings)
    if as_json:
        print_json({"verdict": view.verdict, "findings": findings, "configuration": written})
    else:
        print_table(finding_table(findings))
        if written:
            instruction = "append to `extenders` of" if configurations else "write as"
            click.echo(f"\n{instruction} {CONFIGURATION_PATH} on every control node:\n")
            click.echo(yaml.safe_dump(written, sort_keys=False), nl=False)
    leave(0 if view.verdict in WORKS else EXIT_CODE[ErrorCode.UNSUPPORTED])


def _to_add(
    setup: ClusterSetup, plugins: Sequence[Plugin], apiserver: str, findings: Sequence[Finding]
) -> Any:
    """The whole file, of files that are there the missing entries; None where nothing is needed."""
    extenders = [plugin for plugin in plugins if plugin.service is not None]
    if not extenders:
        return None
    if not setup.configurations:
        return scheduler_configuration(extenders, apiserver=apiserver, kubernetes=setup.kubernetes)
    lacks = [
        plugin
        for plugin in extenders
        if any(
            finding.rule == "extender_configured"
            and finding.verdict is Verdict.BLOCKED
            and plugin.resource in finding.message
            for finding in findings
        )
    ]
    return [extender(plugin, apiserver) for plugin in lacks] or None


def _configuration(file: BinaryIO) -> tuple[str, Mapping[str, Any]]:
    documents = [document for document in read_documents(file) if document is not None]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"{file.name}: expected one KubeSchedulerConfiguration"
        )
    return file.name, documents[0]


async def _ask(
    access: ClusterAccess, configurations: Mapping[str, Mapping[str, Any]]
) -> tuple[ClusterSetup, str]:
    """Read the cluster's setup, and the address at which the scheduler reaches the API."""
    async with KubernetesClient(access) as client:
        version = await client.version()
        nodes, _ = await list_objects(client, NODES, Node)
        daemon_sets, _ = await list_objects(client, DAEMON_SETS, _DaemonSet)
        services, _ = await list_objects(client, SERVICES, NamedObject, namespace=SYSTEM)
        pods, _ = await list_objects(client, PODS, PodDetails, namespace=SYSTEM, labels=SCHEDULER)
        slices, _ = await list_objects(
            client,
            ENDPOINT_SLICES,
            _EndpointSlice,
            namespace="default",
            labels="kubernetes.io/service-name=kubernetes",
        )
    return (
        ClusterSetup(
            kubernetes=version_of(version) or ASSUMED_VERSION,
            resources=_count_resources(nodes),
            daemon_sets={
                daemon_set.metadata.name: DaemonSet(
                    daemon_set.status.desired_number_scheduled, daemon_set.status.number_ready
                )
                for daemon_set in daemon_sets
            },
            services=frozenset(service.metadata.name for service in services),
            commands={
                pod.metadata.name: [
                    word for c in pod.spec.containers for word in (*c.command, *c.args)
                ]
                for pod in pods
            },
            configurations=configurations,
        ),
        _address(slices),
    )


def _count_resources(nodes: Sequence[Node]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node in nodes:
        for plugin in PLUGINS:
            amount = node.status.allocatable.get(plugin.resource, "")
            counts[plugin.resource] += int(amount) if amount.isdecimal() else 0
    return dict(counts)


def _address(slices: Sequence[_EndpointSlice]) -> str:
    for endpoint_slice in slices:
        addresses = [
            address for endpoint in endpoint_slice.endpoints or () for address in endpoint.addresses
        ]
        ports = [port.port for port in endpoint_slice.ports or () if port.port is not None]
        if addresses and ports:
            host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
            return f"{host}:{ports[0]}"
    return UNKNOWN_APISERVER
