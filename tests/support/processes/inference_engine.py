"""Engines of the table as processes, for tests."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from services.executor.engines.engine_table import build_command, missing


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A started engine that listens."""

    process: subprocess.Popen[str]
    base_url: str
    model: str


def require_engine(engine: str) -> None:
    """Skip the test, saying what to install, if this host cannot run the engine."""
    reason = missing(engine)
    if reason is not None:
        pytest.skip(reason)


@contextmanager
def running_engine(
    engine: str, parameters: Mapping[str, Any], *, model: str
) -> Iterator[EngineProcess]:
    """Start it on a free port, wait until it listens, kill it at the end."""
    require_engine(engine)
    command = build_command(engine, model, parameters, port=0)
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield EngineProcess(process, _address(process, errors), model)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
            if process.stdout is not None:
                process.stdout.close()


def _address(process: subprocess.Popen[str], errors: Any) -> str:  # any text file
    line = process.stdout.readline() if process.stdout is not None else ""
    match = re.fullmatch(r"listening on (http://\S+)\n", line)
    if match is None:
        errors.seek(0)
        raise AssertionError(f"the engine printed {line!r} and said: {errors.read()}")
    return match[1]
