"""What is done about an XID, and what counts as one that was not told yet."""

import pytest

from schemas.telemetry.readings import HealthAction
from services.telemetry.domain.xid import (
    KernelXid,
    XidDeduplicator,
    XidOrigin,
    advice,
    parse_kernel_record,
    xid_fault,
)


@pytest.mark.parametrize(
    ("xid", "action"),
    [
        (13, HealthAction.RESTART_APPLICATION),
        (31, HealthAction.RESTART_APPLICATION),
        (43, HealthAction.IGNORE),
        (45, HealthAction.IGNORE),
        (48, HealthAction.RESET),
        (63, HealthAction.IGNORE),
        (64, HealthAction.RESET),
        (74, HealthAction.RESET),
        (79, HealthAction.DRAIN),
        (92, HealthAction.IGNORE),
        (94, HealthAction.RESTART_APPLICATION),
        (95, HealthAction.RESET),
        (119, HealthAction.RESET),
        (9999, HealthAction.DRAIN),
    ],
)
def test_every_xid_has_an_action_and_says_where_it_comes_from(
    xid: int, action: HealthAction
) -> None:
    found = advice(xid)

    assert found.action is action
    assert "Xid" in found.source


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "reset"),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "drain"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "ignore"),
        ("", "ignore"),
    ],
)
def test_the_drivers_own_advice_counts_where_it_is_known(text: str, action: str) -> None:
    assert advice(154, text).action == action


@pytest.mark.parametrize(
    ("record", "want"),
    [
        pytest.param(
            "3,1234,98,-;NVRM: Xid (PCI:0000:65:00): 79, pid=12, GPU has fallen off the bus.\n"
            " SUBSYSTEM=pci\n",
            KernelXid((0, 0x65, 0), 79, "pid=12, GPU has fallen off the bus."),
            id="a record with its properties",
        ),
        pytest.param(
            "[1.2] NVRM: Xid (0000:03:00): 14, Channel 00000001",
            KernelXid((0, 3, 0), 14, "Channel 00000001"),
            id="an old driver",
        ),
        pytest.param(
            "6,1,1,-;NVRM: Xid (PCI:0001:01:00 GPU-I:05): 31, pid=7",
            KernelXid((1, 1, 0), 31, "pid=7"),
            id="a MIG instance",
        ),
        pytest.param("6,1,1,-;NVRM: loading NVIDIA UNIX x86_64", None, id="another message"),
        pytest.param("6,1,1,-;NVRM: Xid (PCI:zz): many", None, id="garbage"),
    ],
)
def test_the_kernel_log_is_read_record_by_record(record: str, want: KernelXid | None) -> None:
    assert parse_kernel_record(record) == want


def test_a_place_on_the_bus_is_found_among_the_devices() -> None:
    bus_ids = {"GPU-a": "00000000:17:00.0", "GPU-b": "00000000:65:00.0"}

    assert KernelXid((0, 0x65, 0), 79, "").device_among(bus_ids) == "GPU-b"
    assert KernelXid((1, 0x65, 0), 79, "").device_among(bus_ids) is None


def test_what_both_origins_tell_is_told_once_and_a_second_time_if_it_happened_twice() -> None:
    log = XidDeduplicator()
    heard = [
        (XidOrigin.DRIVER, 0.0),
        (XidOrigin.KERNEL_LOG, 0.5),
        (XidOrigin.KERNEL_LOG, 1.0),
        (XidOrigin.DRIVER, 1.5),
        (XidOrigin.DRIVER, 20.0),
    ]

    assert [log.is_new("GPU-a", 31, origin, at) for origin, at in heard] == [
        *(True, False, True, False, True),
    ]
    assert log.is_new("GPU-b", 31, XidOrigin.DRIVER, 1.5)


def test_an_xid_without_end_is_told_no_more_than_twenty_times_in_a_window() -> None:
    log = XidDeduplicator()

    assert sum(log.is_new("GPU-a", 13, XidOrigin.KERNEL_LOG, 0.001 * n) for n in range(5000)) == 20


def test_a_fault_says_what_the_kernel_said() -> None:
    fault = xid_fault("GPU-a", 94, "Contained: SM (0x1)")

    assert (fault.device_uuid, fault.xid) == ("GPU-a", 94)
    assert "contained" in fault.detail
    assert "Contained: SM (0x1)" in fault.detail
