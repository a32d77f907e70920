"""How GPUs are divided for waiting requests, by the tables of A100 and H100."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.gpus.mig import MigInstance, MigLayout, MigOption
from schemas.scheduler.reasons import ReasonCode
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import Device, Fleet, Reading, ReadingState
from services.scheduler.domain.placement.eligibility import blocks, can_ever_serve, reason_for
from services.scheduler.domain.placement.mig_geometry import MAX_AT_ONCE, Division, divisions
from tests.unit.scheduler.builders import NOW, make_engine, queue

# "Supported MIG Profiles" of NVIDIA's MIG user guide: profile, memory slices, first ones, MB.
A100_40GB = (
    ("1g.5gb", 1, (0, 1, 2, 3, 4, 5, 6), 4_864),
    ("1g.10gb", 2, (0, 2, 4, 6), 9_856),
    ("2g.10gb", 2, (0, 2, 4), 9_856),
    ("3g.20gb", 4, (0, 4), 19_968),
    ("4g.20gb", 4, (0,), 19_968),
    ("7g.40gb", 8, (0,), 40_192),
)
H100_80GB = (
    ("1g.10gb", 1, (0, 1, 2, 3, 4, 5, 6), 9_856),
    ("1g.20gb", 2, (0, 2, 4, 6), 20_096),
    ("2g.20gb", 2, (0, 2, 4), 20_096),
    ("3g.40gb", 4, (0, 4), 40_448),
    ("4g.40gb", 4, (0,), 40_448),
    ("7g.80gb", 8, (0,), 81_152),
)
HOLDER = UUID(int=1)
IDLE = Reading(utilization_percent=0.0, memory_total_mb=9_856, memory_free_mb=9_856)

Table = tuple[tuple[str, int, tuple[int, ...], int], ...]


def gpu(
    table: Table = H100_80GB,
    *there: tuple[str, int],
    number: int = 0,
    held: Iterable[int] = (),
    others: Iterable[int] = (),
    refusal: str = "",
    **values: Any,
) -> list[Device]:
    """A GPU with instances at these slices: of the agent, but for `others`."""
    options = tuple(
        MigOption(profile=profile, size=size, starts=starts, limit=len(starts), memory_mb=mb)
        for profile, size, starts, mb in table
    )
    sizes = {option.profile: option for option in options}
    instances = [
        MigInstance(
            profile=profile,
            start=start,
            size=sizes[profile].size,
            device_uuids=(f"MIG-{number}-{start}",),
            made_by_agent=start not in others,
        )
        for profile, start in there
    ]
    shared: dict[str, Any] = {
        "node_id": "alpha",
        "name": "NVIDIA H100 80GB HBM3",
        "reading_state": ReadingState.FRESH,
    }
    parent = Device(
        number=number * 100,
        uuid=f"GPU-{number}",
        index=number,
        memory_total_mb=81_559,
        mig_enabled=True,
        mig_layout=MigLayout(options=options, instances=tuple(instances), refusal=refusal),
        **shared | values,
    )
    return [
        parent,
        *(
            Device(
                number=number * 100 + 1 + each.start,
                uuid=each.device_uuids[0],
                index=10 * (number + 1) + each.start,
                memory_total_mb=sizes[each.profile].memory_mb,
                parent_uuid=parent.uuid,
                mig_profile=each.profile,
                reading=IDLE,
                holder=HOLDER if each.start in held else None,
                **shared,
            )
            for each in instances
        ),
    ]


def asks(*profiles: str) -> list[GpuRequest]:
    return [GpuRequest(mig_profile=profile, min_memory_mb=1_000) for profile in profiles]


def found(divided: list[Division]) -> list[tuple[str, str, int, list[int]]]:
    return [(d.gpu.uuid, d.profile, d.start, [each.start for each in d.remove]) for d in divided]


@pytest.mark.parametrize(
    ("devices", "profile", "want"),
    [
        pytest.param(gpu(A100_40GB), "1g.5gb", (6, []), id="A100: the last slice, halves whole"),
        pytest.param(gpu(A100_40GB), "3g.20gb", (4, []), id="A100: 4g may still follow"),
        pytest.param(gpu(A100_40GB, ("3g.20gb", 4)), "4g.20gb", (0, []), id="A100: 4g beside 3g"),
        pytest.param(
            gpu(A100_40GB, ("1g.5gb", 6), held=[6]),
            "1g.5gb",
            (4, []),
            id="A100: broken half",
        ),
        pytest.param(
            gpu(A100_40GB, ("2g.10gb", 0), ("2g.10gb", 2), ("2g.10gb", 4)),
            "1g.5gb",
            (6, []),
            id="A100: what is left of 2g x 3",
        ),
        pytest.param(gpu(), "7g.80gb", (0, []), id="H100: all of it"),
        pytest.param(gpu(H100_80GB, ("1g.10gb", 6)), "7g.80gb", (0, [6]), id="H100: one leaves"),
        pytest.param(
            gpu(H100_80GB, ("1g.10gb", 6), held=[6]), "3g.40gb", (0, []), id="H100: beside a held"
        ),
        pytest.param(
            gpu(H100_80GB, ("1g.10gb", 6), ("2g.20gb", 0), held=[6]),
            "3g.40gb",
            (0, [0]),
            id="H100: the one that is not held leaves",
        ),
        pytest.param(
            gpu(H100_80GB, ("2g.20gb", 0), ("1g.10gb", 4)), "3g.40gb", (4, [4]), id="the smaller"
        ),
        pytest.param(gpu(H100_80GB, ("1g.10gb", 6), held=[6]), "7g.80gb", None, id="one is held"),
        pytest.param(
            gpu(H100_80GB, ("1g.10gb", 6), others=[6]), "7g.80gb", None, id="another's stays"
        ),
        pytest.param(gpu(), "1g.5gb", None, id="a profile of another model"),
        pytest.param(gpu(reading_state=ReadingState.STALE), "7g.80gb", None, id="a silent agent"),
        pytest.param(gpu(cordoned=True), "7g.80gb", None, id="out of service"),
        pytest.param(
            gpu(H100_80GB, ("4g.40gb", 0), held=[0]), "4g.40gb", None, id="one of its kind at most"
        ),
    ],
)
def test_instance_is_made_where_it_costs_least(
    devices: list[Device], profile: str, want: tuple[int, list[int]] | None
) -> None:
    divided = divisions(asks(profile), Fleet.of(devices), {})

    assert [(start, remove) for _, _, start, remove in found(divided)] == ([want] if want else [])


def test_two_profiles_share_a_gpu_in_two_steps() -> None:
    requests = asks("3g.40gb", "1g.10gb")

    first = divisions(requests, Fleet.of(gpu()), {})
    meanwhile = divisions(requests, Fleet.of(gpu()), {"GPU-0": "3g.40gb"})
    made = gpu(H100_80GB, ("3g.40gb", 4), held=[4])
    second = divisions(requests[1:], Fleet.of(made), {})

    assert found(first) == [("GPU-0", "3g.40gb", 4, [])]
    assert meanwhile == []
    assert found(second) == [("GPU-0", "1g.10gb", 0, [])]


@pytest.mark.parametrize(
    ("changes", "leaves"),
    [
        pytest.param({}, True, id="idle"),
        pytest.param({"holder": HOLDER}, False, id="held"),
        pytest.param({"cordoned": True}, False, id="out of service"),
        pytest.param({"foreign_pids": (7,)}, False, id="a stranger's process"),
        pytest.param({"health": HealthState.FAILING}, False, id="failing"),
        pytest.param(None, False, id="nobody has seen it"),
    ],
)
def test_only_what_nothing_uses_gives_way(changes: dict[str, Any] | None, leaves: bool) -> None:
    parent, there = gpu(H100_80GB, ("1g.10gb", 6))
    devices = [parent] if changes is None else [parent, msgspec.structs.replace(there, **changes)]

    assert bool(divisions(asks("7g.80gb"), Fleet.of(devices), {})) is leaves


@pytest.mark.parametrize(("limit", "made"), [(1, 0), (2, 1)])
def test_profile_limit_is_never_exceeded(limit: int, made: int) -> None:
    parent, *there = gpu(H100_80GB, ("1g.10gb", 6), ("2g.20gb", 0), held=[0, 6])
    assert parent.mig_layout is not None
    options = tuple(
        msgspec.structs.replace(each, limit=limit) for each in parent.mig_layout.options
    )
    layout = msgspec.structs.replace(parent.mig_layout, options=options)
    fleet = Fleet.of([msgspec.structs.replace(parent, mig_layout=layout), *there])

    assert len(divisions(asks("1g.10gb"), fleet, {})) == made


def test_what_another_waits_for_is_not_removed() -> None:
    fleet = Fleet.of(gpu(H100_80GB, ("1g.10gb", 6)))

    assert divisions(asks("7g.80gb", "1g.10gb"), fleet, {}) == []
    assert found(divisions(asks("7g.80gb"), fleet, {})) == [("GPU-0", "7g.80gb", 0, [6])]


def test_present_instance_is_not_made_again() -> None:
    there = Fleet.of(gpu(H100_80GB, ("1g.10gb", 6)))

    assert divisions(asks("1g.10gb"), there, {}) == []
    assert divisions(asks("1g.10gb"), Fleet.of(gpu()), {"GPU-0": "1g.10gb"}) == []
    assert len(divisions(asks("1g.10gb", "1g.10gb"), there, {})) == 1


@pytest.mark.parametrize(
    ("request_", "under_way", "made_on"),
    [
        pytest.param({}, {"GPU-0": "1g.10gb"}, [], id="it is on its way"),
        pytest.param({}, {"GPU-0": "3g.40gb"}, ["GPU-1"], id="another profile is"),
        pytest.param(
            {"node_ids": ("beta",)}, {"GPU-0": "1g.10gb"}, ["GPU-1"], id="on another node"
        ),
        pytest.param({}, {"GPU-9": "1g.10gb"}, ["GPU-0"], id="of a GPU that is gone"),
    ],
)
def test_only_serving_instances_are_awaited(
    request_: dict[str, Any], under_way: dict[str, str], made_on: list[str]
) -> None:
    fleet = Fleet.of([*gpu(), *gpu(number=1, node_id="beta")])
    request = GpuRequest(mig_profile="1g.10gb", **request_)

    assert [each.gpu.uuid for each in divisions([request], fleet, under_way)] == made_on


def test_too_small_instance_is_not_remade() -> None:
    request = GpuRequest(mig_profile="1g.10gb", min_memory_mb=9_800)
    there = gpu(H100_80GB, ("1g.10gb", 6))
    small = [msgspec.structs.replace(each, memory_total_mb=9_728) for each in there[1:]]

    assert len(divisions([request], Fleet.of(gpu()), {})) == 1
    assert divisions([request], Fleet.of([there[0], *small]), {}) == []


def test_refusing_gpu_is_left_for_another() -> None:
    fleet = Fleet.of([*gpu(), *gpu(number=1)])

    assert found(divisions(asks("7g.80gb"), fleet, {}, {"GPU-0"})) == [("GPU-1", "7g.80gb", 0, [])]


def test_divided_gpu_is_preferred() -> None:
    fleet = Fleet.of([*gpu(), *gpu(H100_80GB, ("1g.10gb", 6), number=1, held=[6])])

    assert found(divisions(asks("2g.20gb"), fleet, {}))[0][:2] == ("GPU-1", "2g.20gb")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param(GpuRequest(mig_profile="3g.40gb"), None, id="can be made"),
        pytest.param(
            GpuRequest(mig_profile="3g.40gb", min_memory_mb=60_000),
            ReasonCode.INSUFFICIENT_TOTAL_MEMORY,
            id="the instance is too small, not the GPU",
        ),
        pytest.param(
            GpuRequest(mig_profile="3g.40gb", device_uuids=("GPU-0",)),
            ReasonCode.UUID_MISMATCH,
            id="nobody knows its uuid",
        ),
        pytest.param(
            GpuRequest(mig_profile="3g.41gb"), ReasonCode.MIG_ENABLED, id="no such profile"
        ),
        pytest.param(GpuRequest(), ReasonCode.MIG_ENABLED, id="a whole GPU"),
    ],
)
def test_request_waits_for_possible_instances_only(
    request_: GpuRequest, code: ReasonCode | None
) -> None:
    [device] = gpu()
    node = Fleet.of([device]).node("alpha")

    codes = set(blocks(device, request_, node))

    assert can_ever_serve(device, request_, node) is (code is None)
    assert codes >= ({ReasonCode.MIG_NOT_MADE} if code is None else {code})


def test_divisible_gpu_is_never_granted_whole() -> None:
    """Also where its source reports a utilization of it, as DCGM's exporter may."""
    engine = make_engine(*gpu(reading=IDLE))
    queue(engine, 1, asks("3g.40gb")[0])

    assert engine.decide(NOW) == ()


def test_reason_tells_who_makes_an_instance() -> None:
    [device] = gpu(refusal="a process runs on it")
    node = Fleet.of([device]).node("alpha")

    reason = reason_for(ReasonCode.MIG_NOT_MADE, device, asks("3g.40gb")[0], node)

    assert reason.message == (
        "GPU 0 on alpha has no 3g.40gb, its agent makes one once it has room; its last change was"
        " refused: a process runs on it"
    )


def test_divisions_use_other_gpus_in_queue_order() -> None:
    fleet = Fleet.of([device for number in range(40) for device in gpu(number=number)])
    requests = asks(*["7g.80gb"] * 3, *["3g.40gb"] * 60, "1g.5gb")

    divided = divisions(requests, fleet, {})

    assert [each.profile for each in divided[:4]] == [*["7g.80gb"] * 3, "3g.40gb"]
    assert len({each.gpu.uuid for each in divided}) == len(divided) == MAX_AT_ONCE
