"""Commands about a cluster's custom devices, which ConfigMaps define."""

import asyncio
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import click
from msgspec import Struct, to_builtins

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.gpus.checks import CheckView, DeviceConfigCheck
from services.cli.commands.gpus.check import resource_table
from services.cli.config_map_files import read_importable
from services.cli.display.output import print_json, print_table
from services.cli.failures import CommandFailed, leave
from services.cli.options import context_option, kubeconfig_option
from shared.accelerator_rules.device_config import (
    DEVICE_DEFINITIONS,
    KIND,
    NAMESPACE,
    answer_device_config,
)
from shared.kubernetes.access import ClusterAccess
from shared.kubernetes.client import KubernetesClient
from shared.kubernetes.kinds import CONFIG_MAPS
from shared.kubernetes.watching import list_objects

MANAGER: Final = "gpusteward"


class _ConfigMapMetadata(Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}


class _ConfigMap(Struct):
    metadata: _ConfigMapMetadata
    data: dict[str, str] = {}


@click.group()
def devices() -> None:
    """Custom devices of a Kubernetes cluster: accelerators of any maker, defined by ConfigMaps.

    Those that are enabled count as GPUs of their cluster: `reserve --cluster ID --resource KEY`.
    """


@devices.command("list")
@kubeconfig_option
@context_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """List the custom devices that the cluster's ConfigMaps define, by group."""
    view, names = asyncio.run(_check_defined(ClusterAccess(kubeconfig=kubeconfig, context=context)))
    if as_json:
        print_json(view)
        return
    if not view.resources and not view.findings:
        click.echo("the cluster defines no custom device; `gpusteward devices import` does")
        return
    print_table(resource_table(view.resources))
    for finding in view.findings:
        number, _, path = finding.subject.removeprefix("$.config_maps[").partition("]")
        click.echo(f"{names[int(number)]}: ${path}: {finding.message} ({finding.rule})")


@devices.command("import")
@click.argument("files", type=click.File("rb"), nargs=-1, required=True, metavar="FILE...")
@kubeconfig_option
@context_option
def import_devices(
    files: tuple[BinaryIO, ...], kubeconfig: str | None, context: str | None
) -> None:
    """Define custom devices in the cluster by FILEs of YAML or JSON: all of them, or none.

    A FILE has ConfigMaps (`check device-config`) or definitions (`check new-device-config`). What
    the cluster has under the same name is replaced.
    """
    entries = [entry for file in files for entry in read_importable(file)]
    places = [place for place, _ in entries]
    config_maps = [config_map for _, config_map in entries]
    if not config_maps:
        raise CommandFailed(ErrorCode.BAD_REQUEST, "expected a ConfigMap or a definition")
    view = answer_device_config(DeviceConfigCheck(config_maps=tuple(config_maps)))
    for finding in view.findings:
        number, _, path = finding.subject.removeprefix("$.config_maps[").partition("]")
        click.echo(f"{places[int(number)]}: ${path}: {finding.message} ({finding.rule})", err=True)
    if view.findings:
        leave(EXIT_CODE[ErrorCode.BAD_REQUEST])
    asyncio.run(_apply(ClusterAccess(kubeconfig=kubeconfig, context=context), config_maps))
    print_table(resource_table(view.resources))


async def _check_defined(access: ClusterAccess) -> tuple[CheckView, Sequence[str]]:
    async with KubernetesClient(access) as client:
        config_maps, _ = await list_objects(
            client, CONFIG_MAPS, _ConfigMap, namespace=NAMESPACE, labels=DEVICE_DEFINITIONS
        )
    if not config_maps:
        raise CommandFailed(
            ErrorCode.NOT_FOUND,
            f"no ConfigMap in {NAMESPACE} of this cluster defines a device; `gpusteward devices"
            " import FILE` does",
        )
    documents = tuple({**KIND, **to_builtins(config_map)} for config_map in config_maps)
    names = [config_map.metadata.name for config_map in config_maps]
    return answer_device_config(DeviceConfigCheck(config_maps=documents)), names


async def _apply(access: ClusterAccess, config_maps: Sequence[dict[str, Any]]) -> None:
    async with KubernetesClient(access) as client:
        for trial in ({"dryRun": "All"}, {}):  # a refusal of one leaves all as they are
            for config_map in config_maps:
                await client.apply(
                    CONFIG_MAPS, _own(config_map), field_manager=MANAGER, force=True, params=trial
                )


def _own(config_map: dict[str, Any]) -> dict[str, Any]:
    """Return the ConfigMap without the fields that only a server writes."""
    metadata = {name: config_map["metadata"][name] for name in ("name", "namespace", "labels")}
    return {**KIND, "metadata": metadata, "data": config_map["data"]}
