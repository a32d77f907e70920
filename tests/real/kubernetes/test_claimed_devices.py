"""A telemetry agent reads its node's ResourceSlices from a real API."""

from pathlib import Path

import pytest

from services.telemetry.domain.pods import ClaimedDevice
from services.telemetry.kubernetes import resource_slices
from services.telemetry.kubernetes.resource_slices import ClusterApi, ResourceSlices
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import DRA_DRIVER, device_uuid, make_dra_nodes

CLAIMED = ClaimedDevice(DRA_DRIVER, "node-1", "gpu-2")


def api_of(plane: ControlPlane, directory: Path, user: str) -> ClusterApi:
    token = directory / f"{user}.token"
    token.write_text(f"{plane.token(user)}\n")
    return ClusterApi(address=plane.url, token_file=token, authority_file=plane.ca_file)


async def test_a_claimed_device_is_the_gpu_of_its_slice(
    empty_cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_slices, "MISSING_AGAIN_SECONDS", 0.0)
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]}
    await empty_cluster.allow("watcher", [rule])
    async with empty_cluster.api() as api:
        await make_dra_nodes(api, ["node-0", "node-1"])

    slices = ResourceSlices(api_of(empty_cluster, tmp_path, "watcher"), "node-1")
    known = await slices.names(frozenset({CLAIMED}))

    assert known[CLAIMED] == device_uuid("node-1", 2)
    assert {each.pool for each in known} == {"node-1"}, "another node's were read"

    await empty_cluster.stop_apiserver()
    missing = CLAIMED._replace(device="gpu-99")
    assert await slices.names(frozenset({missing})) == known, "what was known is forgotten"
    await empty_cluster.start_apiserver()

    denied = ResourceSlices(api_of(empty_cluster, tmp_path, "denied"), "node-1")
    assert await denied.names(frozenset({CLAIMED})) == {}
