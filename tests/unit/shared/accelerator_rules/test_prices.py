"""What an hour of a GPU costs."""

import pytest

from shared.gpu.prices import parse_prices, price_of


def test_longest_model_name_has_the_price() -> None:
    prices = parse_prices("H200 = 3.5, nvidia h200 nvl=3,A100=1.8,")

    assert price_of("NVIDIA H200", prices) == 3.5
    assert price_of("NVIDIA H200 NVL", prices) == 3
    assert price_of("NVIDIA L4", prices) is None
    assert parse_prices("") == {}


@pytest.mark.parametrize("text", ["H200", "=3", "H200=x", "H200=-1", "H200=nan", "H200=inf"])
def test_a_price_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|convert"):
        parse_prices(text)
