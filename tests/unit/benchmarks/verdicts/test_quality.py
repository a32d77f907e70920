"""Answers of a configuration against the baseline's."""

from pathlib import Path

import pytest

from schemas.task.quality import QualityAnswers, QualityProbe
from schemas.task.slo import SloVerdict
from shared.benchmarks.quality.agreement import compare
from shared.benchmarks.quality.probe import Question, is_right, read_questions
from shared.benchmarks.quality.prompts import PROMPTS
from shared.benchmarks.verdicts.constraints import describe_missed, excess_of
from shared.errors import RefusedError

PROBE = QualityProbe(prompts=4)
BASELINE = QualityAnswers(answers=("0123456789", "abcdefghij", "same", None))


def test_equal_answers_agree() -> None:
    got = QualityAnswers(answers=("0123456789", "abcdefghij", "same", "more"))

    verdict = compare(1, BASELINE, got, PROBE)

    assert (verdict.compared, verdict.identical, verdict.agreement) == (3, 3, 1.0)
    assert verdict.first_divergence is None
    assert verdict.excess == 0
    assert describe_missed(SloVerdict(quality=verdict)) == ""


def test_an_answer_agrees_as_far_as_it_is_the_same() -> None:
    got = QualityAnswers(answers=("01234XXXXX", "abXdefghij", "same"))

    verdict = compare(1, BASELINE, got, PROBE)

    assert verdict.agreement == pytest.approx((0.5 + 0.2 + 1) / 3)
    assert verdict.identical == 1
    first = verdict.first_divergence
    assert first is not None
    assert (first.prompt, first.character, first.expected, first.got) == (
        *(2, 2, "cdefghij", "Xdefghij"),
    )
    assert verdict.excess == 0


@pytest.mark.parametrize("answers", [(None, None, None), (), ("XX", "YY", "ZZ")])
def test_other_or_missing_answers_disagree(
    answers: tuple[str | None, ...],
) -> None:
    verdict = compare(1, BASELINE, QualityAnswers(answers=answers), PROBE)

    slo = SloVerdict(quality=verdict)
    assert verdict.agreement == 0
    assert excess_of(slo) == 1.0
    assert "agreement 0 % with experiment 1 (at least 50 %)" in describe_missed(slo)


@pytest.mark.parametrize(
    ("accuracy", "is_within"), [(0.9, True), (0.88, True), (0.87, False), (None, False)]
)
def test_accuracy_may_fall_by_the_tolerance(accuracy: float | None, is_within: bool) -> None:
    probe = QualityProbe(prompts=0, accuracy_file="questions.jsonl", max_accuracy_loss=0.02)
    baseline = QualityAnswers(accuracy=0.9, questions=100)

    verdict = compare(1, baseline, QualityAnswers(accuracy=accuracy, questions=100), probe)

    assert (verdict.excess == 0) is is_within
    assert verdict.agreement is None


@pytest.mark.parametrize(
    ("expected", "answer", "is_it"),
    [
        ("Paris", "It is PARIS.", True),
        ("new york", "New\n York, of course", True),
        ("12", "about 120", False),
        ("C++", "in C++, mostly", True),
        ("12", None, False),
    ],
)
def test_answer_with_expected_words_is_right(
    expected: str, answer: str | None, is_it: bool
) -> None:
    assert is_right(Question(prompt="?", answer=expected), answer) is is_it


def test_questions_are_read_from_below_the_roots(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text('{"prompt": "1+1?", "answer": "2"}\n\n')

    questions = read_questions(QualityProbe(accuracy_file="set.jsonl"), (tmp_path,))

    assert questions == [Question(prompt="1+1?", answer="2")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("set", '{"prompt": "?"}', "line 1 of 'set'"),
        ("set", '{"prompt": "?", "answer": " "}', "an answer in line 1"),
        ("set", "\n", "1 to 500 questions"),
        ("set", "x" * 2**20 + "y", "at most 1048576 bytes"),
        ("other", "", "a file inside"),
        ("link", "", "a file inside"),
        ("../set", "", "a file inside"),
        ("/etc/hostname", "", "a file inside"),
    ],
)
def test_what_is_no_set_of_questions_is_refused(
    tmp_path: Path, name: str, content: str, said: str
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "set").write_text(content)
    (tmp_path / "set").write_text("{}")
    (root / "link").symlink_to(tmp_path / "set")

    with pytest.raises(RefusedError, match=said) as refused:
        read_questions(QualityProbe(accuracy_file=name), (root,))

    assert refused.value.path == "$.benchmark.quality.accuracy_file"


def test_every_probe_prompt_exists() -> None:
    assert len(set(PROMPTS)) == 32
