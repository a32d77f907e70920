"""Greedy answers of a server to fixed prompts, and to questions with known answers."""

import asyncio
import re
import time
from pathlib import Path
from typing import Final

import msgspec

from schemas.errors import ErrorCode
from schemas.task.benchmark import BenchmarkSpec
from schemas.task.quality import QualityAnswers, QualityProbe
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.quality.agreement import PROBE_SECONDS
from shared.benchmarks.quality.prompts import PROMPTS
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.traffic import NUMERIC_PARAMETERS, OWNED_PARAMETERS
from shared.errors import RefusedError
from shared.paths import find_below

ANSWER_TIMEOUT_SECONDS: Final = 60.0
MAX_ANSWER_CHARACTERS: Final = 4000
MAX_FILE_BYTES: Final = 2**20
MAX_QUESTIONS: Final = 500
FILE_FIELD: Final = "$.benchmark.quality.accuracy_file"


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of an accuracy file."""

    prompt: str
    answer: str


async def probe_quality(
    spec: BenchmarkSpec, target: Target, roots: tuple[Path, ...]
) -> QualityAnswers | None:
    """Ask the probe's questions one after the other, since answers of a batch depend on what else
    is in it.

    Returns None without a probe. Raises RefusedError as `read_questions`.
    """
    probe = spec.quality
    if probe is None or probe.is_off:
        return None
    questions = await asyncio.to_thread(read_questions, probe, roots)
    ends = time.monotonic() + PROBE_SECONDS
    # What chooses how to sample is the probe's own; what chooses a template is the task's.
    sampling = OWNED_PARAMETERS | NUMERIC_PARAMETERS | {"ignore_eos"}
    kept = {name: value for name, value in spec.additional_params.items() if name not in sampling}

    async with ChatServer(
        base_url=target.base_url,
        model_name=target.model_name,
        api_key=target.api_key,
        certificate=target.certificate,
        parameters=kept,
    ) as server:

        async def ask(prompt: str) -> str | None:
            seconds = min(ANSWER_TIMEOUT_SECONDS, ends - time.monotonic())
            if seconds <= 0:
                return None
            answer = await server.answer(prompt, probe.max_tokens, seconds)
            return None if answer is None else answer[:MAX_ANSWER_CHARACTERS]

        answers = [await ask(prompt) for prompt in PROMPTS[: probe.prompts]]
        right = [is_right(question, await ask(question.prompt)) for question in questions]
    return QualityAnswers(
        answers=tuple(answers),
        accuracy=sum(right) / len(right) if right else None,
        questions=len(right),
    )


def is_right(question: Question, answer: str | None) -> bool:
    """True if the answer contains the expected one as whole words, whatever their case."""
    if answer is None:
        return False
    expected_text, answer_text = (
        " ".join(text.casefold().split()) for text in (question.answer, answer)
    )
    return re.search(rf"(?<!\w){re.escape(expected_text)}(?!\w)", answer_text) is not None


def read_questions(probe: QualityProbe, roots: tuple[Path, ...]) -> list[Question]:
    """Read the questions of the probe's accuracy file; none without one.

    Raises RefusedError for a file outside of the roots, too large, or not of questions.
    """
    name = probe.accuracy_file
    if name is None:
        return []
    path = find_below(name, roots)
    if path is None:
        where = ", ".join(map(str, roots)) or "a model root"
        raise _refusal(f"expected a file inside {where}, found no {name!r}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _refusal(f"expected a file that can be read, {name!r}: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise _refusal(f"expected at most {MAX_FILE_BYTES} bytes, {name!r} has more")
    questions = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            question = msgspec.json.decode(line, type=Question)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _refusal(
                f'expected {{"prompt": "...", "answer": "..."}} in line {number} of {name!r}: '
                f"{error}"
            ) from error
        if not question.answer.strip():
            raise _refusal(f"expected an answer in line {number} of {name!r}, got none")
        questions.append(question)
    if not 1 <= len(questions) <= MAX_QUESTIONS:
        raise _refusal(f"expected 1 to {MAX_QUESTIONS} questions in {name!r}, got {len(questions)}")
    return questions


def _refusal(message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=FILE_FIELD)
