"""Which faults take devices out of service, and which silence is a loss."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.scheduler.devices import LOSSES, CordonCause
from schemas.telemetry.readings import (
    DeviceFacts,
    FaultSeen,
    HealthAction,
    HealthChanged,
    HealthKind,
    HostFacts,
    InventoryReported,
    Source,
)
from services.scheduler.domain.faults import (
    Loss,
    NodeSilence,
    cordon_state,
    fault_of_event,
    faults_of_inventory,
    is_accounted_for,
    lost_nodes,
    recovery,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
XID = HealthChanged(
    message_id=UUID(int=1),
    occurred_at=NOW,
    revision=1,
    node_id="alpha",
    boot_id=UUID(int=2),
    change=HealthKind.XID,
    device_uuid="GPU-0",
    xid=79,
    detail="fell off the bus",
    action=HealthAction.DRAIN,
)


@pytest.mark.parametrize(
    ("event", "takes_out"),
    [
        pytest.param(XID, True, id="an XID to drain for"),
        pytest.param(replace(XID, action=HealthAction.RESET), True, id="an XID to reset for"),
        pytest.param(
            replace(XID, action=HealthAction.RESTART_APPLICATION), False, id="an application's XID"
        ),
        pytest.param(replace(XID, action=None), False, id="an XID without advice"),
        pytest.param(
            replace(XID, change=HealthKind.GPU_LOST, action=None, xid=None), True, id="a lost GPU"
        ),
        pytest.param(
            replace(XID, change=HealthKind.GPU_LOST, action=None, device_uuid=None),
            False,
            id="a loss of nothing in particular",
        ),
        pytest.param(
            replace(XID, change=HealthKind.PROBE_HUNG, action=None), False, id="a hung probe"
        ),
    ],
)
def test_only_fatal_faults_end_service(event: HealthChanged, *, takes_out: bool) -> None:
    assert (fault_of_event(event) is not None) == takes_out


def test_inventory_repeats_a_fault_with_its_id() -> None:
    seen = FaultSeen(
        event_id=XID.message_id,
        occurred_at=NOW,
        change=HealthKind.XID,
        action=HealthAction.DRAIN,
        xid=79,
        detail=XID.detail,
    )
    harmless = replace(seen, event_id=UUID(int=9), action=HealthAction.IGNORE)
    inventory = InventoryReported(
        message_id=UUID(int=3),
        occurred_at=NOW,
        revision=2,
        node_id="alpha",
        boot_id=XID.boot_id,
        source=Source.NVML,
        interval_seconds=1.0,
        host=HostFacts(hostname="alpha"),
        devices=(
            DeviceFacts(uuid="GPU-0", index=0, name="H100", recent_faults=(seen, harmless)),
            DeviceFacts(uuid="GPU-1", index=1, name="H100"),
        ),
    )

    (fault,) = faults_of_inventory(inventory)

    assert fault == fault_of_event(XID)
    assert fault.reason == "XID 79: fell off the bus"


def silent(node_id: str, seconds: float, **more: bool) -> NodeSilence:
    return NodeSilence(node_id=node_id, seconds=seconds, **more)


@pytest.mark.parametrize(
    ("silences", "lost"),
    [
        pytest.param([silent("a", 1), silent("b", 121)], ["b"], id="one of two"),
        pytest.param([silent("a", 1), silent("b", 119)], [], id="not long enough"),
        pytest.param([silent("a", 130), silent("b", 121)], [], id="nobody is heard: an outage"),
        pytest.param([silent("a", 121)], ["a"], id="the only one, while the bus answers"),
        pytest.param([silent("a", 1), silent("b", 121, was_stopped=True)], ["b"], id="stopped"),
        pytest.param([silent("a", 1), silent("b", 9, was_stopped=True)], [], id="restarted"),
        pytest.param(
            [silent("a", 500, was_stopped=True), silent("b", 121)],
            ["a", "b"],
            id="one that stopped says nothing about the way to the other",
        ),
        pytest.param(
            [silent("a", 500, was_stopped=True), silent("b", 20), silent("c", 20)],
            ["a"],
            id="one that stopped needs no way",
        ),
        pytest.param([], [], id="no node at all"),
    ],
)
def test_silent_node_is_lost_unless_all_are(silences: list[NodeSilence], lost: list[str]) -> None:
    assert list(lost_nodes(silences, limit_seconds=120, outage_seconds=15)) == lost


def a_loss(number: int | None = 1, *, well: bool = True, since: float | None = None) -> Loss:
    """Well since so many seconds before NOW."""
    quiet_since = None if since is None else NOW - timedelta(seconds=since)
    return Loss(node_id="alpha", device_no=number, is_well=well, quiet_since=quiet_since)


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        pytest.param(a_loss(well=False), "", id="still lost"),
        pytest.param(a_loss(), "new_losses", id="seen again"),
        pytest.param(a_loss(since=59), "", id="not quiet for long enough"),
        pytest.param(a_loss(well=False, since=59), "broken", id="lost again meanwhile"),
        pytest.param(a_loss(since=60), "over", id="quiet for long enough"),
        pytest.param(a_loss(None, since=60), "over", id="a whole node"),
    ],
)
def test_loss_ends_after_a_quiet_time(loss: Loss, found: str) -> None:
    result = recovery([loss], now=NOW, quiet_seconds=60)

    assert {name for name in ("new_losses", "broken", "over") if getattr(result, name)} == (
        {found} if found else set()
    )


def test_loss_without_quiet_time_ends_when_seen() -> None:
    assert recovery([a_loss()], now=NOW, quiet_seconds=0).over == (a_loss(),)


def test_restore_ends_when_first_accounted_for() -> None:
    restored = replace(a_loss(), needs_quiet=False)

    result = recovery([restored], now=NOW, quiet_seconds=60)

    assert (result.new_losses, result.over) == ((), (restored,))
    assert recovery([replace(restored, is_well=False)], now=NOW, quiet_seconds=60).over == ()


@pytest.mark.parametrize(
    ("running", "has_executor", "accounted"),
    [
        pytest.param([], True, True, id="nothing runs"),
        pytest.param([UUID(int=1)], True, True, id="what the ledger holds"),
        pytest.param([UUID(int=1), UUID(int=2)], True, False, id="what no ledger knows"),
        pytest.param(None, True, False, id="no answer"),
        pytest.param(None, False, True, id="a node without an executor"),
    ],
)
def test_node_is_accounted_for_by_its_executor(
    running: list[UUID] | None, *, has_executor: bool, accounted: bool
) -> None:
    assert is_accounted_for(running, {UUID(int=1)}, has_executor=has_executor) is accounted


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        pytest.param({"change": HealthKind.GPU_LOST, "action": None, "xid": None}, "gpu_lost"),
        pytest.param({}, "fault", id="an XID to drain for"),
        pytest.param({"change": HealthKind.GPU_LOST}, "fault", id="lost, and to drain for"),
    ],
)
def test_only_the_cordon_of_a_mere_loss_lifts_itself(changes: dict[str, Any], cause: str) -> None:
    fault = fault_of_event(replace(XID, **changes))

    assert fault is not None
    assert fault.cause == cause
    assert (fault.cause in LOSSES) == (cause == "gpu_lost")


@pytest.mark.parametrize(
    ("cause", "quiet_since", "until", "lifts"),
    [
        (CordonCause.OPERATOR, None, "it is uncordoned", False),
        (CordonCause.FAULT, NOW, "it is uncordoned", False),
        (CordonCause.GPU_LOST, None, "it has been well for 60 s", False),
        (CordonCause.NODE_LOST, NOW, "00:01:00 UTC, if it stays well", True),
        (
            CordonCause.RESTORED,
            None,
            "its node has reported what runs there, and leases from before the restore are over",
            False,
        ),
    ],
)
def test_a_cordon_says_what_lifts_it(
    cause: CordonCause, quiet_since: datetime | None, until: str, *, lifts: bool
) -> None:
    state = cordon_state(
        cause, reason="", set_by="", since_at=NOW, quiet_since=quiet_since, quiet_seconds=60
    )

    assert state.until == until
    assert state.lifts_at == (NOW + timedelta(seconds=60) if lifts else None)
