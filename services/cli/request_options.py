"""The options that say which GPUs are wanted, read into a request."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click

from schemas.gpus.gpu_request import (
    GpuRequest,
    Placement,
    ShareStrategy,
)
from services.cli.cluster_options import (
    AMONG_NODES,
    CLUSTER_KINDS,
    CLUSTER_OPTIONS,
    OF_CLUSTERS,
    RESOURCE,
    THRESHOLDS,
    cluster_request,
    place,
    with_part,
)
from services.cli.option_types import MEBIBYTES, NumberRange, SecondsRange
from services.cli.options import node_name
from services.cli.selector_texts import SELECTOR_KEYS, preference, selector
from shared.accelerator_rules.compute_capability import capability
from shared.client.account import account_name

T = TypeVar("T")
DEFAULT_WAIT_SECONDS: Final = 300.0
MAX_SECONDS: Final = 366 * 24 * 3600


def user_name() -> str:
    """Return the user's name, as far as the system knows it."""
    return account_name() or "unknown"


def _capability(_context: Any, _option: Any, text: str | None) -> str | None:
    if text is not None and capability(text) is None:
        raise click.BadParameter(f"expected a compute capability such as 8.0, got {text!r}")
    return text


def _nodes(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> Any:
    """A cluster's own nodes are named otherwise than ours, with dots."""
    return names if context.params["cluster_id"] is not None else node_name(context, option, names)


def _each(parse: Callable[[str], T]) -> Callable[[Any, Any, tuple[str, ...]], tuple[T, ...]]:
    return lambda _context, _option, texts: tuple(map(parse, texts))


def request_options(*, whole_fleet: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Adds the options; the command gets them as `request`.

    `whole_fleet`: nodes may be chosen, and how to choose among them, or GPUs of a cluster.
    """
    options = [*_OF_DEVICES, *((*_OF_NODES, *OF_CLUSTERS) if whole_fleet else ()), *_OF_WAITING]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(*args: Any, **values: Any) -> Any:
            names = [name for name in GpuRequest.__struct_fields__ if name in values]
            fields = {name: values.pop(name) for name in names}
            of_part = {name: values.pop(name, None) for name in CLUSTER_KINDS}
            options = _KINDS | (CLUSTER_KINDS if whole_fleet else {})
            kinds = {name: fields[name] for name in _KINDS} | of_part
            several = [options[name] for name, value in kinds.items() if value is not None]
            if len(several) != 1:
                got_text = f", got {' and '.join(several)}" if several else ""
                raise click.UsageError(f"expected one of {', '.join(options.values())}{got_text}")
            fields["gpus"] = fields["gpus"] or 1
            fields["share_strategy"] = ShareStrategy(fields["share_strategy"])
            if whole_fleet:
                fields["placement"] = Placement(fields["placement"])
                fields |= place(fields.pop("node_ids"), values)
                fields = with_part(fields, of_part)
            try:
                request = GpuRequest(**fields)
            except ValueError as error:
                raise click.UsageError(str(error)) from error
            return command(*args, request=request, **values)

        decorated: Callable[..., Any] = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def node_choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that choose a cluster's node; the command gets them as `request`."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        names = [name for name in GpuRequest.__struct_fields__ if name in options]
        fields = {name: options.pop(name) for name in names}
        of_cluster = {name: options.pop(name) for name in CLUSTER_OPTIONS if name != "selects_node"}
        cluster_id = of_cluster.pop("cluster_id") or None
        cluster = cluster_request(cluster_id, options.pop("node_names"), of_cluster)
        return command(*args, request=GpuRequest(cluster=cluster, **fields), **options)

    decorated: Callable[..., Any] = run
    for option in reversed(_OF_NODE_CHOICE):
        decorated = option(decorated)
    return decorated


_KINDS: Final = {
    "gpus": "--gpus",
    "shares": "--shares",
    "mig_profile": "--mig-profile",
    "vgpu_cores": "--vgpu-cores",
    "share_units": "--share-units",
}
_OF_EVERY_NODE: Final = (
    click.option("--model", "gpu_models", multiple=True, help="GPU model; may be repeated."),
    click.option(
        "--min-compute-capability",
        callback=_capability,
        metavar="X.Y",
        help="Minimum compute capability of NVIDIA GPUs, such as 8.0 for bfloat16.",
    ),
    click.option(
        "--require",
        multiple=True,
        metavar="SELECTOR",
        callback=_each(selector),
        help=f"What has to match: {SELECTOR_KEYS} or label:NAME, with =, !=, >= or <=; repeatable.",
    ),
    click.option(
        "--prefer",
        multiple=True,
        metavar="SELECTOR",
        callback=_each(preference),
        help="Preferred label or property, in the form of --require; a suffix *10 weighs 10 times.",
    ),
    click.option("--cpus", "cpu_count", type=NumberRange(min=0), help="CPUs on each node."),
    click.option("--host-memory", "host_memory_mb", type=MEBIBYTES, metavar="MB"),
)
_OF_DEVICES: Final = (
    click.option("--gpus", type=click.IntRange(1, 4096), metavar="N", help="Whole GPUs."),
    click.option(
        "--shares",
        type=NumberRange(0.01, 4096),
        metavar="X",
        help="Part of a node's GPUs instead of whole GPUs: 0.25 is a quarter of one.",
    ),
    click.option(
        "--share-units",
        type=click.IntRange(1, 409_600),
        metavar="N",
        help="Number of shares instead of whole GPUs, spread over a node's GPUs.",
    ),
    click.option(
        "--units-per-gpu",
        type=click.IntRange(1, 100),
        default=1,
        metavar="N",
        help="Number of shares that make one GPU: 1, 2, 4, 5, 10, 20, 25, 50 or 100.",
    ),
    click.option(
        "--mig-profile",
        metavar="PROFILE",
        help="MIG instance instead of whole GPUs, such as 1g.10gb.",
    ),
    click.option(
        "--vgpu-cores",
        type=click.IntRange(1, 409_600),
        metavar="N",
        help="Hundredths of a GPU instead of whole GPUs; multiples of 100 are whole GPUs.",
    ),
    click.option(
        "--vgpu-memory",
        "vgpu_memory_mb",
        type=MEBIBYTES,
        metavar="MB",
        help="Minimum memory of the vGPU.",
    ),
    click.option(
        "--share-strategy",
        type=click.Choice([strategy.value for strategy in ShareStrategy]),
        default=ShareStrategy.EVENLY.value,
        show_default=True,
        help="Distribution of shares over several GPUs.",
    ),
    click.option(
        "--min-free-shares",
        type=NumberRange(0, 1),
        default=0.0,
        metavar="X",
        help="Minimum free part of a GPU to take a share of.",
    ),
    click.option(
        "--unfragmented",
        is_flag=True,
        help="Put shares on one GPU if they fit, else divide them nearly equally.",
    ),
    click.option(
        "--enforced-shares",
        is_flag=True,
        help="Only where something keeps holders to their shares.",
    ),
    click.option(
        "--min-memory",
        "min_memory_mb",
        type=MEBIBYTES,
        metavar="MB",
        help="Minimum free memory of each GPU [default: half of its memory].",
    ),
    click.option(
        "--max-utilization",
        "max_utilization_percent",
        type=NumberRange(0, 100),
        default=50.0,
        show_default=True,
        metavar="PERCENT",
        help="Maximum utilization by others of a GPU that nobody holds.",
    ),
    *_OF_EVERY_NODE,
    click.option(
        "--balanced",
        "balanced_memory",
        is_flag=True,
        help="Only GPUs with about the same free memory, for tensor parallelism.",
    ),
    click.option(
        "--mixed-models",
        is_flag=True,
        help="GPUs of any models together; else all are of one model and memory size.",
    ),
)
_OF_NODES: Final = (
    click.option(
        "--nodes",
        type=click.IntRange(1, 512),
        default=1,
        show_default=True,
        help="Number of nodes with --gpus each, all of them or none.",
    ),
    click.option(
        "--node",
        "node_ids",
        multiple=True,
        metavar="ID",
        callback=_nodes,
        help="Only this node, with --cluster one of its own; repeatable.",
    ),
    click.option(
        "--placement",
        type=click.Choice([placement.value for placement in Placement]),
        default="pack",
    ),
)
# What tells nodes apart, of the options above.
_OF_NODE_CHOICE: Final = (
    click.option("--cluster", "cluster_id", metavar="ID", help="Only of this cluster."),
    click.option("--node", "node_names", multiple=True, metavar="NAME", help="Only this node."),
    RESOURCE,
    *THRESHOLDS,
    *AMONG_NODES,
    *_OF_EVERY_NODE,
)
_OF_WAITING: Final = (
    click.option("--priority", type=click.IntRange(-1000, 1000), default=0, show_default=True),
    click.option("--preemptible", is_flag=True, help="May be ended for a higher priority."),
    click.option(
        "--duration",
        "expected_duration_seconds",
        type=SecondsRange(min=0, min_open=True, max=MAX_SECONDS),
        metavar="SECONDS",
        help="Expected duration; lets it start early by backfill, and others expect its end.",
    ),
    click.option(
        "--wait",
        "wait_timeout_seconds",
        type=SecondsRange(min=0.1, max=MAX_SECONDS),
        default=DEFAULT_WAIT_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="Maximum time in the queue.",
    ),
)
