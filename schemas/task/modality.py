"""What the requests of a traffic scenario are, by the letter that genai-bench's notation begins
with.
"""

from enum import StrEnum
from typing import Annotated, Final, Self

from msgspec import Meta, Struct

MAX_BATCH: Final = 1024  # an answer of as many vectors is read whole

BatchSize = Annotated[int, Meta(ge=1, le=MAX_BATCH)]


class ModalityTraits(Struct, frozen=True, kw_only=True):
    """`task` is genai-bench's name. `items` are what an answer has one of for each, and what is
    counted per second; empty: an answer is of tokens, one after the other.
    """

    task: str
    items: str = ""


class Modality(StrEnum):
    """What is sent and what comes back."""

    _value_: str
    traits: ModalityTraits

    def __new__(cls, value: str, traits: ModalityTraits) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.traits = traits
        return member

    TEXT = "text", ModalityTraits(task="text-to-text")
    IMAGES = "images", ModalityTraits(task="image-text-to-text")
    EMBEDDINGS = "embeddings", ModalityTraits(task="text-to-embeddings", items="inputs")
    RERANK = "rerank", ModalityTraits(task="text-to-rerank", items="documents")

    @property
    def has_tokens(self) -> bool:
        """True if answers come token by token, so that there are times of them."""
        return not self.traits.items


_BY_LETTER: Final = {"I": Modality.IMAGES, "E": Modality.EMBEDDINGS, "R": Modality.RERANK}


def modality_of(scenario: str) -> Modality:
    """Return that of a scenario; of text where its letter is no other's."""
    return _BY_LETTER.get(scenario[:1], Modality.TEXT)
