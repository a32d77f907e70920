"""Tables as plain text, and ages and numbers as people read them."""

from datetime import timedelta

import pytest

from services.cli.output import Table, age, number, plain_text, settings_text, span
from services.cli.tables import gpu_table
from tests.cli_views import NOW, make_gpu


def test_plain_tables_are_aligned_and_carry_no_escape_codes() -> None:
    table = Table(["name", "n"], [["a", "10"], ["long", "7"]], numeric=frozenset({"n"}))

    assert plain_text(table) == "name   n\na     10\nlong   7"


def test_unknown_readings_are_dashes_never_zero() -> None:
    gpu = make_gpu(utilization_percent=None, memory_used_mb=None, power_draw_w=None)

    row = dict(zip(gpu_table([gpu]).headings, gpu_table([gpu]).rows[0], strict=True))

    assert (row["util %"], row["memory MB"], row["power W"]) == ("-", "-/80000", "-/700")
    assert row["source"] == "simulated"


def test_stale_readings_are_called_stale() -> None:
    row = gpu_table([make_gpu(fresh=False, simulated=False)]).rows[0]

    assert row[-1] == "stale"


@pytest.mark.parametrize(
    ("seconds", "want"), [(5, "5s"), (125, "2m"), (7200, "2h"), (200_000, "2d"), (-3, "0s")]
)
def test_ages_use_the_largest_unit_that_fits(seconds: int, want: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == want


def test_numbers_and_spans() -> None:
    assert (number(None), number(1.26, 1)) == ("-", "1.3")
    assert span(1, None, 3) == "1/-/3"
    assert settings_text({"a": 1, "b": "x"}, ["b"]) == "b=x"
