"""Which changes are announced."""

import pytest

from schemas.telemetry.readings import DeviceFacts, HealthKind, HealthState
from services.telemetry.domain.health import Change, NodeHealth, changes_between, with_health

WELL = NodeHealth()
HUNG = NodeHealth(hung="no answer")
FAILED = NodeHealth(failed="no driver")
BOTH = NodeHealth(hung="no answer", failed="no driver")
LOST = NodeHealth(lost={"GPU-a": "fell off"})


def test_working_source_is_readable() -> None:
    assert WELL.is_readable
    assert LOST.is_readable
    assert not any(each.is_readable for each in (HUNG, FAILED, BOTH))


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(WELL, WELL, [], id="nothing happens"),
        pytest.param(WELL, HUNG, [Change(HealthKind.PROBE_HUNG, None, "no answer")], id="hangs"),
        pytest.param(HUNG, HUNG, [], id="still hangs"),
        pytest.param(HUNG, WELL, [Change(HealthKind.PROBE_RECOVERED)], id="answers again"),
        pytest.param(
            HUNG, BOTH, [Change(HealthKind.SOURCE_FAILED, None, "no driver")], id="then fails"
        ),
        pytest.param(
            BOTH,
            WELL,
            [Change(HealthKind.SOURCE_RECOVERED), Change(HealthKind.PROBE_RECOVERED)],
            id="everything is well again",
        ),
        pytest.param(WELL, LOST, [Change(HealthKind.GPU_LOST, "GPU-a", "fell off")], id="lost"),
        pytest.param(LOST, WELL, [Change(HealthKind.GPU_RECOVERED, "GPU-a")], id="found"),
        pytest.param(
            LOST,
            NodeHealth(lost={"GPU-a": "fell off", "GPU-b": "too"}),
            [Change(HealthKind.GPU_LOST, "GPU-b", "too")],
            id="a second one is lost",
        ),
    ],
)
def test_a_change_is_told_once(before: NodeHealth, after: NodeHealth, want: list[Change]) -> None:
    assert changes_between(before, after) == want


@pytest.mark.parametrize(
    ("health", "want"),
    [
        (WELL, (HealthState.OK, None)),
        (LOST, (HealthState.LOST, "fell off")),
        (HUNG, (HealthState.HUNG, "no answer")),
        (FAILED, (HealthState.LOST, "no driver")),
    ],
)
def test_device_is_ok_only_with_its_source(
    health: NodeHealth, want: tuple[HealthState, str | None]
) -> None:
    facts = with_health(DeviceFacts(uuid="GPU-a", index=0, name="H100"), health)

    assert (facts.health, facts.health_detail) == want


def test_a_lost_device_leaves_its_neighbour_ok() -> None:
    facts = with_health(DeviceFacts(uuid="GPU-b", index=1, name="H100"), LOST)

    assert facts.health is HealthState.OK


def test_one_hung_gpu_is_told_and_ends_by_itself() -> None:
    well, one = NodeHealth(), NodeHealth(stuck={"GPU-a": "a call hangs"})

    assert changes_between(well, one) == [
        Change(HealthKind.PROBE_HUNG, "GPU-a", "a call hangs"),
    ]
    assert changes_between(one, one) == []
    assert changes_between(one, well) == [Change(HealthKind.PROBE_RECOVERED, "GPU-a")]


@pytest.mark.parametrize(
    ("health", "want"),
    [
        (NodeHealth(stuck={"GPU-a": "why"}), HealthState.HUNG),
        (NodeHealth(failing={"GPU-a": "why"}), HealthState.FAILING),
        (NodeHealth(lost={"GPU-a": "why"}, failing={"GPU-a": "else"}), HealthState.LOST),
        (NodeHealth(stuck={"GPU-b": "why"}, failing={"GPU-b": "why"}), HealthState.OK),
    ],
)
def test_only_the_device_concerned_is_unwell(health: NodeHealth, want: HealthState) -> None:
    facts = with_health(DeviceFacts(uuid="GPU-a", index=0, name="GPU"), health)

    assert facts.health is want
    assert facts.health_detail == (None if want is HealthState.OK else "why")
