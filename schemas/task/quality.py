"""Whether a faster configuration still gives the same answers."""

from typing import Annotated

from msgspec import Meta, Struct

from schemas.base import Count, PositiveInt, line

Share = Annotated[float, Meta(ge=0, le=1)]


class QualityProbe(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Greedy answers to that many fixed `prompts`, each of `max_tokens` at most, compared with
    those of the task's first configuration. A configuration whose answers agree by less than
    `min_agreement` is not best.

    `accuracy_file`, below a model root of the executor, has a question a line:
    `{"prompt": "...", "answer": "..."}`, answered rightly if the answer occurs; at most
    `max_accuracy_loss` of them may be lost. With 0 prompts and no file nothing is asked.
    """

    prompts: Annotated[int, Meta(ge=0, le=32)] = 16
    max_tokens: Annotated[int, Meta(ge=1, le=512)] = 64
    min_agreement: Share = 0.5
    accuracy_file: Annotated[str, line(min_length=1, max_length=512)] | None = None
    max_accuracy_loss: Share = 0.02

    @property
    def is_off(self) -> bool:
        return not self.prompts and self.accuracy_file is None


class QualityAnswers(Struct, frozen=True, kw_only=True):
    """In the order of the prompts; None: no answer. `accuracy` is the share of `questions` that
    were answered rightly; None: there were none.
    """

    answers: tuple[str | None, ...] = ()
    accuracy: float | None = None
    questions: Count = 0


class Divergence(Struct, frozen=True, kw_only=True):
    """The first `character` (from 0) at which an answer is another, and what follows there.

    `prompt` counts from 1; `got` None: there was no answer.
    """

    prompt: PositiveInt
    character: Count
    expected: str
    got: str | None


class QualityVerdict(Struct, frozen=True, kw_only=True):
    """Answers against those of the experiment `baseline`, by ordinal.

    `agreement` is how far an answer goes with the baseline's before its first other character, as a
    share of the longer one; the mean over the `compared` prompts, None without any. `identical` of
    them are the same to the end. `excess` is how far it is from what the probe asks for; 0, it is
    met.
    """

    baseline: PositiveInt
    compared: Count = 0
    identical: Count = 0
    agreement: float | None = None
    min_agreement: float = 0.0
    first_divergence: Divergence | None = None
    accuracy: float | None = None
    baseline_accuracy: float | None = None
    excess: float = 0.0
