"""The moments of a lease: renewal, stop, kill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lease import Lease


@given(ttl=st.floats(min_value=3, max_value=3600), wanted=st.floats(min_value=0, max_value=60))
def test_a_lease_leaves_time_to_renew_and_to_kill(ttl: float, wanted: float) -> None:
    lease = Lease(ttl_seconds=ttl, confirmed_at=100.0)

    assert 100 < lease.renew_at < lease.stop_at < 100 + ttl
    assert lease.stop_at + lease.stop_grace_seconds(wanted) < 100 + ttl
    assert lease.renew_at + lease.retry_seconds < lease.stop_at
    assert lease.request_timeout_seconds(lease.stop_at - 0.2) <= 0.2 + 1e-6


@pytest.mark.parametrize(
    ("ttl", "renew_at", "stop_at", "kill_at", "grace"),
    [
        pytest.param(30.0, 110.0, 125.0, 128.0, 2.0, id="a long lease has five seconds to stop"),
        pytest.param(15.0, 105.0, 110.0, 113.0, 2.0, id="the shortest that has them"),
        pytest.param(3.0, 101.0, 102.0, 102.6, 0.4, id="a short lease has a third"),
    ],
)
def test_the_moments_of_a_lease(
    ttl: float, renew_at: float, stop_at: float, kill_at: float, grace: float
) -> None:
    lease = Lease(ttl_seconds=ttl, confirmed_at=100.0)

    assert (lease.renew_at, lease.stop_at) == (renew_at, stop_at)
    assert lease.kill_at == pytest.approx(kill_at)
    assert lease.stop_grace_seconds(60.0) == pytest.approx(grace)
    assert lease.stop_grace_seconds(0.1) == 0.1


@pytest.mark.parametrize(
    ("ttl", "now", "request_seconds", "retry_seconds"),
    [
        pytest.param(3600.0, 100.0, 5.0, 1.0, id="at most"),
        pytest.param(6.0, 100.0, 2.0, 0.5, id="a third and a twelfth"),
        pytest.param(6.0, 103.5, 0.5, 0.5, id="never beyond the moment of stopping"),
        pytest.param(6.0, 200.0, 0.05, 0.5, id="at least"),
    ],
)
def test_how_long_a_renewal_may_take_and_wait(
    ttl: float, now: float, request_seconds: float, retry_seconds: float
) -> None:
    lease = Lease(ttl_seconds=ttl, confirmed_at=100.0)

    assert lease.request_timeout_seconds(now) == request_seconds
    assert lease.retry_seconds == retry_seconds
