"""Objects of Kubernetes by the names that the API writes."""

import msgspec

from shared.kubernetes.objects.nodes import NodeDetails
from shared.kubernetes.objects.pods import PodDetails


def test_a_nodes_boot_id_is_read() -> None:
    written = b'{"metadata": {"name": "n1"}, "status": {"nodeInfo": {"bootID": "5f5e"}}}'

    node = msgspec.json.decode(written, type=NodeDetails)

    assert node.status.node_info.boot_id == "5f5e"


def test_a_pods_addresses_and_image_are_read() -> None:
    written = b"""{"metadata": {}, "status": {"podIP": "10.0.0.7", "hostIP": "10.0.0.1",
        "containerStatuses": [{"name": "engine", "imageID": "sha256:1"}]}}"""

    status = msgspec.json.decode(written, type=PodDetails).status

    assert (status.pod_ip, status.host_ip) == ("10.0.0.7", "10.0.0.1")
    assert status.container_statuses[0].image_id == "sha256:1"
