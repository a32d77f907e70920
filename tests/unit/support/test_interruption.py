import signal
import subprocess
import sys

import pytest

from tests.support.interruption import IGNORED_IN_BACKGROUND
from tests.support.paths import ROOT

IGNORES = "import signal as s; print(*(s.getsignal(n) is s.SIG_IGN for n in (s.SIGINT, s.SIGQUIT)))"
STARTS_A_CHILD = f"""
import subprocess, sys
{{first}}
subprocess.run([sys.executable, "-c", {IGNORES!r}], check=True)
"""


@pytest.mark.parametrize(
    ("first", "want"),
    [
        pytest.param("", "True True", id="a child inherits what is ignored"),
        pytest.param(
            "import tests.support.interruption as i; i.let_children_be_interrupted()",
            "False False",
            id="and with this does not",
        ),
    ],
)
def test_ctrl_c_ends_children_of_background_job(first: str, want: str) -> None:
    program = STARTS_A_CHILD.format(first=first)

    ended = subprocess.run(
        ["sh", "-c", 'trap "" INT QUIT; exec "$0" -c "$1"', sys.executable, program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert ended.stdout.strip() == want


def test_run_ignores_no_inherited_signal() -> None:
    assert signal.SIG_IGN not in {signal.getsignal(number) for number in IGNORED_IN_BACKGROUND}
