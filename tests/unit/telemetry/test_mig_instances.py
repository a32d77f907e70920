"""What the agent changes of a divided GPU, and what it leaves alone."""

from typing import Any

import msgspec
import pytest

from schemas.mig import ChangeMig, MigInstance, MigLayout
from services.telemetry.domain.mig_instances import MadeInstance, MigRecord, why_not
from services.telemetry.domain.mig_profiles import usual_options
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
def test_a_change_needs_room_and_removes_what_the_agent_made(
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


def test_what_is_used_stays() -> None:
    layout = MigLayout(options=OPTIONS, instances=(instance("1g.10gb", 6),))
    record = MigRecord(device_uuid="GPU-0", made=(MadeInstance("1g.10gb", 6),))

    said = why_not(change("3g.40gb", 4, 6), layout, record, lambda _: "runs process 77")

    assert said == "the 1g.10gb at slice 6 runs process 77"


def test_a_change_that_was_interrupted_finds_what_it_made_already() -> None:
    layout = MigLayout(options=OPTIONS, instances=(instance("3g.40gb", 4),))
    interrupted = MigRecord(device_uuid="GPU-0", change=6, pending=7)

    assert why_not(change("3g.40gb", 4, number=7), layout, interrupted, lambda _: "") == ""
    assert why_not(change("3g.40gb", 4, number=8), layout, interrupted, lambda _: "") != ""


def test_what_is_gone_was_not_made_by_the_agent_when_it_comes_again() -> None:
    record = MigRecord(device_uuid="GPU-0", made=(MadeInstance("1g.10gb", 6),))
    again = MigLayout(options=OPTIONS, instances=(instance("1g.10gb", 6),))

    assert record.present(again) == record
    assert record.present(MigLayout(options=OPTIONS)).made == ()


@pytest.mark.parametrize("values", [{"number": 0}, {"start": -1}, {"profile": "all of it"}])
def test_a_command_that_says_nothing_sensible_is_no_command(values: dict[str, Any]) -> None:
    command = msgspec.to_builtins(change("3g.40gb", 4)) | values

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(command, ChangeMig)
