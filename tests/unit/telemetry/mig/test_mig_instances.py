"""What the agent changes of a divided GPU, and what it leaves alone."""

from typing import Any

import msgspec
import pytest

from schemas.errors import ErrorCode
from schemas.gpus.mig import ChangeMig, MigInstance, MigLayout
from services.telemetry.domain.mig_instances import (
    MadeInstance,
    MigRecord,
    why_not,
    with_another,
)
from services.telemetry.domain.mig_profiles import usual_options
from shared.errors import RefusedError
from shared.ids import new_id

A100_40GB_MB = 40_960
H100_80GB_MB = 81_559
OPTIONS = usual_options(H100_80GB_MB)
SIZES = {option.profile: option.size for option in OPTIONS}


def instance(profile: str, start: int) -> MigInstance:
    uuid = f"MIG-{profile}-{start}"
    return MigInstance(profile=profile, start=start, size=SIZES[profile], device_uuids=(uuid,))


def change(profile: str, start: int, *remove: int, number: int = 7) -> ChangeMig:
    return ChangeMig(
        command_id=new_id(),
        node_id="alpha",
        device_uuid="GPU-0",
        number=number,
        profile=profile,
        start=start,
        remove_starts=remove,
    )


@pytest.mark.parametrize(
    ("memory_mb", "want"),
    [
        pytest.param(
            A100_40GB_MB,
            ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"],
            id="A100 40GB",
        ),
        pytest.param(
            H100_80GB_MB,
            ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
            id="H100 80GB",
        ),
    ],
)
def test_the_usual_profiles_are_those_of_the_guide(memory_mb: int, want: list[str]) -> None:
    assert [option.profile for option in usual_options(memory_mb)] == want


@pytest.mark.parametrize(
    ("there", "made", "command", "why"),
    [
        pytest.param([], [], change("3g.40gb", 4), "", id="an empty GPU"),
        pytest.param([], [], change("3g.40gb", 2), "from slice 2", id="no such place"),
        pytest.param([], [], change("3g.41gb", 0), "no 3g.41gb", id="no such profile"),
        pytest.param([("1g.10gb", 6)], [], change("3g.40gb", 0), "", id="room beside another"),
        pytest.param([("1g.10gb", 4)], [], change("3g.40gb", 0), "", id="room right before"),
        pytest.param([("1g.10gb", 3)], [], change("3g.40gb", 4), "", id="room right behind"),
        pytest.param(
            [("1g.10gb", 6)], [], change("3g.40gb", 4), "1g.10gb at slice 6", id="no room"
        ),
        pytest.param([("1g.10gb", 6)], [6], change("3g.40gb", 4, 6), "", id="its own makes room"),
        pytest.param(
            [("1g.10gb", 6)], [], change("3g.40gb", 4, 6), "not made by", id="another's stays"
        ),
        pytest.param([], [], change("3g.40gb", 4, 6), "", id="what is gone needs no removal"),
        pytest.param(
            [("4g.40gb", 0)], [], change("4g.40gb", 0), "4g.40gb at slice 0", id="made by another"
        ),
    ],
)
def test_mig_change_needs_room_and_removes_own(
    there: list[tuple[str, int]], made: list[int], command: ChangeMig, why: str
) -> None:
    layout = MigLayout(options=OPTIONS, instances=tuple(instance(*each) for each in there))
    record = MigRecord(
        device_uuid="GPU-0",
        made=tuple(MadeInstance(profile, at) for profile, at in there if at in made),
    )

    said = why_not(command, layout, record, lambda _: "")

    assert why in said
    assert bool(said) == bool(why)


@pytest.mark.parametrize(
    ("profile", "why"), [("1g.10gb", ""), ("1g.10gb+me", "there may be 1 1g.10gb+me at most")]
)
def test_profile_limit_is_kept(profile: str, why: str) -> None:
    """As of the instances with media engines: the slices alone would do for seven."""
    (some,) = (option for option in OPTIONS if option.profile == "1g.10gb")
    media = msgspec.structs.replace(some, profile="1g.10gb+me", limit=1)
    there = tuple(
        MigInstance(profile=each, start=start, size=1)
        for start, each in enumerate((profile, *["2g.20gb"] * 2))
    )
    layout = MigLayout(options=(media,), instances=there)

    said = why_not(change(media.profile, 6), layout, MigRecord(device_uuid="GPU-0"), lambda _: "")

    assert said == why


def test_what_is_used_stays() -> None:
    layout = MigLayout(options=OPTIONS, instances=(instance("1g.10gb", 6),))
    record = MigRecord(device_uuid="GPU-0", made=(MadeInstance("1g.10gb", 6),))

    said = why_not(change("3g.40gb", 4, 6), layout, record, lambda _: "runs process 77")

    assert said == "the 1g.10gb at slice 6 runs process 77"


def test_interrupted_change_is_completed() -> None:
    layout = MigLayout(options=OPTIONS, instances=(instance("3g.40gb", 4),))
    interrupted = MigRecord(device_uuid="GPU-0", change=6, pending=7)

    assert why_not(change("3g.40gb", 4, number=7), layout, interrupted, lambda _: "") == ""
    assert why_not(change("3g.40gb", 4, number=8), layout, interrupted, lambda _: "") != ""


THREE = MigInstance(profile="3g.40gb", start=4, size=4)
ONE = MigInstance(profile="1g.10gb", start=2, size=1)


def test_instances_are_in_slice_order() -> None:
    one = with_another((), OPTIONS, "3g.40gb", 4)
    two = with_another(one, OPTIONS, "1g.10gb", 2)

    assert (one, two) == ((THREE,), (ONE, THREE))
    assert with_another(two, OPTIONS, "3g.40gb", 4) == two


@pytest.mark.parametrize(
    ("there", "profile", "start", "code"),
    [
        pytest.param((), "3g.41gb", 0, ErrorCode.NOT_FOUND, id="no such profile"),
        pytest.param((), "3g.40gb", 2, ErrorCode.NOT_FOUND, id="no such place"),
        pytest.param(None, "3g.40gb", 4, ErrorCode.NOT_FOUND, id="not in MIG mode"),
        pytest.param((THREE,), "2g.20gb", 4, ErrorCode.CONFLICT, id="no room"),
    ],
)
def test_what_a_driver_would_not_make_is_refused(
    there: tuple[MigInstance, ...] | None, profile: str, start: int, code: ErrorCode
) -> None:
    with pytest.raises(RefusedError) as refused:
        with_another(there, OPTIONS, profile, start)

    assert refused.value.code is code


def test_layout_adds_what_the_agent_knows() -> None:
    layout = MigLayout(options=OPTIONS, instances=(ONE, THREE))
    record = MigRecord(
        device_uuid="GPU-0", change=3, refusal="no", made=(MadeInstance("3g.40gb", 4),)
    )

    shown = record.merge_into(layout)

    assert (shown.options, shown.change, shown.refusal) == (OPTIONS, 3, "no")
    assert [each.made_by_agent for each in shown.instances] == [False, True]
    assert MigRecord(device_uuid="GPU-0").merge_into(None) == MigLayout()


def test_remade_instance_is_not_the_agents() -> None:
    record = MigRecord(device_uuid="GPU-0", made=(MadeInstance("1g.10gb", 6),))
    again = MigLayout(options=OPTIONS, instances=(instance("1g.10gb", 6),))

    assert record.present(again) == record
    assert record.present(MigLayout(options=OPTIONS)).made == ()


@pytest.mark.parametrize("values", [{"number": 0}, {"start": -1}, {"profile": "all of it"}])
def test_senseless_command_is_refused(values: dict[str, Any]) -> None:
    command = msgspec.to_builtins(change("3g.40gb", 4)) | values

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(command, ChangeMig)
