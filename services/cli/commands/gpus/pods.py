"""Pods of Kubernetes that have GPUs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from schemas.gateway.views import GpuPodView, GpuView
from schemas.results.series import WhoseReading
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import number, print_list, table_options
from services.cli.options import Target, namespace_option, node_option, reading


class _PodOnGpu(NamedTuple):
    gpu: GpuView
    pod: GpuPodView


@click.command()
@namespace_option
@node_option
@click.option("--kind", help="Only pods with GPUs of this kind, such as pgpu, mig or vgpu.")
@reading
@table_options
def pods(target: Target, namespace: str | None, node_id: str | None, kind: str | None) -> None:
    """List pods that have GPUs, and what each uses of them.

    Where several share a GPU and nothing tells their own use, a reading is the whole GPU's, and
    marked so. `report usage --by pod` has their hours and cost.
    """
    view = target.ask(lambda client: client.gpus(node_id=node_id))
    listed = [
        entry
        for entry in _pods_on(view.gpus)
        if namespace in {None, entry.pod.namespace} and kind in {None, entry.pod.kind}
    ]
    if_none = (
        "no pod of Kubernetes has a GPU that matches"
        if any(gpu.pods is not None for gpu in view.gpus)
        else "no agent could ask a kubelet which pods have GPUs; `gpusteward gpus` lists the GPUs"
    )
    lines = [_as_line(entry) for entry in listed]
    print_list(lines, pod_table(listed), if_none, as_json=target.as_json)


def _pods_on(gpus: Sequence[GpuView]) -> Iterator[_PodOnGpu]:
    for gpu in gpus:
        # Of a pod's containers one: what they use is their pod's.
        for pod in {(entry.namespace, entry.pod): entry for entry in gpu.pods or ()}.values():
            yield _PodOnGpu(gpu, pod)


def _as_line(entry: _PodOnGpu) -> dict[str, object]:
    pod = entry.pod
    return {
        "namespace": pod.namespace,
        "pod": pod.pod,
        "owner": pod.owner,
        "kind": pod.kind,
        "percent": pod.percent,
        "node_id": entry.gpu.node_id,
        "gpu_index": entry.gpu.index,
        "gpu_uuid": entry.gpu.uuid,
        "reading": pod.reading,
        "utilization_percent": pod.utilization_percent,
        "memory_used_mb": pod.memory_used_mb,
        "memory_given_mb": pod.memory_given_mb,
    }


def pod_table(listed: Sequence[_PodOnGpu]) -> Table:
    """Put pods under each other, by where they are."""
    return Table(
        headings=[
            *("namespace", "pod", "owner", "kind", "of GPU %", "node", "gpu", "util %"),
            *("memory MB", "reading"),
        ],
        rows=[
            [
                pod.namespace,
                pod.pod,
                pod.owner or UNKNOWN,
                pod.kind or UNKNOWN,
                number(pod.percent),
                gpu.node_id,
                str(gpu.index),
                number(pod.utilization_percent),
                f"{number(pod.memory_used_mb)}/{number(pod.memory_given_mb)}",
                "its own" if pod.reading is WhoseReading.OWN else "the whole GPU's",
            ]
            for gpu, pod in listed
        ],
        numeric=frozenset({"of GPU %", "gpu", "util %", "memory MB"}),
        shortened=frozenset({"pod", "owner"}),
    )
