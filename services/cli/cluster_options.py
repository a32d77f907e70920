"""The options that choose GPUs of a Kubernetes cluster, and the node of it."""

from collections.abc import Mapping
from typing import Any, Final

import click
from click.core import ParameterSource
from msgspec.structs import replace

from schemas.gpus.gpu_request import ClusterRequest, NodeRanking
from services.cli.option_types import MEBIBYTES, NumberRange
from services.cli.options import node_name
from shared.accelerator_rules.cluster_parts import cluster_part
from shared.errors import RefusedError


def _cluster_id(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    return value and node_name(context, option, value)


def place(nodes: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return which nodes may be taken, or those of a cluster; its options leave `options`."""
    of_cluster = {name: options.pop(name) for name in CLUSTER_OPTIONS}
    cluster_id = of_cluster.pop("cluster_id")
    if cluster_id is None:
        context = click.get_current_context()
        for name, option in CLUSTER_OPTIONS.items():
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"{option} is about GPUs of a cluster: add --cluster")
        return {"node_ids": nodes}
    return {"cluster": cluster_request(cluster_id or None, nodes, of_cluster)}


def with_part(fields: dict[str, Any], of_part: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the fields with a part of a cluster's GPU as so much of what its plugin counts."""
    cluster: ClusterRequest | None = fields.get("cluster")
    if cluster is None:
        for name, value in of_part.items():
            if value is not None:
                raise click.UsageError(f"{CLUSTER_KINDS[name]} is of a cluster: add --cluster")
        return fields
    try:
        part = cluster_part(
            vgpu_cores=fields["vgpu_cores"],
            vgpu_memory_mb=fields["vgpu_memory_mb"],
            mig_profile=fields["mig_profile"],
            mps_cores=of_part["mps_cores"],
            time_slices=of_part["time_slices"],
            resource=cluster.resource,
        )
    except RefusedError as error:
        raise click.UsageError(error.message) from error
    if part is None:
        return fields
    request = replace(
        cluster, resource=part.resource, units=part.units, memory_units=part.memory_units
    )
    return {
        **fields,
        **dict.fromkeys(_PARTS_ANYWHERE),
        "gpus": part.gpus,
        "cluster": request,
    }


def cluster_request(
    cluster_id: str | None, node_names: tuple[str, ...], options: Mapping[str, Any]
) -> ClusterRequest:
    """Return what options of clusters say."""
    ranking = NodeRanking(options["ranking"])
    return ClusterRequest(
        cluster_id=cluster_id, node_names=node_names, **{**options, "ranking": ranking}
    )


THRESHOLDS: Final = (
    click.option(
        "--utilization-threshold",
        "utilization_threshold_percent",
        type=NumberRange(0, 100),
        default=30.0,
        show_default=True,
        metavar="PERCENT",
        help="A cluster's GPU is idle below this utilization.",
    ),
    click.option(
        "--memory-threshold",
        "memory_threshold_percent",
        type=NumberRange(0, 100),
        default=50.0,
        show_default=True,
        metavar="PERCENT",
        help="A cluster's GPU is idle below this memory use.",
    ),
)
AMONG_NODES: Final = (
    click.option(
        "--ranking",
        type=click.Choice([ranking.value for ranking in NodeRanking]),
        default=NodeRanking.MOST_IDLE.value,
        show_default=True,
        help="Choose the cluster's most idle node, or the one with the fewest GPUs left over.",
    ),
    click.option(
        "--ephemeral-storage",
        "pod_ephemeral_storage_mb",
        type=MEBIBYTES,
        metavar="MB",
        help="Minimum ephemeral storage left on a cluster's node.",
    ),
)
CLUSTER_OPTIONS: Final = {
    "cluster_id": "--cluster",
    "selects_node": "--no-select-node",
    "resource": "--resource",
    "utilization_threshold_percent": "--utilization-threshold",
    "memory_threshold_percent": "--memory-threshold",
    "ranking": "--ranking",
    "pod_ephemeral_storage_mb": "--ephemeral-storage",
}
CLUSTER_KINDS: Final = {"mps_cores": "--mps-cores", "time_slices": "--time-slices"}
_PARTS_ANYWHERE: Final = ("vgpu_cores", "vgpu_memory_mb", "mig_profile")
RESOURCE: Final = click.option(
    "--resource",
    metavar="NAME",
    help="As the cluster counts them, such as amd.com/gpu; NVIDIA's if not given.",
)
OF_CLUSTERS: Final = (
    click.option(
        "--cluster",
        "cluster_id",
        is_flag=False,
        flag_value="",
        metavar="[ID]",
        callback=_cluster_id,
        is_eager=True,
        help="GPUs of this Kubernetes cluster, or of any.",
    ),
    click.option(
        "--no-select-node",
        "selects_node",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Leave the node to the cluster's own scheduler.",
    ),
    RESOURCE,
    *THRESHOLDS,
    *AMONG_NODES,
    click.option(
        "--mps-cores",
        type=click.IntRange(1, 409_600),
        metavar="N",
        help="Hundredths of a GPU of the MPS plugin, instead of whole GPUs.",
    ),
    click.option(
        "--time-slices",
        type=click.IntRange(1, 4096),
        metavar="N",
        help="Slices of GPUs that NVIDIA's plugin shares, instead of whole GPUs.",
    ),
)
