"""`gpusteward chart`."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from schemas.errors import ErrorCode
from services.cli.commands.platform.chart import chart
from services.cli.failures import CommandFailed
from tests.support.kubernetes.chart import CHART


def run(directory: Path) -> Result:
    return CliRunner().invoke(chart, [str(directory)], catch_exceptions=False)


def test_chart_is_written_as_it_is(tmp_path: Path) -> None:
    told = run(tmp_path / "chart").output

    for path in CHART.rglob("*.*"):
        assert (tmp_path / "chart" / path.relative_to(CHART)).read_bytes() == path.read_bytes()
    assert f"helm upgrade --install gpusteward {tmp_path / 'chart'} " in told


def test_directory_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")

    with pytest.raises(CommandFailed, match="not there yet") as failed:
        run(tmp_path)

    assert failed.value.code is ErrorCode.CONFLICT
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
