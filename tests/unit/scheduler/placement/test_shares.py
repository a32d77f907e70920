"""How shares are divided among devices: the documented examples, and what holds for any amounts."""

from itertools import combinations
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gpus.device_grant import ShareKind
from schemas.gpus.gpu_request import GpuRequest, ShareStrategy
from schemas.scheduler.reasons import ReasonCode
from services.scheduler.domain.model.fleet import Fleet, Host, Node, Part
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    FleetComplete,
    Input,
    NodeSeen,
    RequestQueued,
)
from services.scheduler.domain.placement.decisions import Grant, Rejection
from services.scheduler.domain.placement.placement import PlacementContext, place
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.placement.reasons import blocking_reasons, impossible_reasons
from services.scheduler.domain.placement.shares import (
    ShareRules,
    SharesRefused,
    divide,
    hundredths,
)
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from services.scheduler.ledger.device_cells import FreeCells
from shared.gpu.shares import MPS_LABEL
from tests.unit.scheduler.builders import NOW, make_device, make_queued

EVENLY, FILL = ShareStrategy.EVENLY, ShareStrategy.FILL
FREE = st.lists(st.integers(0, 20).map(lambda tenth: tenth * 5), min_size=1, max_size=5)


def parts_of(free: list[int], asked: int, **how: object) -> tuple[int, ...]:
    parts = divide(free, asked, **how)  # type: ignore[arg-type]
    assert not isinstance(parts, SharesRefused), parts
    return parts


def test_shares_0_2_and_1_2_hold_0_60_and_0_80() -> None:
    free = [100, 100]

    first = parts_of(free, 20)
    second = parts_of([f - p for f, p in zip(free, first, strict=True)], 120)

    assert first == (0, 20)  # equal devices: the last one
    assert second == (60, 60)
    assert [a + b for a, b in zip(first, second, strict=True)] == [60, 80]


@pytest.mark.parametrize(
    ("free", "asked", "parts"),
    [
        ([70, 30, 50], 30, (0, 30, 0)),  # the least free that can hold it
        ([50, 50], 100, (50, 50)),
        ([100, 30, 80], 190, (80, 30, 80)),  # a smaller one gives all that it has
        ([100, 100, 100], 201, (67, 67, 67)),
        ([100, 100, 100], 150, (75, 75, 0)),  # of equal ones the first
        ([60, 60], 101, (51, 50)),  # what is odd goes to the first
        ([90, 70, 60], 120, (0, 60, 60)),  # as even, and less left over
        ([100], 0, (0,)),
    ],
)
def test_evenly_takes_the_fewest_devices(
    free: list[int], asked: int, parts: tuple[int, ...]
) -> None:
    assert parts_of(free, asked) == parts


@pytest.mark.parametrize(
    ("free", "asked", "parts"),
    [
        ([40, 100, 70], 30, (0, 30, 0)),
        ([40, 100, 70], 150, (0, 100, 50)),
        ([50, 50], 60, (50, 10)),
    ],
)
def test_fill_takes_all_of_the_most_free_first(
    free: list[int], asked: int, parts: tuple[int, ...]
) -> None:
    assert parts_of(free, asked, strategy=FILL) == parts


@pytest.mark.parametrize(
    ("free", "asked", "parts"),
    [
        ([10, 10, 10], 7, (3, 2, 2)),
        ([10, 10, 10], 2, (1, 1, 0)),
        ([10, 10, 10], 30, (10, 10, 10)),
        ([1, 10, 1], 3, (1, 1, 1)),  # one of each before a second of any
        ([10, 1, 10], 7, (3, 1, 3)),
        ([1, 10, 5], 9, (1, 4, 4)),  # the ones with room go on evenly
        ([4, 0, 5], 4, (2, 0, 2)),
        ([10, 10], 0, (0, 0)),
    ],
)
def test_units_spread_over_devices_with_room(
    free: list[int], asked: int, parts: tuple[int, ...]
) -> None:
    assert parts_of(free, asked, counted=True) == parts


def test_filling_units_take_the_most_free_first() -> None:
    assert parts_of([4, 10, 7], 15, counted=True, strategy=FILL) == (0, 10, 5)


@given(st.lists(st.integers(0, 10), min_size=1, max_size=6), st.integers(0, 40))
def test_units_differ_by_at_most_one(free: list[int], asked: int) -> None:
    parts = divide([each * 10 for each in free], asked * 10, quantum=10, counted=True)

    if asked > sum(free):
        assert parts is SharesRefused.INSUFFICIENT
        return
    assert not isinstance(parts, SharesRefused)
    units = [part // 10 for part in parts]
    assert sum(units) == asked
    assert all(0 <= unit <= room for unit, room in zip(units, free, strict=True))
    with_room = [unit for unit, room in zip(units, free, strict=True) if unit < room]
    assert not with_room or max(units) - min(with_room) <= 1


def test_units_are_granted_as_they_are_spread() -> None:
    devices = [make_device(number) for number in range(3)]
    request = GpuRequest(share_units=7, units_per_gpu=10)

    placed = place(PlacementContext(fleet=Fleet.of(devices)), request)

    assert request.shares == 0.7
    assert placed is not None
    assert sorted(placed.nodes[0].parts) == [20, 20, 30]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"share_units": 7, "units_per_gpu": 30}, "100 is a multiple, got 30"),
        ({"share_units": 7, "units_per_gpu": 10, "shares": 0.5}, "one of `shares`"),
        ({"units_per_gpu": 10}, "expected `share_units`"),
        ({"share_units": 7, "units_per_gpu": 10, "unfragmented": True}, "no `unfragmented`"),
    ],
)
def test_units_that_mean_nothing_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        GpuRequest(**fields)


def test_parts_are_multiples_of_the_quantum() -> None:
    assert sorted(parts_of([100, 100, 100], 230, quantum=10)) == [70, 80, 80]
    assert parts_of([55, 99], 100, quantum=10) == (50, 50)
    assert divide([59, 49], 100, quantum=10) is SharesRefused.INSUFFICIENT


def test_devices_below_the_minimum_are_skipped() -> None:
    assert parts_of([20, 60, 50], 20, least_free=55) == (0, 20, 0)
    assert divide([20, 60, 50], 70, least_free=55) is SharesRefused.INSUFFICIENT


def test_fit_on_one_device_may_fail_on_several() -> None:
    assert parts_of([50, 40], 80) == (40, 40)
    assert divide([50, 40], 80, unfragmented=True) is SharesRefused.FRAGMENTED
    assert divide([100, 30], 130, unfragmented=True) is SharesRefused.FRAGMENTED
    assert parts_of([100, 70], 130, unfragmented=True) == (65, 65)


def test_no_amount_is_rounded() -> None:
    assert [hundredths(shares) for shares in (0.01, 0.29, 1.2, 57.3, 1.0)] == [
        1,
        29,
        120,
        5730,
        100,
    ]
    assert hundredths(0.125) is None
    for asked in (-10, 5):
        with pytest.raises(ValueError, match="multiple of 10"):
            divide([100], asked, quantum=10)
    assert divide([100], 10**30) is SharesRefused.INSUFFICIENT


@given(FREE, st.integers(0, 100).map(lambda n: n * 5), st.sampled_from([1, 5, 10, 50]), st.data())
def test_parts_sum_to_what_was_asked_and_fit(
    free: list[int], asked: int, quantum: int, data: st.DataObject
) -> None:
    asked -= asked % quantum
    strategy = data.draw(st.sampled_from(ShareStrategy))
    room = sum(f - f % quantum for f in free)

    parts = divide(free, asked, quantum=quantum, strategy=strategy)

    if asked > room:
        assert parts is SharesRefused.INSUFFICIENT
        return
    assert not isinstance(parts, SharesRefused)
    assert sum(parts) == asked
    assert all(0 <= p <= f and p % quantum == 0 for p, f in zip(parts, free, strict=True))


@given(FREE, st.integers(1, 100).map(lambda n: n * 5))
def test_evenly_is_no_more_even_on_any_other_devices(free: list[int], asked: int) -> None:
    if asked > sum(free):
        return

    parts = parts_of(free, asked, quantum=5)

    used = [p for p in parts if p]
    feasible = [
        chosen
        for size in range(1, len(used) + 1)
        for chosen in combinations(free, size)
        if sum(chosen) >= asked
    ]
    assert min(map(len, feasible)) == len(used)
    # Water level: no other set of as many has a larger smallest part.
    for chosen in feasible:
        smallest = min(min(chosen), asked // 5 // len(chosen) * 5)
        assert smallest <= min(used)


@given(st.lists(st.integers(1, 60), max_size=12), st.data())
def test_cells_are_given_to_one_holding_each(amounts: list[int], data: st.DataObject) -> None:
    """Parts come and go in any order; what is free is always the rest."""
    open_: list[list[tuple[int, int]]] = []
    for amount in amounts:
        free = FreeCells.of_device(7)
        for ranges in open_:
            free.remove(ranges)
        left = sum(end - begin for begin, end in free.ranges)

        taken = free.take(amount)

        if taken is None:
            assert left < amount * 100
            continue
        assert sum(end - begin for begin, end in taken) == amount * 100
        cells = [cell for each in (*open_, taken) for b, e in each for cell in range(b, e)]
        assert len(cells) == len(set(cells))
        assert all(70_000 <= cell < 80_000 for cell in cells)
        open_.append(taken)
        if data.draw(st.booleans()):
            open_.pop(data.draw(st.integers(0, len(open_) - 1)))


@pytest.mark.parametrize(
    ("label", "asked", "want"),
    [
        pytest.param("true", 0.6, (50, 10), id="one daemon: over two"),
        pytest.param("gpu", 0.5, (50,), id="a daemon each: on one"),
        pytest.param("gpu", 0.6, ReasonCode.SHARES_FRAGMENTED, id="a daemon each: not over two"),
        pytest.param("gpu", 1.5, ReasonCode.MPS_PER_GPU, id="a daemon each: never above one"),
    ],
)
def test_mps_grants_parts_of_one_gpu_each(
    label: str, asked: float, want: tuple[int, ...] | ReasonCode
) -> None:
    devices = [
        make_device(number, holder=UUID(int=9), parts=(Part(UUID(int=9), 50),)) for number in (1, 2)
    ]
    host = Host(node=Node(node_id="alpha", labels={MPS_LABEL: label}))
    fleet = Fleet(nodes={"alpha": tuple(devices)}, hosts={"alpha": host})
    request = GpuRequest(shares=asked, share_strategy=ShareStrategy.FILL)
    context = PlacementContext(fleet=fleet)

    placed = place(context, request)

    if isinstance(want, ReasonCode):
        assert placed is None
        assert want in {reason.code for reason in blocking_reasons(context, request)}
        assert bool(impossible_reasons(fleet, request)) is (want is ReasonCode.MPS_PER_GPU)
    else:
        assert placed is not None
        assert placed.nodes[0].parts == want
        assert placed.nodes[0].share_kind is ShareKind.MPS


def test_shares_above_and_below_one_differ() -> None:
    fleet: list[Input] = [
        NodeSeen(node=Node(node_id="alpha", labels={MPS_LABEL: "gpu"})),
        *(DeviceSeen(device=make_device(number)) for number in (1, 2)),
        FleetComplete(complete=True),
    ]
    engine = DecisionEngine(Policy())
    engine.apply(*fleet)
    for number, shares in enumerate((0.5, 1.5), 1):
        engine.apply(RequestQueued(entry=make_queued(number, GpuRequest(shares=shares))))

    decided = {type(each): each.reservation_id.int for each in engine.decide(NOW)}

    assert decided == {Grant: 1, Rejection: 2}


@pytest.mark.parametrize(
    ("named", "insists"),
    [((), False), (("other",), False), (("other", "mine"), True), (("*",), True)],
)
def test_named_namespace_needs_enforced_shares(named: tuple[str, ...], insists: bool) -> None:
    assert ShareRules(enforced_namespaces=frozenset(named)).insists("mine") is insists
