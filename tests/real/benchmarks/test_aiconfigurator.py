"""AIConfigurator itself, where it is installed; where it is not, the words for that."""

import json
import os
from pathlib import Path

import pytest

from shared.benchmarks.aiconfigurator.asking import NotPredicted, ask_tool, read_answers
from shared.benchmarks.aiconfigurator.installation import AICONFIGURATOR
from tests.support.benchmark_tools import require_tool

RECORDED = (
    Path(__file__).parents[2] / "unit" / "benchmarks" / "tools" / "aiconfigurator-0.12.0.json"
)


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_tool_answers_as_it_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    require_tool(AICONFIGURATOR, monkeypatch)
    rows = json.loads(RECORDED.read_text())["recorded"]

    answers = await ask_tool([row["question"] for row in rows], deadline_seconds=200)

    for row, answer in zip(rows, answers, strict=True):
        assert answer.problem == row["answer"].get("problem", "")
        assert answer.ttft_ms == pytest.approx(row["answer"].get("ttft_ms", 0.0), rel=1e-6)
        assert answer.tpot_ms == pytest.approx(row["answer"].get("tpot_ms", 0.0), rel=1e-6)


def make_program(directory: Path, script: str) -> str:
    """Stand for the tool's environment: a program, and the Python beside it."""
    for name in ("aiconfigurator", "python"):
        path = directory / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return str(directory / "aiconfigurator")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("sleep 60", "no end within 0.5 s"),
        ("echo 'ImportError: no numpy' >&2; exit 1", "ImportError: no numpy"),
        ("echo '[]'", "expected 1 answers, got 0"),
        ("echo 'not JSON'", "cannot be read"),
        ("yes", "writes without end"),
    ],
)
async def test_tool_that_misbehaves_is_no_prior(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AICONFIGURATOR.variable, make_program(tmp_path, script))
    seconds = 0.5 if script.startswith("sleep") else 30.0

    with pytest.raises(NotPredicted, match=words):
        await ask_tool([{}], deadline_seconds=seconds)


async def test_absence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AICONFIGURATOR.variable, raising=False)
    monkeypatch.setenv("GPUSTEWARD_TOOLS_DIR", os.fspath(tmp_path))

    with pytest.raises(NotPredicted, match="gpusteward bench install aiconfigurator"):
        await ask_tool([{}])


def test_answers_are_read_strictly() -> None:
    assert read_answers('[{"problem": "none"}]', 1)[0].problem == "none"
    with pytest.raises(NotPredicted):
        read_answers('[{"ttft_ms": "1"}]', 1)
