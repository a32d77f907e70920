"""Asks AIConfigurator, in a process that is bounded in time and in what it writes."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from shared.benchmarks.aiconfigurator.installation import AICONFIGURATOR
from shared.errors import StewardError
from shared.processes.command import run_command

# Loading what it knows of a GPU takes five seconds; each question after that hundredths of one.
DEADLINE_SECONDS: Final = 12.0
_PASSED: Final = ("HOME", "LANG", "PATH", "TMPDIR")
_SCRIPT: Final = Path(__file__).with_name("answer.py")


class NotPredicted(StewardError):
    """AIConfigurator gave no answer; the text says why."""


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """An answer to one question; with a `problem` there are no times."""

    ttft_ms: float = 0.0
    tpot_ms: float = 0.0
    backend_version: str = ""
    problem: str = ""


async def ask_tool(
    questions: Sequence[Mapping[str, Any]], deadline_seconds: float = DEADLINE_SECONDS
) -> tuple[ToolAnswer, ...]:
    """Return an answer for each question, in their order. Raises NotPredicted."""
    program = AICONFIGURATOR.find_program()
    if program is None:
        raise NotPredicted(AICONFIGURATOR.what_is_missing() or "AIConfigurator is not installed")
    output = await run_command(
        [str(program.with_name("python")), str(_SCRIPT), json.dumps(list(questions))],
        deadline_seconds=deadline_seconds,
        # What this service knows is none of the tool's business.
        environment={name: os.environ[name] for name in _PASSED if name in os.environ},
    )
    if output.exit_code != 0:
        lines = output.stderr.strip().splitlines()
        raise NotPredicted(output.failure or (lines[-1][:300] if lines else "it wrote nothing"))
    return read_answers(output.stdout, len(questions))


def read_answers(text: str, number: int) -> tuple[ToolAnswer, ...]:
    """Raises NotPredicted for anything but so many answers."""
    try:
        answers = msgspec.json.decode(text, type=tuple[ToolAnswer, ...])
    except msgspec.DecodeError as error:
        raise NotPredicted(f"its answer cannot be read: {error}") from error
    if len(answers) != number:
        raise NotPredicted(f"expected {number} answers, got {len(answers)}")
    return answers
