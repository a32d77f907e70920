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
def test_a_pods_limits_are_the_units_that_are_held(held: dict[str, Any], limits: list[str]) -> None:
    view = make_reservation(cluster=ClusterPlacement(cluster_id="k8s", **held))

    shown = [line.split("limit")[1].strip() for line in pod_lines(view) if "limit" in line]

    assert shown == limits
