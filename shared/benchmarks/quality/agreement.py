"""Whether a configuration answers as the baseline does."""

from itertools import takewhile
from typing import Final

from schemas.task.quality import Divergence, QualityAnswers, QualityProbe, QualityVerdict

PROBE_SECONDS: Final = 600.0  # of all prompts; what is not answered by then has no answer
EXCERPT_CHARACTERS: Final = 60


def compare(
    baseline: int, expected: QualityAnswers, got: QualityAnswers, probe: QualityProbe
) -> QualityVerdict:
    """`got` against the answers of the experiment `baseline`.

    Prompts that the baseline did not answer say nothing; an answer that is missing agrees in
    nothing.
    """
    answers = (*got.answers, *[None] * (len(expected.answers) - len(got.answers)))
    shares: list[float] = []
    divergences: list[Divergence] = []
    for number, (expected_answer, answer) in enumerate(
        zip(expected.answers, answers, strict=False), start=1
    ):
        if expected_answer is None:
            continue
        common = _common(expected_answer, answer or "")
        longest = max(len(expected_answer), len(answer or ""))
        if expected_answer == answer:
            shares.append(1.0)
            continue
        shares.append(common / longest if longest else 0.0)
        divergences.append(
            Divergence(
                prompt=number,
                character=common,
                expected=_excerpt(expected_answer, common),
                got=_excerpt(answer, common) if answer is not None else None,
            )
        )
    agreement = sum(shares) / len(shares) if shares else None
    return QualityVerdict(
        baseline=baseline,
        compared=len(shares),
        identical=len(shares) - len(divergences),
        agreement=agreement,
        min_agreement=probe.min_agreement,
        first_divergence=min(
            divergences, key=lambda divergence: divergence.character, default=None
        ),
        accuracy=got.accuracy,
        baseline_accuracy=expected.accuracy,
        excess=max(_disagreement(agreement, probe), _loss(expected, got, probe)),
    )


def _common(text: str, other: str) -> int:
    """Count the first characters that are the same."""
    pairs = zip(text, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _excerpt(answer: str, start: int) -> str:
    return answer[start : start + EXCERPT_CHARACTERS]


def _disagreement(agreement: float | None, probe: QualityProbe) -> float:
    if agreement is None or agreement >= probe.min_agreement:
        return 0.0
    return (probe.min_agreement - agreement) / probe.min_agreement


def _loss(expected: QualityAnswers, got: QualityAnswers, probe: QualityProbe) -> float:
    if not expected.accuracy:
        return 0.0
    loss = expected.accuracy - (got.accuracy or 0.0)
    # Of counts, so that a loss of exactly as many as may be is no more than that.
    over = loss * expected.questions - probe.max_accuracy_loss * expected.questions
    return over / (expected.questions * expected.accuracy) if over > 1e-9 else 0.0


def quality_text(verdict: QualityVerdict) -> str:
    """`agreement 41 % with experiment 1 (at least 50 %), first at character 3 of prompt 2: ...`."""
    texts = []
    if verdict.agreement is not None:
        texts.append(
            f"agreement {100 * verdict.agreement:.3g} % with experiment {verdict.baseline} (at "
            f"least {100 * verdict.min_agreement:.3g} %), {verdict.identical} of "
            f"{verdict.compared} answers identical"
        )
    if (first := verdict.first_divergence) is not None:
        got = repr(first.got) if first.got is not None else "no answer"
        texts.append(
            f"first at character {first.character} of prompt {first.prompt}: {got} for "
            f"{first.expected!r}"
        )
    if verdict.baseline_accuracy is not None:
        accuracy = f"{100 * verdict.accuracy:.3g} %" if verdict.accuracy is not None else "unknown"
        texts.append(f"accuracy {accuracy} for {100 * verdict.baseline_accuracy:.3g} %")
    return "; ".join(texts) or "no prompt was answered by the baseline"
