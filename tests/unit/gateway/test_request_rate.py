"""How often a token may ask."""

from services.gateway.domain.request_rate import RequestRates


def test_caller_may_burst_two_seconds_then_rate() -> None:
    rates = RequestRates()

    taken = [rates.take("a", 2.0, 10.0) for _ in range(5)]

    assert taken == [0.0, 0.0, 0.0, 0.0, 0.5]
    assert rates.take("b", 2.0, 10.0) == 0.0
    assert rates.take("a", 2.0, 10.25) == 0.25
    assert rates.take("a", 2.0, 10.5) == 0.0
    assert rates.take("a", 2.0, 10.5) == 0.5


def test_a_rate_below_one_lets_one_request_pass() -> None:
    rates = RequestRates()

    assert [rates.take("a", 0.1, now) for now in (0.0, 5.0, 10.0)] == [0.0, 5.0, 0.0]


def test_silence_saves_at_most_two_seconds() -> None:
    rates = RequestRates()
    rates.take("a", 1.0, 0.0)

    assert [rates.take("a", 1.0, 1000.0) for _ in range(3)] == [0.0, 0.0, 1.0]
