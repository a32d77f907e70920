"""Which power limits and locked clocks a device takes."""

from typing import Any

import pytest

from schemas.errors import ErrorCode
from schemas.telemetry.readings import DeviceFacts
from services.telemetry.domain.power_range import check_clock, limit_for
from shared.errors import RefusedError

FIELDS = {
    "power_limit_min_w": 200.0,
    "power_limit_default_w": 600.0,
    "power_limit_max_w": 700.0,
}


def make_facts(**overrides: float | None) -> DeviceFacts:
    limits: dict[str, Any] = {**FIELDS, **overrides}
    return DeviceFacts(uuid="GPU-0", index=0, name="H200", **limits)


@pytest.mark.parametrize(("watts", "want"), [(200.0, 200.0), (700.0, 700.0), (None, 600.0)])
def test_both_ends_and_the_default_are_allowed(watts: float | None, want: float) -> None:
    assert limit_for(make_facts(), "GPU-0", watts) == want


@pytest.mark.parametrize("unknown", FIELDS)
def test_without_a_known_range_no_default_can_be_set(unknown: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        limit_for(make_facts(**{unknown: None}), "GPU-0", None)

    assert refusal.value.code is ErrorCode.UNSUPPORTED


@pytest.mark.parametrize("watts", [199.9, 700.1])
def test_limit_out_of_range_is_refused_with_it(watts: float) -> None:
    with pytest.raises(RefusedError) as refusal:
        limit_for(make_facts(), "GPU-0", watts)

    assert refusal.value.code is ErrorCode.BAD_REQUEST
    assert refusal.value.details == {"minimum_w": 200.0, "maximum_w": 700.0}


def test_a_device_that_is_not_there_is_not_found() -> None:
    with pytest.raises(RefusedError) as refusal:
        limit_for(None, "GPU-9", 300.0)

    assert refusal.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize(
    ("mhz", "supported", "code"),
    [
        (345, (1980, 345), None),
        (1500, (1980, 345), None),
        (1980, (1980, 345), None),
        (344, (1980, 345), ErrorCode.BAD_REQUEST),
        (1981, (1980, 345), ErrorCode.BAD_REQUEST),
        (1200, (), ErrorCode.UNSUPPORTED),
    ],
)
def test_clock_must_be_supported(
    mhz: int, supported: tuple[int, ...], code: ErrorCode | None
) -> None:
    found = None
    try:
        check_clock(make_facts(), "GPU-0", mhz, supported)
    except RefusedError as error:
        found = error.code

    assert found is code
