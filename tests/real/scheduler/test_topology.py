"""From the links of an inventory to the GPUs of a grant."""

from itertools import pairwise

from schemas.gpus.gpu_request import GpuRequest
from schemas.telemetry.readings import GpuLink, LinkKind
from tests.support.worlds.scheduler import FakeGpu, World

GPUS = [
    FakeGpu(uuid=f"GPU-{n}", index=n, memory_used_mb=used)
    for n, used in enumerate((0, 0, 900, 100))
]


def link(first: int, second: int, kind: LinkKind) -> GpuLink:
    return GpuLink(first_uuid=f"GPU-{first}", second_uuid=f"GPU-{second}", kind=kind)


async def test_group_is_granted_on_one_island(
    steward: World,
) -> None:
    links = (
        *(link(a, b, LinkKind.SYS) for a, b in pairwise(range(4))),
        link(0, 3, LinkKind.NVLINK),
        link(1, 2, LinkKind.NVLINK),
    )
    await steward.add_node("alpha", GPUS, links=links)
    await steward.known("alpha", 4)

    pair = await steward.granted(await steward.request(GpuRequest(gpus=2)))
    single = await steward.granted(await steward.request(GpuRequest()))

    assert {d.index for d in pair.devices} == {0, 3}  # 0 and 1 score better
    assert {d.link_groups[1] for d in pair.devices} == {0}
    view = await steward.view(pair.reservation_id)
    assert view.nearness is LinkKind.NVLINK
    assert view.memory_balance is not None
    assert 0.8 <= view.memory_balance < 1
    alone = await steward.view(single.reservation_id)
    assert (alone.nearness, alone.memory_balance) == (None, None)
