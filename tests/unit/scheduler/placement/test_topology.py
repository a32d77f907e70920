"""GPUs near to each other go together, and single ones where they break the least."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_request import GpuRequest, Placement, Preference, Selector
from schemas.gpus.gpu_request import SelectorKey as Key
from schemas.telemetry.readings import DeviceFacts, GpuLink, LinkKind
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.placement.device_choice import Scored, best_first, choose, rank
from services.scheduler.domain.placement.placement import Weights, score
from services.scheduler.domain.placement.topology import (
    Topology,
    link_groups,
    memory_balance,
    nearness,
)
from tests.unit.scheduler.builders import NOW, hold, make_device, make_engine, would_grant

Links = Sequence[tuple[LinkKind, Sequence[int]]]
HALVES = (0, 0, 0, 0, 1, 1, 1, 1)
NVSWITCH: Links = ((LinkKind.NVLINK, range(8)),)
PAIRS: Links = tuple((LinkKind.NVLINK, (n, n + 1)) for n in range(0, 8, 2))


def groups(links: Links, numa: Sequence[int | None] = HALVES) -> list[tuple[int, ...]]:
    """Of eight GPUs, each connected with each of a list; other pairs are not told."""
    facts = [
        DeviceFacts(uuid=str(n), index=n, name="H100", numa_node=node)
        for n, node in enumerate(numa)
    ]
    told = [
        GpuLink(first_uuid=str(a), second_uuid=str(b), kind=kind)
        for kind, members in links
        for a, b in combinations(members, 2)
    ]
    found = link_groups(facts, told)
    return [found.get(str(n), ()) for n in range(len(numa))]


def gpus(links: Links, node_id: str = "alpha", first: int = 0) -> list[Device]:
    return [
        make_device(first + n, index=n, node_id=node_id, link_groups=of)
        for n, of in enumerate(groups(links))
    ]


def chosen(devices: Sequence[Device], request: GpuRequest, held: Sequence[int] = ()) -> set[int]:
    engine = make_engine(*devices)
    for number in held:
        hold(engine, number + 1, number)
    placed = would_grant(engine, request, NOW)
    assert placed is not None
    return set(placed.numbers)


def test_group_is_joined_by_near_links() -> None:
    found = groups((*PAIRS, (LinkKind.PXB, range(4)), (LinkKind.SYS, range(8))))

    assert found[1] == (0, 0, 0, 0, 0, 0, 0)
    assert found[3] == (2, 2, 2, 2, 0, 0, 0)
    assert found[7] == (6, 6, 6, 6, 6, 6, 4)


def test_island_joins_nvlink_over_other_gpus() -> None:
    cube: Links = ((LinkKind.NVLINK, (0, 1)), (LinkKind.NVLINK, (1, 5)), (LinkKind.NVLINK, (5, 4)))

    found = groups(cube)

    assert [found[n][:2] for n in (0, 1, 4, 5)] == [(0, 0), (0, 0), (4, 0), (4, 0)]
    assert found[2][:2] == (2, 2)


def test_gpu_without_links_or_numa_is_unknown() -> None:
    assert groups((), (None, None, 0)) == [(), (), (2,) * 7]
    instance = DeviceFacts(uuid="m", index=8, name="MIG", parent_uuid="0", numa_node=0)
    assert link_groups([instance], []) == {}


@pytest.mark.parametrize(
    ("links", "held", "count", "want"),
    [
        pytest.param(PAIRS, (1, 2), 2, {4, 5}, id="one island though others come first"),
        pytest.param(PAIRS, (0, 2, 4, 7), 2, {1, 3}, id="one NUMA node where no island has room"),
        pytest.param(NVSWITCH, (0, 1, 2, 4), 2, {5, 6}, id="NVLink within one NUMA node"),
        pytest.param(NVSWITCH, (0, 4, 5), 2, {6, 7}, id="the smallest group that suffices"),
        pytest.param(NVSWITCH, (0, 1, 4), 3, {5, 6, 7}, id="a whole half"),
        pytest.param(NVSWITCH, (0, 1, 4, 5), 3, {2, 3, 6}, id="the island where no half suffices"),
        pytest.param(NVSWITCH, (4,), 1, {5}, id="a single one in the half that is broken"),
        pytest.param(PAIRS, (7,), 1, {6}, id="a single one beside a held one"),
        pytest.param(PAIRS, (4, 5), 1, {6}, id="a pair of the NUMA node that is broken"),
        pytest.param((), (), 4, {0, 1, 2, 3}, id="NUMA nodes alone"),
    ],
)
def test_gpus_are_near_and_break_the_fewest_groups(
    links: Links, held: tuple[int, ...], count: int, want: set[int]
) -> None:
    assert chosen(gpus(links), GpuRequest(gpus=count), held) == want


def test_near_gpus_beat_better_scores() -> None:
    devices = gpus(PAIRS)
    devices[2:4] = [
        make_device(n, index=n, link_groups=devices[n].link_groups, free_mb=70_000) for n in (2, 3)
    ]

    assert chosen(devices, GpuRequest(gpus=2), held=(0, 4, 6)) == {2, 3}
    assert chosen(devices, GpuRequest(gpus=1), held=(0, 4, 6)) == {5}


def test_what_is_preferred_comes_before_what_is_near() -> None:
    wished = Preference(selector=Selector(key=Key.GPU_UUID, values=("GPU-1", "GPU-6")), weight=1)

    assert chosen(gpus(PAIRS), GpuRequest(gpus=2, prefer=(wished,))) == {1, 6}
    assert chosen(gpus(PAIRS), GpuRequest(gpus=3, prefer=(wished,))) >= {1, 6}


@pytest.mark.parametrize("placement", list(Placement))
def test_group_goes_to_node_with_island_room(placement: Placement) -> None:
    """Before the fuller one or the emptier one, where only GPUs of several islands are free."""
    request = GpuRequest(gpus=2, placement=placement)
    apart = [d for d in gpus(PAIRS) if d.index % 2]
    island = [d for d in gpus(NVSWITCH, "beta", 8) if d.index in {0, 4}]
    unknown = [make_device(20 + n, index=n, node_id="gamma") for n in range(4)]

    assert chosen([*apart, *island, *unknown], request) == {8, 12}
    assert chosen([*apart, *unknown], request) <= {1, 3, 5, 7}


def test_single_gpu_breaks_the_smallest_island() -> None:
    devices = [*gpus(PAIRS), *gpus(PAIRS, "beta", 8)]

    assert chosen(devices, GpuRequest(), held=(0, 1, 8, 10)) == {9}


def test_numa_within_island_opens_no_other_node() -> None:
    devices = [*gpus(NVSWITCH), *gpus(NVSWITCH, "beta", 8)]

    assert chosen(devices, GpuRequest(gpus=2), held=(0, 1, 2, 4, 5, 6)) == {3, 7}


@given(
    st.lists(st.integers(0, 7), unique=True),
    st.lists(st.sampled_from([80_000, 70_000, 60_000, 50_000]), min_size=8, max_size=8),
    st.sampled_from([NVSWITCH, PAIRS, ()]),
    st.integers(1, 4),
    st.booleans(),
)
def test_no_set_ranks_before_the_one_that_is_chosen(
    held: list[int], free_mb: list[int], links: Links, count: int, balanced: bool
) -> None:
    devices = [
        make_device(n, link_groups=of, free_mb=free_mb[n], holder=None)
        for n, of in enumerate(groups(links))
    ]
    candidates = best_first(
        Scored(device, score(device, Weights())) for device in devices if device.index not in held
    )
    topology = Topology.of(devices)

    found = choose(candidates, GpuRequest(gpus=count, balanced_memory=balanced), topology)

    sets = [
        each
        for each in combinations(candidates, count)
        if not balanced or 0.8 * max(map(memory, each)) <= min(map(memory, each))
    ]
    if found is None:
        assert not sets
    else:
        assert rank(found, topology) == min(rank(each, topology) for each in sets)


def memory(scored: Scored) -> int:
    assert scored.device.reading is not None
    return scored.device.reading.memory_free_mb or 0


def grant(index: int, groups: tuple[int, ...] = (), node_id: str = "a", mb: int = 8) -> DeviceGrant:
    return DeviceGrant(
        node_id=node_id,
        uuid=f"{node_id}{index}",
        index=index,
        name="H100",
        link_groups=groups,
        memory_free_mb=mb,
    )


@pytest.mark.parametrize(
    ("links", "indices", "want"),
    [
        pytest.param(PAIRS, (0, 1), LinkKind.NVLINK, id="an island"),
        pytest.param(NVSWITCH, (0, 7), LinkKind.NVLINK, id="an island of two NUMA nodes"),
        pytest.param(PAIRS, (0, 1, 2), LinkKind.NODE, id="one NUMA node"),
        pytest.param(PAIRS, (0, 7), LinkKind.SYS, id="two NUMA nodes"),
        pytest.param(PAIRS, (3,), None, id="one GPU"),
    ],
)
def test_nearness_of_grant_is_its_farthest_link(
    links: Links, indices: tuple[int, ...], want: LinkKind | None
) -> None:
    of = groups(links)

    assert nearness([grant(n, of[n]) for n in indices]) is want


def test_nearness_of_gang_is_its_worst_node() -> None:
    of = groups(PAIRS)
    near, far = [grant(n, of[n]) for n in (0, 1)], [grant(n, of[n], "b") for n in (0, 7)]

    assert nearness([*near, *far]) is LinkKind.SYS
    assert nearness([*near, grant(0, node_id="b"), grant(1, node_id="b")]) is None
    assert nearness([grant(0), grant(0, node_id="b")]) is None


def test_memory_balance_is_least_over_largest() -> None:
    assert memory_balance([grant(0, mb=80), grant(1, mb=70), grant(2, mb=60)]) == 0.75
    assert memory_balance([grant(0)]) is None
