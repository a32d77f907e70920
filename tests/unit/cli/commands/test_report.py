"""Lines below the tables of reports."""

import pytest
from msgspec.structs import replace

from schemas.results.reports import WaitsLine
from services.cli.commands.report import forecast_lines

LINE = WaitsLine(
    namespace="vision",
    requests=3,
    granted=3,
    waiting=0,
    ended=0,
    p50_seconds=1.0,
    p95_seconds=2.0,
    longest_seconds=2.0,
)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param(LINE, [], id="nothing was expected"),
        pytest.param(
            replace(LINE, forecast=2, start_off_p50_seconds=30.0, start_off_p90_seconds=54.26),
            ["vision: expected starts were off by 30.0 s (p50), 54.3 s (p90), of 2"],
            id="starts alone",
        ),
    ],
)
def test_only_what_was_expected_is_said_to_be_off(line: WaitsLine, want: list[str]) -> None:
    assert forecast_lines(line) == want
