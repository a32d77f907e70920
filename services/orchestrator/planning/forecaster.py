"""Asks AIConfigurator what it predicts for a task's configurations, once for the same questions."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.task.task_file import TaskFile
from services.orchestrator.domain.plan.expansion import find_axes
from services.orchestrator.domain.search.forecast import (
    SYSTEMS,
    Forecast,
    Forecasts,
    Question,
    describe_answers,
    learn_correction,
    say_corrections,
)
from services.orchestrator.domain.search.prior import Prior, questions_about
from services.orchestrator.domain.search.space import space_of
from services.orchestrator.ledger.past_forecasts import past_scores
from shared.benchmarks.aiconfigurator.asking import NotPredicted, ToolAnswer, ask_tool
from shared.errors import RefusedError
from shared.postgres.database import Connection

MOST_QUESTIONS: Final = 128
KEPT_ANSWERS: Final = 32
# The command that is sent again meanwhile is answered at once.
FAILURE_KEPT_SECONDS: Final = 30.0
_STAYS: Final = "so the roofline is the prior"

Inquiry = tuple[str, float, float, tuple[Question, ...]]


class Answered(Struct, frozen=True):
    """What was answered for a task, of these engines and models; without `forecasts` the note says
    why.
    """

    forecasts: Forecasts | None
    note: str
    served: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Forecaster:
    """One question at a time: a command that is sent again waits for the first one's answer."""

    _answers: OrderedDict[Inquiry, tuple[ToolAnswer, ...]] = field(default_factory=OrderedDict)
    _failures: dict[Inquiry, tuple[float, NotPredicted]] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, task: TaskFile, prior: Prior | None) -> Answered | None:
        """Return what is predicted; None where the task has no such prior, or none at all."""
        if task.optimization.prior != "aiconfigurator" or prior is None:
            return None
        if task.gpus is None or not task.gpus.models:
            return _none("AIConfigurator needs the kind of GPU, which the task does not name")
        system = SYSTEMS.get(prior.gpu.model)
        if system is None:
            return _none(f"AIConfigurator knows no {prior.gpu.model}")
        try:
            questions = questions_about(prior, space_of(find_axes(task)), MOST_QUESTIONS)
        except RefusedError:
            return None  # which the plan says
        if not questions:
            return _none("AIConfigurator predicts vLLM, SGLang and TensorRT-LLM alone")
        inquiry = (system, prior.input_tokens, prior.output_tokens, questions)
        try:
            answers = await self._ask_once(inquiry)
        except NotPredicted as error:
            return _none(f"AIConfigurator did not answer ({error})")
        return _read(system, questions, answers)

    async def _ask_once(self, inquiry: Inquiry) -> tuple[ToolAnswer, ...]:
        system, input_tokens, output_tokens, questions = inquiry
        async with self._lock:
            if inquiry in self._answers:
                return self._answers[inquiry]
            failed_at, failure = self._failures.get(inquiry, (0.0, None))
            if failure is not None and time.monotonic() < failed_at + FAILURE_KEPT_SECONDS:
                raise failure
            try:
                answers = await ask_tool(
                    [
                        question.arguments(system, input_tokens, output_tokens)
                        for question in questions
                    ]
                )
            except NotPredicted as error:
                self._failures = {inquiry: (time.monotonic(), error)}
                raise
            self._answers[inquiry] = answers
            while len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)
            return answers


def _read(system: str, questions: Sequence[Question], answers: Sequence[ToolAnswer]) -> Answered:
    answered = [
        (question, answer)
        for question, answer in zip(questions, answers, strict=True)
        if not answer.problem
    ]
    if not answered:
        return _none(f"AIConfigurator predicts none of it ({answers[0].problem})")
    forecasts = Forecasts(
        system=system,
        answers={
            question.key: Forecast(ttft=answer.ttft_ms / 1000, tpot=answer.tpot_ms / 1000)
            for question, answer in answered
        },
    )
    versions = dict.fromkeys(f"{q.engine} {answer.backend_version}" for q, answer in answered)
    return Answered(
        forecasts,
        describe_answers(forecasts, list(versions), len(questions)),
        tuple(dict.fromkeys((question.engine, question.model) for question, _ in answered)),
    )


def _none(reason: str) -> Answered:
    return Answered(None, f"prior: {reason}, {_STAYS}")


async def with_forecasts(
    connection: Connection, namespace: str, prior: Prior, answered: Answered
) -> tuple[Prior, str]:
    """Return the prior with what was predicted, corrected by what past tasks measured, and what
    there is to say of it.
    """
    forecasts = answered.forecasts
    if forecasts is None:
        return prior, answered.note
    corrections = {}
    for engine, model in answered.served:
        scores = await past_scores(
            connection, namespace, model, engine, forecasts.system, prior.objective
        )
        if (correction := learn_correction(scores)) is not None:
            corrections[engine] = correction
    forecasts = replace(forecasts, corrections=corrections)
    return replace(prior, forecasts=forecasts), f"{answered.note}; {say_corrections(forecasts)}"
