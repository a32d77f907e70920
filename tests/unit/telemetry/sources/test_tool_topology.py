"""How GPUs are connected, by `nvidia-smi topo -m`, `amd-smi topology` and `rocm-smi --showtopo`.

Tables in the forms that NVIDIA's user guides and the changelog of ROCm's amdsmi show, written for
this.
"""

from typing import Any

import pytest

from schemas.telemetry.readings import LinkKind
from services.telemetry.sources.amd.topology import (
    amd_smi_links,
    rocm_smi_links,
    rocm_smi_numa_nodes,
)
from services.telemetry.sources.nvidia_smi.topology import parse_topology

UUIDS = {0: "GPU-a", 1: "GPU-b", 2: "GPU-c", 3: "GPU-d"}
# With the misplaced tab before the last column, and colours, as it writes them.
TABLE = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tPXB\tSYS\tPIX\t0-15,32-47\t0\t\tN/A
GPU1\tNV12\t X \tNODE\tSYS\tSYS\t0-15,32-47\t0\t\tN/A
GPU2\tPXB\tNODE\t X \tNV4\tSYS\t16-31,48-63\t1\t\tN/A
GPU3\tSYS\tSYS\tNV4\t X \tSYS\t16-31,48-63\tN/A\t\tN/A
NIC0\tPIX\tSYS\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""


def test_smi_topology_has_links_and_numa_nodes() -> None:
    found = parse_topology(TABLE, UUIDS)

    assert [(e.first_uuid[-1] + e.second_uuid[-1], e.kind, e.nvlinks) for e in found.links] == [
        ("ab", LinkKind.NVLINK, 12),
        ("ac", LinkKind.PXB, 0),
        ("ad", LinkKind.SYS, 0),
        ("bc", LinkKind.NODE, 0),
        ("bd", LinkKind.SYS, 0),
        ("cd", LinkKind.NVLINK, 4),
    ]
    assert found.numa_nodes == {"GPU-a": 0, "GPU-b": 0, "GPU-c": 1}


def test_text_before_the_table_is_skipped() -> None:
    warned = f"WARNING: infoROM is corrupted at gpu 0000:02:00.0\n\n{TABLE}"

    assert parse_topology(warned, UUIDS) == parse_topology(TABLE, UUIDS)


def test_a_gpu_that_is_not_listed_is_in_no_pair() -> None:
    found = parse_topology(TABLE, {0: "GPU-a", 3: "GPU-d"})

    assert [(link.first_uuid, link.second_uuid) for link in found.links] == [("GPU-a", "GPU-d")]


@pytest.mark.parametrize(
    "output",
    ["", "Invalid combination of input arguments.", "\tGPU0\tGPU1\nGPU0\t X \nGPU1", "\x1b[4m"],
)
def test_what_the_table_does_not_say_is_unknown(output: str) -> None:
    found = parse_topology(output, UUIDS)

    assert (found.links, found.numa_nodes) == ((), {})


def listed(index: int, *kinds: str, **changed: str) -> dict[str, Any]:
    """A GPU of `amd-smi topology --json` with its links to all."""
    return {
        "gpu": index,
        "bdf": f"0000:0{index}:00.0",
        "links": [
            {
                "gpu": other,
                "weight": 15,
                "link_status": changed.get(f"to_{other}", "ENABLED"),
                "link_type": kind,
                "num_hops": 1,
                "bandwidth": "50000-100000",
            }
            for other, kind in enumerate(kinds)
        ],
    }


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            [
                listed(0, "SELF", "XGMI", "PCIE"),
                listed(1, "XGMI", "SELF", "PCIE"),
                listed(2, "PCIE", "PCIE", "SELF"),
            ],
            id="links",
        ),
        pytest.param(
            [
                {"gpu": 0, "link_type": {"gpu_0": "SELF", "gpu_1": "XGMI", "gpu_2": "PCIE"}},
                {"gpu": 1, "link_type": {"gpu_0": "XGMI", "gpu_1": "SELF", "gpu_2": "PCIE"}},
            ],
            id="before 6.1.1",
        ),
    ],
)
def test_xgmi_is_a_link_once_for_each_pair(document: Any) -> None:
    [link] = amd_smi_links(document, UUIDS)

    assert (link.first_uuid, link.second_uuid, link.kind) == ("GPU-a", "GPU-b", LinkKind.NVLINK)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param([listed(0, "SELF", "XGMI", to_1="DISABLED")], id="disabled"),
        pytest.param([{"gpu": 0, "links": "N/A"}], id="not available"),
        pytest.param({"error": "AMDSMI_STATUS_NOT_SUPPORTED"}, id="an error"),
        pytest.param([listed(0, "SELF", "XGMI") | {"gpu": "N/A"}], id="nobody's"),
        pytest.param([], id="nothing"),
    ],
)
def test_what_amd_smi_does_not_say_is_unknown(document: Any) -> None:
    assert amd_smi_links(document, UUIDS) == ()


def test_rocm_smi_topology_is_in_sentences() -> None:
    document = {
        "system": {
            "(Topology) Weight between DRM devices 0 and 1": "15",
            "(Topology) Link type between DRM devices 0 and 1": "XGMI",
            "(Topology) Link type between DRM devices 0 and 2": "PCIE",
            "(Topology) Link type between DRM devices 1 and 9": "XGMI",
        },
        "card0": {"(Topology) Numa Node": "0", "(Topology) Numa Affinity": "0"},
        "card1": {"(Topology) Numa Node": "1"},
        "card2": {"(Topology) Numa Node": "-1"},
    }

    links = rocm_smi_links(document, UUIDS)

    assert [(link.first_uuid, link.second_uuid) for link in links] == [("GPU-a", "GPU-b")]
    assert rocm_smi_numa_nodes(document) == {0: 0, 1: 1}
    assert rocm_smi_links(["?"], UUIDS) == ()
    assert rocm_smi_numa_nodes("?") == {}
