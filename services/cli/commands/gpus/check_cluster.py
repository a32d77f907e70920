"""`check cluster`: what a Kubernetes cluster lacks for GPUs that device plugins divide."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

import click
import yaml
from msgspec import Struct

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
from shared.kubernetes.names import Resource
from shared.kubernetes.requirements import version_of
from shared.kubernetes.watching import list_objects

NODES: Final = Resource("v1", "nodes", is_namespaced=False)
PODS: Final = Resource("v1", "pods")
SERVICES: Final = Resource("v1", "services")
DAEMON_SETS: Final = Resource("apps/v1", "daemonsets")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io/v1", "endpointslices")
SYSTEM: Final = "kube-system"
SCHEDULER: Final = "component=kube-scheduler"
NEWEST: Final = (99, 0)  # of a version that cannot be read
UNKNOWN_APISERVER: Final = "APISERVER:6443"


class _ObjectMetadata(Struct, frozen=True):
    name: str = ""


class _Status(Struct, frozen=True, rename="camel"):
    allocatable: dict[str, str] = {}
    desired_number_scheduled: int = 0
    number_ready: int = 0


class _Container(Struct, frozen=True):
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class _Spec(Struct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Object(Struct, frozen=True):
    """Of any of these kinds, what is read of it."""

    metadata: _ObjectMetadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Endpoint(Struct, frozen=True):
    addresses: tuple[str, ...] = ()


class _Port(Struct, frozen=True):
    port: int | None = None


class _EndpointSlice(Struct, frozen=True):
    metadata: _ObjectMetadata
    endpoints: tuple[_Endpoint, ...] | None = ()
    ports: tuple[_Port, ...] | None = ()


@click.command("cluster")
@click.option(
    "--mode",
    "modes",
    type=click.Choice([each.mode.value for each in PLUGINS]),
    multiple=True,
    help="What the cluster is to have; may be given again. Without: what is found there.",
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
    """Whether a cluster has the device plugins of its modes, and a scheduler that asks them.

    pgpu is NVIDIA's device plugin, vgpu GPU-Manager, mps the MPS plugin; the last two extend
    kube-scheduler. What is missing is said with what to do, and the exact configuration is printed.
    Needs no platform.
    """
    given = dict(map(_configuration, files))
    setup, apiserver = asyncio.run(
        _ask(ClusterAccess(kubeconfig=kubeconfig, context=context), given)
    )
    named = {GpuMode(mode) for mode in modes}
    plugins = (
        tuple(each for each in PLUGINS if each.mode in named) if named else plugins_in_use(setup)
    )
    if not plugins:
        names = ", ".join(each.resource for each in PLUGINS)
        raise CommandFailed(
            ErrorCode.NOT_FOUND,
            f"no node of this cluster counts any of {names}: --mode says what it is to have",
        )
    findings = check_setup(setup, plugins)
    view = CheckView(verdict=worst(each.verdict for each in findings), findings=findings)
    written = _to_add(setup, plugins, apiserver, findings)
    if as_json:
        print_json({"verdict": view.verdict, "findings": findings, "configuration": written})
    else:
        print_table(finding_table(findings))
        if written:
            whole = "append to `extenders` of" if given else "write as"
            click.echo(f"\n{whole} {CONFIGURATION_PATH} on every control node:\n")
            click.echo(yaml.safe_dump(written, sort_keys=False), nl=False)
    leave(0 if view.verdict in WORKS else EXIT_CODE[ErrorCode.UNSUPPORTED])


def _to_add(
    setup: ClusterSetup, plugins: Sequence[Plugin], apiserver: str, findings: Sequence[Finding]
) -> Any:
    """The whole file, of files that are there the missing entries; None where nothing is needed."""
    extenders = [each for each in plugins if each.service is not None]
    if not extenders:
        return None
    if not setup.configurations:
        return scheduler_configuration(extenders, apiserver=apiserver, kubernetes=setup.kubernetes)
    lacks = [
        each
        for each in extenders
        if any(
            finding.rule == "extender_configured"
            and finding.verdict is Verdict.BLOCKED
            and each.resource in finding.message
            for finding in findings
        )
    ]
    return [extender(each, apiserver) for each in lacks] or None


def _configuration(file: BinaryIO) -> tuple[str, Mapping[str, Any]]:
    found = [each for each in read_documents(file) if each is not None]
    if len(found) != 1 or not isinstance(found[0], dict):
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"{file.name}: expected one KubeSchedulerConfiguration"
        )
    return file.name, found[0]


async def _ask(
    access: ClusterAccess, configurations: Mapping[str, Mapping[str, Any]]
) -> tuple[ClusterSetup, str]:
    """With the address at which the scheduler reaches the API."""
    async with KubernetesClient(access) as client:
        version = await client.version()
        nodes, _ = await list_objects(client, NODES, _Object)
        daemon_sets, _ = await list_objects(client, DAEMON_SETS, _Object)
        services, _ = await list_objects(client, SERVICES, _Object, namespace=SYSTEM)
        pods, _ = await list_objects(client, PODS, _Object, namespace=SYSTEM, labels=SCHEDULER)
        slices, _ = await list_objects(
            client,
            ENDPOINT_SLICES,
            _EndpointSlice,
            namespace="default",
            labels="kubernetes.io/service-name=kubernetes",
        )
    return (
        ClusterSetup(
            kubernetes=version_of(version) or NEWEST,
            resources=_counted(nodes),
            daemon_sets={
                each.metadata.name: DaemonSet(
                    each.status.desired_number_scheduled, each.status.number_ready
                )
                for each in daemon_sets
            },
            services=frozenset(each.metadata.name for each in services),
            commands={
                each.metadata.name: [
                    word for c in each.spec.containers for word in (*c.command, *c.args)
                ]
                for each in pods
            },
            configurations=configurations,
        ),
        _address(slices),
    )


def _counted(nodes: Sequence[_Object]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for node in nodes:
        for plugin in PLUGINS:
            amount = node.status.allocatable.get(plugin.resource, "")
            found[plugin.resource] += int(amount) if amount.isdecimal() else 0
    return dict(found)


def _address(slices: Sequence[_EndpointSlice]) -> str:
    for each in slices:
        addresses = [one for endpoint in each.endpoints or () for one in endpoint.addresses]
        ports = [port.port for port in each.ports or () if port.port is not None]
        if addresses and ports:
            host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
            return f"{host}:{ports[0]}"
    return UNKNOWN_APISERVER
