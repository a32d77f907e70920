"""Turns of one conversation, each sent with all that was said before."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.task.benchmark import MAX_LEVELS, BenchmarkSpec
from shared.benchmarks.builtin.chat_stream import ChatStream
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.traced import TRACE
from shared.benchmarks.traffic import RequestSize, UnsupportedTraffic
from shared.traces.prefixes import Prefixes
from shared.traces.sessions import TraceTurn

MAX_TURN_RESULTS: Final = MAX_LEVELS  # the outcome tells of all of them in one message


@dataclass(slots=True)
class Conversation:
    """What was said, as the engine takes it. `history_tokens` is all of it before the turn that
    comes next; one that failed has no next. It may end early, after `last_turn`. Of a trace it has
    its `script`, and `prefixes` of all prompts that were sent: `new_share` of its newest text came
    before in them. `adapter` is the one that it is with; empty: the model, or none was drawn yet.
    """

    turns: int = 1
    last_turn: int | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    history_tokens: int = 0
    answered: int = 0
    script: Sequence[TraceTurn] = ()
    prefixes: Prefixes | None = None
    new_share: float = 0.0
    adapter: str = ""
    _chain: int = 0

    @property
    def turn(self) -> int:
        """The number of the next turn, from 1."""
        return self.answered + 1

    @property
    def is_over(self) -> bool:
        return self.answered >= (self.last_turn or self.turns)

    @property
    def is_last_turn(self) -> bool:
        return self.turn >= (self.last_turn or self.turns)

    @property
    def next_turn(self) -> TraceTurn:
        """The turn that its script has next."""
        return self.script[self.answered]

    def ask(self, pieces: Sequence[str], image_urls: Sequence[str] = ()) -> None:
        """Say a prompt of pieces that spaces join, with images."""
        content: str | list[dict[str, Any]] = " ".join(pieces)
        if image_urls:
            urls = [{"type": "image_url", "image_url": {"url": url}} for url in image_urls]
            content = [{"type": "text", "text": content}, *urls]
        self.messages.append({"role": "user", "content": content})
        if self.prefixes is None:
            return
        sizes = [(piece, len(piece)) for piece in pieces]
        shared, self._chain = self.prefixes.count(sizes, self._chain)
        self.new_share = shared / max(1, sum(map(len, pieces)))

    def count_reusable(self, num_input_tokens: int, prefix_tokens: int) -> int:
        """Return how many of a prompt's tokens, as the engine counts them, were sent or answered
        before: its history's, of the first turn what all share, of a trace what it shares.
        """
        if self.prefixes is None:
            return self.history_tokens or prefix_tokens
        new_tokens = max(0, num_input_tokens - self.history_tokens)
        return min(num_input_tokens, self.history_tokens + round(self.new_share * new_tokens))

    def answer(self, text: str, sample: RequestSample) -> None:
        if self.prefixes is not None:
            _, self._chain = self.prefixes.count([(text, len(text))], self._chain)
        self.messages.append({"role": "assistant", "content": text})
        self.history_tokens = sample.total_tokens
        self.answered += 1


def sample_of(
    stream: ChatStream, started: float, size: RequestSize, conversation: Conversation
) -> RequestSample:
    """Return the sample of a turn that was answered to its end."""
    first, last = stream.first_content_at, stream.finished_at
    if first is None or last is None:
        raise RuntimeError("a stream without content or end was taken for a complete one")
    usage, history_tokens = stream.usage, conversation.history_tokens
    num_input_tokens = (
        history_tokens + size.num_input_tokens if usage is None else usage.prompt_tokens
    )
    num_output_tokens = stream.content_chunks if usage is None else usage.completion_tokens
    return RequestSample(
        ttft=first - started,
        e2e_latency=last - started,
        num_input_tokens=num_input_tokens,
        num_output_tokens=num_output_tokens,
        num_first_tokens=stream.count_first_tokens(num_output_tokens),
        tokens_estimated=usage is None,
        turn=conversation.turn if conversation.turns > 1 else None,
        reusable_tokens=conversation.count_reusable(num_input_tokens, len(size.prefix_words)),
        cached_tokens=None if usage is None else usage.cached_tokens,
    )


def check_turns(spec: BenchmarkSpec) -> None:
    """Raises UnsupportedTraffic."""
    if spec.turns > 1 and TRACE in spec.traffic_scenarios:
        raise UnsupportedTraffic(
            "expected no turns here, as those of the scenario 'trace' are its sessions'",
            "$.benchmark.turns",
        )
    if spec.turns == 1:
        if spec.think_seconds:
            raise UnsupportedTraffic(
                "expected several turns, between which somebody thinks, got 1", "$.benchmark.turns"
            )
        return
    if spec.num_levels * spec.turns > MAX_TURN_RESULTS:
        raise UnsupportedTraffic(
            f"expected at most {MAX_TURN_RESULTS} turns of all levels together, got "
            f"{spec.num_levels} levels of {spec.turns}",
            "$.benchmark.turns",
        )
    thinking_seconds = (spec.turns - 1) * spec.think_seconds
    if thinking_seconds >= spec.max_time_per_level_seconds:
        raise UnsupportedTraffic(
            f"expected conversations that end within a level's {spec.max_time_per_level_seconds:g} "
            f"s, got {thinking_seconds:g} s of thinking in each",
            "$.benchmark.think_seconds",
        )
