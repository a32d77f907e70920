"""What is typed, as a request for GPUs."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from schemas.gpus.gpu_request import (
    ClusterRequest,
    GpuRequest,
    Placement,
    Preference,
    Selector,
    SelectorKey,
    SelectorOperator,
)
from services.cli.commands.gpus.exec import exec_command
from services.cli.request_options import request_options


def parsed(
    *arguments: str, whole_fleet: bool = True, kind: tuple[str, ...] = ("--gpus", "1")
) -> GpuRequest:
    """The request that a command gets. Raises ClickException for what is none."""
    found: list[GpuRequest] = []

    @click.command()
    @request_options(whole_fleet=whole_fleet)
    def command(request: GpuRequest) -> None:
        found.append(request)

    command.main([*kind, *arguments], standalone_mode=False)
    return found[0]


def test_every_request_field_has_an_option() -> None:
    request = parsed(
        *("--min-memory", "40000", "--max-utilization", "10", "--model", "H100", "--model", "A100"),
        *("--nodes", "2", "--node", "a", "--node", "b", "--placement", "spread", "--balanced"),
        *("--cpus", "8", "--host-memory", "64000", "--priority", "-3", "--preemptible"),
        *("--duration", "600", "--wait", "5", "--min-compute-capability", "8.0"),
        "--mixed-models",
    )

    assert request == GpuRequest(
        min_memory_mb=40_000,
        max_utilization_percent=10.0,
        gpu_models=("H100", "A100"),
        nodes=2,
        node_ids=("a", "b"),
        placement=Placement.SPREAD,
        balanced_memory=True,
        cpu_count=8.0,
        host_memory_mb=64_000,
        priority=-3,
        preemptible=True,
        expected_duration_seconds=600.0,
        wait_timeout_seconds=5.0,
        min_compute_capability="8.0",
        mixed_models=True,
    )
    assert parsed() == GpuRequest()


def test_gpus_of_a_cluster_can_be_asked_for() -> None:
    request = parsed(
        *("--cluster", "k8s", "--node", "gpu.7", "--resource", "amd.com/gpu", "--model", "MI300"),
        *("--utilization-threshold", "20", "--memory-threshold", "40"),
    )

    assert request == GpuRequest(
        gpu_models=("MI300",),
        cluster=ClusterRequest(
            cluster_id="k8s",
            node_names=("gpu.7",),
            resource="amd.com/gpu",
            utilization_threshold_percent=20.0,
            memory_threshold_percent=40.0,
        ),
    )
    assert parsed("--cluster").cluster == ClusterRequest()
    left = parsed("--no-select-node", "--cluster", "k8s").cluster
    assert left == ClusterRequest(cluster_id="k8s", selects_node=False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--resource", "amd.com/gpu"), "--resource is about GPUs of a cluster: add --cluster"),
        (("--no-select-node",), "--no-select-node is about GPUs of a cluster"),
        (("--memory-threshold", "50"), "--memory-threshold is about"),
        (("--node", "gpu.7"), "expected a node's id"),
        (("--cluster", "a.b"), "expected a node's id"),
    ],
)
def test_cluster_options_without_cluster_are_refused(given: tuple[str, ...], says: str) -> None:
    with pytest.raises(click.UsageError, match=says):
        parsed(*given)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("gpu_model=H100, A100", {"key": "gpu_model", "values": ("H100", "A100")}),
        ("node!=a", {"key": "node", "operator": "not_in", "values": ("a",)}),
        (
            "compute_capability>=8.0",
            {"key": "compute_capability", "operator": "at_least", "values": ("8.0",)},
        ),
        (
            "cuda_driver_version<=12.4",
            {"key": "cuda_driver_version", "operator": "at_most", "values": ("12.4",)},
        ),
        ("label:zone=a", {"key": "label", "label": "zone", "values": ("a",)}),
        ("label:nvidia.com/gpu", {"key": "label", "label": "nvidia.com/gpu", "operator": "exists"}),
        ("numa_node", {"key": "numa_node", "operator": "exists"}),
    ],
)
def test_a_selector_is_typed_as_it_is_read(text: str, want: dict[str, Any]) -> None:
    selector = Selector(
        key=SelectorKey(want["key"]),
        operator=SelectorOperator(want.get("operator", "in")),
        values=want.get("values", ()),
        label=want.get("label"),
    )

    assert parsed("--require", text).require == (selector,)
    assert parsed("--prefer", text, "--prefer", f"{text}*10").prefer == (
        Preference(selector=selector),
        Preference(selector=selector, weight=10),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cpus", "nan"),
        ("--duration", "inf"),
        ("--wait", "1e12"),
        ("--node", ""),
        ("--require", "colour=red"),
        ("--require", "label=zone"),
        ("--require", "node:a=b"),
        ("--require", "compute_capability>=8.0,9.0"),
        ("--min-compute-capability", "8"),
        ("--prefer", "node=a*0"),
        ("--gpus", "0"),
        ("--duration", "0"),
    ],
)
def test_invalid_request_is_refused_with_expectation(arguments: tuple[str, ...]) -> None:
    with pytest.raises(click.BadParameter) as refused:
        parsed(*arguments)

    assert refused.value.format_message()


def test_single_host_command_has_no_node_options() -> None:
    @click.command()
    @request_options()
    def command(request: GpuRequest) -> None: ...

    shown = CliRunner().invoke(command, ["--help"]).output

    assert "--nodes" not in shown
    assert "--require" in shown


def test_exec_refuses_clusters() -> None:
    ended = CliRunner().invoke(exec_command, ["--gpus", "1", "--cluster", "--", "true"])

    assert isinstance(ended.exception, SystemExit)
    assert "`gpusteward reserve --cluster` holds them" in ended.output


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        (("--vgpu-cores", "30"), {"resource": "tencent.com/vcuda-core", "units": 30}),
        (
            ("--vgpu-cores", "30", "--vgpu-memory", "8000"),
            {"resource": "tencent.com/vcuda-core", "units": 30, "memory_units": 32},
        ),
        (("--mps-cores", "50"), {"resource": "nvidia.com/mps-core", "units": 50}),
        (("--time-slices", "2"), {"resource": "nvidia.com/gpu.shared", "units": 2}),
        (
            ("--time-slices", "2", "--resource", "nvidia.com/gpu"),
            {"resource": "nvidia.com/gpu", "units": 2},
        ),
        (("--mig-profile", "1g.10gb"), {"resource": "nvidia.com/mig-1g.10gb"}),
    ],
)
def test_cluster_gpu_shares_can_be_requested(kind: tuple[str, ...], want: dict[str, Any]) -> None:
    assert parsed("--cluster", "k8s", kind=kind) == GpuRequest(
        cluster=ClusterRequest(cluster_id="k8s", **want)
    )


def test_whole_gpu_manager_cards_are_gpus() -> None:
    request = parsed("--cluster", "k8s", kind=("--vgpu-cores", "300"))

    assert (request.gpus, request.cluster) == (
        3,
        ClusterRequest(cluster_id="k8s", resource="tencent.com/vcuda-core"),
    )


def test_counted_shares_on_own_nodes_can_be_requested() -> None:
    request = parsed(kind=("--share-units", "7", "--units-per-gpu", "10"))

    assert request == GpuRequest(share_units=7, units_per_gpu=10)
    assert request.shares == 0.7


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (("--mps-cores", "50"), "add --cluster"),
        (("--gpus", "1", "--time-slices", "1"), "expected one of"),
        (("--vgpu-cores", "30", "--resource", "x/y", "--cluster", "k8s"), "no resource"),
    ],
)
def test_a_part_that_cannot_be_had_is_told(kind: tuple[str, ...], says: str) -> None:
    with pytest.raises(click.UsageError, match=says):
        parsed(kind=kind)
