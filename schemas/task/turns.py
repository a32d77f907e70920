"""Conversations of several turns: what is asked, and what each turn took."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from schemas.base import Count, PositiveInt

MAX_TURNS: Final = 64

Turns = Annotated[int, Meta(ge=1, le=MAX_TURNS)]
ThinkSeconds = Annotated[float, Meta(ge=0, le=3600)]


class TurnResult(Struct, frozen=True, kw_only=True):
    """A level's requests that were the `turn`-th of their conversation, from 1; times are seconds.

    `mean_input_tokens` count all that was said before. None: no request gave the measure.
    """

    turn: PositiveInt
    num_completed_requests: Count
    mean_input_tokens: float
    mean_ttft: float
    p50_ttft: float
    p99_ttft: float
    mean_tpot: float | None
    mean_e2e_latency: float
