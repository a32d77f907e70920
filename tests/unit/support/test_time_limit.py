"""A run of tests that takes too long."""

import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

RUN = """
import sys, pytest
now = [0]
from tests.support.time_limit import TimeLimit
arguments = ["-q", "-ra", "-c", "/dev/null", "-p", "no:cacheprovider", "--rootdir", "."]
sys.exit(pytest.main(arguments, plugins=[TimeLimit(5, lambda: now[0])]))
"""
FILE = """
import pathlib, pytest, __main__

@pytest.fixture(scope="module")
def server():
    pathlib.Path("started").touch()

def test_that_began_ends(): __main__.now[0] = 5
def test_behind_it(server): pass
"""


def test_what_begins_too_late_is_skipped_by_name(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(FILE)

    ended = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "1 passed, 1 skipped" in ended.stdout, ended
    assert "NOT RUN, 5 s were over: test_a.py" in ended.stdout
    assert not (tmp_path / "started").exists()
