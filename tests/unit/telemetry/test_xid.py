"""What is done about an XID, and what counts as one that was not told yet."""

import os
from pathlib import Path

import pytest

from schemas.telemetry.readings import HealthAction
from services.telemetry.domain.xid import (
    KernelSxid,
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
def test_every_xid_has_action_and_source(xid: int, action: HealthAction) -> None:
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
def test_drivers_own_advice_is_preferred(text: str, action: str) -> None:
    assert advice(154, text).action == action


@pytest.mark.parametrize(
    ("xid", "text", "action"),
    [
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6)", HealthAction.RESET),
        (145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 (0x0)", HealthAction.IGNORE),
        (147, "TREX Non-fatal XC1 i0 Link 17", HealthAction.IGNORE),
        (149, "", HealthAction.DRAIN),
    ],
)
def test_an_nvlink_error_counts_by_its_severity(xid: int, text: str, action: HealthAction) -> None:
    assert advice(xid, text).action is action


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
        pytest.param(
            "NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:2330)\\x0aNVRM: installed in"
            " this system has\\x0aNVRM: fallen off the bus and is not responding to commands.",
            KernelXid((0, 0xB3, 0), 79, "GPU has fallen off the bus", XidOrigin.KERNEL_TEXT),
            id="off the bus, over several lines",
        ),
        pytest.param(
            "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
            KernelXid((0, 0xB3, 0), 79, "GPU has fallen off the bus", XidOrigin.KERNEL_TEXT),
            id="off the bus, without a number",
        ),
        pytest.param(
            "nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            KernelSxid((0, 0x84, 0), 20034, "Fatal, Link 30 LTSSM Fault Up"),
            id="a switch, fatal",
        ),
        pytest.param(
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS",
            None,
            id="a switch, not fatal",
        ),
        pytest.param(
            "nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 20034, Severity 1 Engine instance 30",
            None,
            id="a switch, more about an error",
        ),
        pytest.param("6,1,1,-;NVRM: loading NVIDIA UNIX x86_64", None, id="another message"),
        pytest.param("6,1,1,-;NVRM: Xid (PCI:zz): many", None, id="garbage"),
    ],
)
def test_the_kernel_log_is_read_record_by_record(
    record: str, want: KernelXid | KernelSxid | None
) -> None:
    assert parse_kernel_record(record) == want


def test_every_recorded_kernel_error_is_read() -> None:
    folder = os.environ.get("GPUSTEWARD_TEST_DATA")
    if folder is None:
        pytest.skip("needs recorded cases: set GPUSTEWARD_TEST_DATA to their folder")
    lines = (Path(folder) / "cases" / "a07-kernel.log").read_text().splitlines()

    errors = [parse_kernel_record(line) for line in lines]

    actions = [
        e.fault("GPU-a").action if isinstance(e, KernelSxid) else e and advice(e.xid, e.text).action
        for e in errors
    ]
    assert actions == [
        *(HealthAction.IGNORE, HealthAction.RESET, HealthAction.DRAIN, HealthAction.RESET)
    ]


def test_bus_address_is_found_among_devices() -> None:
    bus_ids = {"GPU-a": "00000000:17:00.0", "GPU-b": "00000000:65:00.0"}

    assert KernelXid((0, 0x65, 0), 79, "").device_among(bus_ids) == "GPU-b"
    assert KernelXid((1, 0x65, 0), 79, "").device_among(bus_ids) is None


def test_error_of_two_origins_is_told_once() -> None:
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


def test_endless_xid_is_told_twenty_times_a_window() -> None:
    log = XidDeduplicator()

    assert sum(log.is_new("GPU-a", 13, XidOrigin.KERNEL_LOG, 0.001 * n) for n in range(5000)) == 20


def test_a_fault_says_what_the_kernel_said() -> None:
    fault = xid_fault("GPU-a", 94, "Contained: SM (0x1)")

    assert (fault.device_uuid, fault.xid) == ("GPU-a", 94)
    assert "contained" in fault.detail
    assert "Contained: SM (0x1)" in fault.detail
