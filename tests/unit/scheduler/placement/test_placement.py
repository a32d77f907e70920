"""Which devices of which node a request gets."""

from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest, Placement, Preference, Selector, SelectorKey
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.placement.placement import Weights, place, score
from tests.unit.scheduler.builders import make_context, make_device


def test_the_score_weighs_free_memory_and_idleness() -> None:
    device = make_device(free_mb=40_000, used=25.0)

    assert score(device, Weights()) == pytest.approx(0.6 * 0.5 + 0.4 * 0.75)
    assert score(device, Weights(memory=1.0, utilization=0.0)) == pytest.approx(0.5)


def test_unknown_readings_score_nothing() -> None:
    weights = Weights()

    assert score(make_device(1, reading=None), weights) == 0.0
    assert score(make_device(1, used=None), weights) == 0.0
    assert score(make_device(1, free_mb=None), weights) == 0.0


def test_best_scored_devices_come_first() -> None:
    devices = [make_device(i, free_mb=free) for i, free in enumerate([50_000, 80_000, 60_000])]

    placed = place(make_context(devices), GpuRequest(gpus=2))

    assert placed is not None
    assert [s.device.number for s in placed.devices] == [1, 2]


def test_preferred_devices_beat_better_scores() -> None:
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


def h100_and_a100() -> list[Device]:
    """One of each on alpha, two A100 on beta, and one more of each on nodes of their own."""
    kinds = {"H100": 81_559, "A100": 40_960}
    places = [("alpha", "H100"), ("alpha", "A100"), ("beta", "A100"), ("beta", "A100")]
    places += [("gamma", "H100"), ("delta", "A100")]
    return [
        make_device(n, node_id=node_id, name=name, memory_total_mb=kinds[name])
        for n, (node_id, name) in enumerate(places)
    ]


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(GpuRequest(gpus=2), {"beta"}, id="gpus of a node"),
        pytest.param(GpuRequest(gpus=2, balanced_memory=True), {"beta"}, id="balanced"),
        pytest.param(GpuRequest(nodes=2, gpu_models=("H100",)), {"alpha", "gamma"}, id="gang"),
        pytest.param(GpuRequest(shares=1.5), {"beta"}, id="shares"),
        pytest.param(GpuRequest(gpus=2, node_ids=("alpha",)), None, id="no two alike"),
        pytest.param(
            GpuRequest(gpus=2, node_ids=("alpha",), mixed_models=True), {"alpha"}, id="mixed"
        ),
        pytest.param(
            GpuRequest(nodes=2, node_ids=("gamma", "delta")), None, id="no two nodes alike"
        ),
        pytest.param(
            GpuRequest(nodes=2, node_ids=("gamma", "delta"), mixed_models=True),
            {"gamma", "delta"},
            id="mixed gang",
        ),
    ],
)
def test_group_has_one_model_unless_mixed(request_: GpuRequest, want: set[str] | None) -> None:
    placed = place(make_context(h100_and_a100()), request_)

    assert (set(placed.node_ids) if placed is not None else None) == want
    if placed is not None and not request_.mixed_models:
        assert len({scored.device.name for scored in placed.devices}) == 1


def test_reserved_memory_makes_no_other_model() -> None:
    devices = [make_device(1, memory_total_mb=81_920), make_device(2, memory_total_mb=81_251)]
    others = [make_device(1), make_device(2, memory_total_mb=40_960)]

    assert place(make_context(devices), GpuRequest(gpus=2)) is not None
    assert place(make_context(others), GpuRequest(gpus=2)) is None


@pytest.mark.parametrize(
    ("placement", "want"), [(Placement.PACK, "busy"), (Placement.SPREAD, "empty")]
)
def test_pack_takes_fullest_node_spread_emptiest(placement: Placement, want: str) -> None:
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


def test_equal_balanced_gangs_take_more_memory() -> None:
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
