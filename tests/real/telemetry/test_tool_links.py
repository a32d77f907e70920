"""Links and NUMA nodes of GPUs that are watched through a vendor's program."""

from pathlib import Path

from schemas.telemetry.readings import LinkKind
from services.telemetry.sources.amd.source import AmdSource
from services.telemetry.sources.nvidia_smi.source import NvidiaSmiSource
from tests.support.fakes.amd import LIST, FakeAmd
from tests.support.fakes.nvidia_smi import FakeSmi, make_gpu

TABLE = """\
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\t0-15\t0\t\tN/A
GPU1\tNV12\t X \t16-31\t1\t\tN/A
"""


async def test_smi_links_are_read_again_for_new_gpus(tmp_path: Path) -> None:
    smi = FakeSmi(tmp_path)
    smi.answer([make_gpu(0, "GPU-a"), make_gpu(1, "GPU-b")])
    source = NvidiaSmiSource(smi.path, deadline_seconds=5.0)
    await source.open()
    unknown = await source.inventory()
    smi.connect(TABLE)
    smi.answer([make_gpu(0, "GPU-a"), make_gpu(1, "GPU-b"), make_gpu(2, "GPU-c")])
    known = await source.inventory()
    await source.close()

    assert unknown.links == ()
    [link] = known.links
    assert (link.first_uuid, link.second_uuid, link.nvlinks) == ("GPU-a", "GPU-b", 12)
    assert [facts.numa_node for facts in known.devices] == [0, 1, None]


async def test_amd_links_are_read_until_known(tmp_path: Path) -> None:
    amd = FakeAmd(tmp_path)
    source = AmdSource(amd.amd_smi_path, amd.rocm_smi_path, deadline_seconds=5.0)
    await source.open()
    unknown = await source.inventory()
    links = [{"gpu": 1, "link_type": "XGMI", "link_status": "ENABLED"}]
    amd.answer(topology=[{"gpu": 0, "links": links}])
    known = await source.inventory()
    await source.close()

    assert unknown.links == ()
    [link] = known.links
    assert [link.first_uuid, link.second_uuid] == [each["uuid"] for each in LIST]
    assert link.kind is LinkKind.NVLINK
    assert [facts.numa_node for facts in known.devices] == [0, 1]
