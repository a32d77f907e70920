"""Files of tests at once, in forks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

RUN = """
import sys, pytest
from tests.support.forked_workers import ForkedWorkers
arguments = ["-q", "-c", "/dev/null", "-p", "no:cacheprovider", "--rootdir", ".", *sys.argv[1:]]
sys.exit(pytest.main(arguments, plugins=[ForkedWorkers(2)]))
"""
FIXTURES = """
import os, pathlib, pytest

@pytest.fixture(scope="session", autouse=True)
def process():
    yield os.getpid()
    pathlib.Path(f"torn-down-{os.getpid()}").touch()
"""


def run(directory: Path, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-c", RUN, *(f"{name}.py" for name in files if name != "conftest")],
        cwd=directory,
        env={
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(directory),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_file_is_reported_and_torn_down(tmp_path: Path) -> None:
    waits = "import time\ndef test_{0}_waits(): time.sleep(0.3)\n"
    ended = run(
        tmp_path,
        conftest=FIXTURES,
        test_a=waits.format("a") + "def test_fails(): print('said'); assert 1 == 2\n",
        test_b=waits.format("b") + "def test_is_skipped():\n import pytest; pytest.skip('why')\n",
        test_c="def test_passes(tmp_path): pass\n",
    )

    assert "1 failed, 3 passed, 1 skipped" in ended.stdout, ended
    assert "assert 1 == 2" in ended.stdout
    assert "said" in ended.stdout
    assert ended.returncode == 1
    assert len(list(tmp_path.glob("torn-down-*"))) == 2


@pytest.mark.long
def test_dead_worker_names_its_test(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        test_a="import os\ndef test_passes(): pass\ndef test_dies(): os._exit(3)\n",
        test_b="def test_passes(): pass\n",
    )

    assert ended.returncode == 2
    assert "ended with 3 in test_a.py::test_dies" in ended.stdout
