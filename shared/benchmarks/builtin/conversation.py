"""Turns of one conversation, each sent with all that was said before."""

from dataclasses import dataclass, field
from typing import Final

from schemas.task.benchmark import MAX_LEVELS, BenchmarkSpec
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.traffic import UnsupportedTraffic

MAX_TURN_RESULTS: Final = MAX_LEVELS  # the outcome tells of all of them in one message


@dataclass(slots=True)
class Conversation:
    """What was said, as the engine takes it. `history_tokens` is all of it before the turn that
    comes next; one that failed has no next. It may end early, after `last_turn`.
    """

    turns: int = 1
    last_turn: int | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    history_tokens: int = 0
    answered: int = 0

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

    def ask(self, prompt: str) -> None:
        self.messages.append({"role": "user", "content": prompt})

    def answer(self, text: str, sample: RequestSample) -> None:
        self.messages.append({"role": "assistant", "content": text})
        self.history_tokens = sample.num_input_tokens + sample.num_output_tokens
        self.answered += 1


def check_turns(spec: BenchmarkSpec) -> None:
    """Raises UnsupportedTraffic."""
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
