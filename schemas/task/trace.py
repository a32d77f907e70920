"""A recorded load in place of a made one, and what was taken of its file."""

from typing import Annotated

from msgspec import Meta, Struct

from schemas.base import Count, PositiveInt
from schemas.task.dataset import AnswerTokens, LengthUnit
from schemas.task.source_file import SourceFile

MAX_BLOCK_TOKENS = 65_536
MAX_SESSION_TURNS = 1000


class TraceSpec(SourceFile, frozen=True, kw_only=True):
    """A trace in Mooncake's form: a JSON object a line, in order of time.

    Each has a `timestamp` in milliseconds, `input_length` and `output_length` in tokens, and
    `hash_ids` of the blocks of `block_tokens` that its prompt is made of: requests that begin with
    the same ids have the same beginning. Lines of one `session_id` are turns, each sent with all
    before it, `delay` milliseconds after the answer.

    Requests longer than `max_input_tokens` are left out, with the rest of their session; answers
    are cut to `max_output_tokens`.
    """

    block_tokens: Annotated[int, Meta(ge=1, le=MAX_BLOCK_TOKENS)] = 512
    max_input_tokens: PositiveInt | None = None
    max_output_tokens: AnswerTokens | None = None


class TraceUse(Struct, frozen=True, kw_only=True):
    """What a benchmark took of its trace: the file's SHA-256, its requests, and the `used` ones,
    the first of `sessions`.

    `prefix_share` is how much of the tokens of the used prompts came before in the trace, 0 to 1.
    Prompts of so many tokens were made of words, `tokens_per_word` each, as counted in
    `length_unit`.
    """

    sha256: str
    requests: Count
    used: Count
    sessions: Count
    too_long: Count = 0
    seconds: float = 0.0
    prefix_share: float = 0.0
    mean_input_tokens: float = 0.0
    mean_output_tokens: float = 0.0
    tokens_per_word: float = 1.0
    length_unit: LengthUnit = LengthUnit.WORDS
