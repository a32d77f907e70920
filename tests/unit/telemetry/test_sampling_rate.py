"""How fast an agent samples while somebody wants it faster."""

import pytest

from schemas.errors import ErrorCode
from services.telemetry.domain.sampling_rate import MAX_RATE_REQUESTS, SamplingRate
from shared.errors import RefusedError
from shared.ids import new_id


def test_fastest_rate_counts_until_it_ends() -> None:
    rate = SamplingRate(1.0)
    rate.request(new_id(), 0.5, until=100.0, now=0.0)
    rate.request(new_id(), 0.1, until=10.0, now=0.0)

    assert rate.interval_after(1.0) == 0.1
    assert rate.interval_after(10.0) == 0.5
    assert rate.interval_after(100.0) == 1.0


def test_last_burst_sample_tells_the_later_next() -> None:
    rate = SamplingRate(1.0)
    rate.request(new_id(), 0.1, until=10.0, now=0.0)

    assert rate.interval_after(9.85) == 0.1
    assert rate.interval_after(9.95) == 1.0


def test_nobody_slows_an_agent_down() -> None:
    rate = SamplingRate(1.0)
    rate.request(new_id(), 5.0, until=100.0, now=0.0)

    assert rate.interval_after(0.0) == 1.0


def test_a_wish_withdrawn_or_made_anew_counts_once() -> None:
    rate, key = SamplingRate(1.0), new_id()
    rate.request(key, 0.1, until=100.0, now=0.0)
    rate.request(key, 0.5, until=100.0, now=0.0)
    assert rate.interval_after(0.0) == 0.5

    rate.withdraw(key)
    assert rate.interval_after(0.0) == 1.0


def test_wishes_are_bounded_and_those_over_make_room() -> None:
    rate = SamplingRate(1.0)
    for _ in range(MAX_RATE_REQUESTS):
        rate.request(new_id(), 0.5, until=10.0, now=0.0)

    with pytest.raises(RefusedError) as refused:
        rate.request(new_id(), 0.5, until=10.0, now=0.0)
    assert refused.value.code is ErrorCode.CONFLICT
    rate.request(new_id(), 0.5, until=20.0, now=10.0)
