"""How a pod gets what is held of a cluster, as `gpusteward show` and `reserve` print it."""

from typing import Any

import pytest

from schemas.gpus.device_grant import ClusterPlacement
from services.cli.display.placements import pod_lines
from tests.support.worlds.gateway_views import make_reservation


@pytest.mark.parametrize(
    ("held", "limits"),
    [
        ({"gpus": 2, "resource": "nvidia.com/gpu"}, ["nvidia.com/gpu: 2"]),
        ({"gpus": 2, "resource": "tencent.com/vcuda-core"}, ["tencent.com/vcuda-core: 200"]),
        (
            {"gpus": 1, "resource": "tencent.com/vcuda-core", "units": 30, "memory_units": 32},
            ["tencent.com/vcuda-core: 30", "tencent.com/vcuda-memory: 32"],
        ),
        (
            {"gpus": 1, "resource": "nvidia.com/gpu.shared", "units": 1},
            ["nvidia.com/gpu.shared: 1"],
        ),
    ],
)
def test_pod_limits_are_held_units(held: dict[str, Any], limits: list[str]) -> None:
    view = make_reservation(cluster=ClusterPlacement(cluster_id="k8s", **held))

    shown = [line.split("limit")[1].strip() for line in pod_lines(view) if "limit" in line]

    assert shown == limits


def test_pod_is_kept_off_divided_gpus() -> None:
    def affinity(**held: Any) -> list[str]:
        place = ClusterPlacement(cluster_id="k8s", gpus=1, **held)
        lines = pod_lines(make_reservation(cluster=place))
        return [line.removeprefix("  nodeAffinity  ") for line in lines if "nodeAffinity" in line]

    left = affinity(resource="nvidia.com/gpu", avoided_hostnames=("a", "b"))

    assert left[0] == "nvidia.com/gpu.sharing-strategy NotIn [time-slicing, mps]"
    assert "cloud.google.com/gke-gpu-partition-size DoesNotExist" in left
    assert left[-1] == "kubernetes.io/hostname NotIn [a, b]"
    assert affinity(resource="nvidia.com/gpu", node_name="c", hostname="c") == []
    assert affinity(resource="nvidia.com/gpu", units=1) == []
