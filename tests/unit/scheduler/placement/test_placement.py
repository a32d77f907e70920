"""Which devices of which node a request gets."""

from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest, Placement, Preference, Selector, SelectorKey
from services.scheduler.domain.placement.placement import Weights, place, score
from tests.unit.scheduler.builders import make_context, make_device


def test_the_score_weighs_free_memory_and_idleness() -> None:
    device = make_device(free_mb=40_000, used=25.0)

    assert score(device, Weights()) == pytest.approx(0.6 * 0.5 + 0.4 * 0.75)
    assert score(device, Weights(memory=1.0, utilization=0.0)) == pytest.approx(0.5)


def test_what_is_not_known_well_enough_scores_nothing() -> None:
    weights = Weights()

    assert score(make_device(1, reading=None), weights) == 0.0
    assert score(make_device(1, used=None), weights) == 0.0
    assert score(make_device(1, free_mb=None), weights) == 0.0


def test_the_best_scores_of_a_node_are_taken_best_first() -> None:
    devices = [make_device(i, free_mb=free) for i, free in enumerate([50_000, 80_000, 60_000])]

    placed = place(make_context(devices), GpuRequest(gpus=2))

    assert placed is not None
    assert [s.device.number for s in placed.devices] == [1, 2]


def test_preferred_devices_come_before_those_that_score_better() -> None:
    devices = [
        make_device(1, node_id="alpha", name="A100"),
        make_device(2, node_id="beta", name="H100", free_mb=50_000),
        make_device(3, node_id="beta", name="A100"),
    ]
    liked = Preference(selector=Selector(key=SelectorKey.GPU_MODEL, values=("H100",)))

    placed = place(make_context(devices), GpuRequest(prefer=(liked,)))

    assert placed is not None
    assert placed.numbers == {2}


def test_all_gpus_come_from_one_node() -> None:
    devices = [make_device(1), make_device(2, node_id="beta")]

    assert place(make_context(devices), GpuRequest(gpus=2)) is None


@pytest.mark.parametrize(
    ("placement", "want"), [(Placement.PACK, "busy"), (Placement.SPREAD, "empty")]
)
def test_pack_takes_the_fullest_node_and_spread_the_emptiest(
    placement: Placement, want: str
) -> None:
    devices = [
        make_device(1, node_id="empty"),
        make_device(2, node_id="empty"),
        *(make_device(n, node_id="busy") for n in (3, 4, 5)),  # more are free here
        *(make_device(n, node_id="busy", holder=UUID(int=9)) for n in (6, 7)),
    ]

    placed = place(make_context(devices), GpuRequest(placement=placement))

    assert placed is not None
    assert placed.node_id == want


@pytest.mark.parametrize(
    ("free_mb", "want"),
    [
        pytest.param([80_000, 64_000], {0, 1}, id="exactly 0.8 of the largest"),
        pytest.param([80_000, 63_999], None, id="less than 0.8"),
        pytest.param([80_000, 50_000, 45_000], {1, 2}, id="the best score is left out"),
        pytest.param([80_000, 79_000, 50_000, 49_000], {0, 1}, id="the better of two groups"),
    ],
)
def test_a_balanced_group_has_similar_free_memory(
    free_mb: list[int], want: set[int] | None
) -> None:
    devices = [make_device(i, free_mb=free) for i, free in enumerate(free_mb)]

    placed = place(make_context(devices), GpuRequest(gpus=2, balanced_memory=True))

    assert (placed.numbers if placed is not None else None) == want


def test_of_balanced_gangs_of_equal_worth_the_one_with_more_free_memory_is_taken() -> None:
    readings = {1: (80_000, 75.0), 2: (40_000, 0.0), 3: (80_000, 75.0), 4: (40_000, 0.0)}
    devices = [
        make_device(number, node_id=f"node-{number}", free_mb=free_mb, used=used)
        for number, (free_mb, used) in readings.items()
    ]
    request = GpuRequest(
        nodes=2, balanced_memory=True, min_memory_mb=0, max_utilization_percent=100.0
    )

    placed = place(make_context(devices), request)

    assert placed is not None
    assert placed.numbers == {1, 3}
