"""Times and sizes with a unit, where seconds and MB are meant."""

import click
import pytest

from services.cli.option_types import MEBIBYTES, SecondsRange


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400)],
)
def test_a_time_is_seconds_or_has_a_unit(typed: str, seconds: float) -> None:
    assert SecondsRange(1, 86_400).convert(typed, None, None) == seconds


@pytest.mark.parametrize("typed", ["2x", "h", "", "2h30", "-1h", "inf", "nan", "48h", "0.1s"])
def test_invalid_time_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        SecondsRange(1, 86_400).convert(typed, None, None)


@pytest.mark.parametrize(
    ("typed", "mebibytes"),
    [
        ("40960", 40_960),
        ("40G", 40_960),
        ("40GB", 40_960),
        ("40GiB", 40_960),
        ("40Gi", 40_960),
        ("0.5g", 512),
        ("512M", 512),
        ("1T", 1_048_576),
    ],
)
def test_a_size_is_mb_or_has_a_unit(typed: str, mebibytes: int) -> None:
    assert MEBIBYTES.convert(typed, None, None) == mebibytes


@pytest.mark.parametrize("typed", ["40X", "G", "4.5", "-1", "99999999999999T"])
def test_invalid_size_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        MEBIBYTES.convert(typed, None, None)


def test_wrong_time_names_expectation() -> None:
    with pytest.raises(click.BadParameter, match="such as 30m or 2h, got '2x'"):
        SecondsRange(1).convert("2x", None, None)
