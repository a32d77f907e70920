"""A trace as load: its sessions in a file, and the requests that realise them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from shared.benchmarks.traffic import RequestSize, UnsupportedTraffic
from shared.traces.sessions import TraceSession, TraceTurn

TRACE: Final = "trace"  # the scenario, and the arrivals at its times
TRACE_NAME: Final = "trace.jsonl"


class TraceForm(msgspec.Struct, frozen=True, kw_only=True):
    """How prompts are made: of blocks of `block_tokens`, with `tokens_per_word` of the engine."""

    block_tokens: int
    tokens_per_word: float = 1.0

    def count_words(self, num_tokens: int) -> int:
        return max(1, round(num_tokens / self.tokens_per_word))


@dataclass(frozen=True, slots=True)
class TracedLoad:
    """The sessions of a benchmark's trace; none without one."""

    form: TraceForm
    sessions: tuple[TraceSession, ...] = ()

    @property
    def times_seconds(self) -> tuple[float, ...]:
        return tuple(session.begins_seconds for session in self.sessions)


NO_TRACE: Final = TracedLoad(TraceForm(block_tokens=1))


def write_trace(path: Path, form: TraceForm, sessions: Iterable[TraceSession]) -> None:
    """Write the sessions of a benchmark, for whatever makes its load."""
    with path.open("wb") as file:
        file.write(msgspec.json.encode(form) + b"\n")
        for session in sessions:
            file.write(msgspec.json.encode(session) + b"\n")


def read_trace(path: Path | None) -> TracedLoad:
    """Read what `write_trace` wrote; nothing without a file."""
    if path is None:
        return NO_TRACE
    decoder = msgspec.json.Decoder(TraceSession)
    with path.open("rb") as file:
        form = msgspec.json.decode(file.readline(), type=TraceForm)
        return TracedLoad(form, tuple(decoder.decode(line) for line in file))


def size_of(turn: TraceTurn, form: TraceForm, seed: int) -> RequestSize:
    """Return the request of a turn. The same block has the same words in all requests of a seed."""
    words = form.count_words(turn.num_input_tokens)
    block_words = form.count_words(form.block_tokens)
    return RequestSize(
        num_input_tokens=turn.num_input_tokens,
        num_output_tokens=turn.num_output_tokens,
        num_words=words,
        blocks=tuple(
            (f"{seed} {block}", min(block_words, words - block_words * place))
            for place, block in enumerate(turn.blocks)
            if words > block_words * place
        ),
    )


def check_trace_scenario(scenario: str, *, has_trace: bool) -> None:
    """Raises UnsupportedTraffic for the scenario `trace` without one."""
    if scenario == TRACE and not has_trace:
        raise UnsupportedTraffic(
            "expected benchmark.trace, with a path or a URL, for the scenario 'trace'",
            "$.benchmark.traffic_scenarios",
        )
