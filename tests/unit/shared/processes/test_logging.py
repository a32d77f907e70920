"""Logs beside a terminal are JSON lines, whoever writes them."""

import json
import subprocess
import sys
import textwrap

WRITER = """
import logging
from shared.logging import configure_logging, log

configure_logging("scheduler")
library = logging.getLogger("asyncpg.pool")
try:
    raise ConnectionError("refused")
except ConnectionError:
    library.warning("failed %s", "twice", exc_info=True)
library.error("no number: %d", "x")
library.info("not said")
log.info("ready")
"""


def test_library_logs_have_the_common_form() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WRITER)], capture_output=True, text=True, check=True
    )

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    told = [(line["event"], line["level"], line.get("logger")) for line in lines]
    assert told == [
        ("failed twice", "warning", "asyncpg.pool"),
        ("no number: %d", "error", "asyncpg.pool"),
        ("ready", "info", None),
    ]
    assert {line["service"] for line in lines} == {"scheduler"}
    assert lines[0]["exception"].endswith("ConnectionError: refused")
