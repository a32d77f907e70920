"""The part of a trace that is sent: sessions of turns, with what each shares with those before."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from msgspec import Struct

from schemas.task.trace import MAX_SESSION_TURNS, TraceSpec
from shared.datasets.bounds import DatasetRefused
from shared.traces.lines import TraceLine
from shared.traces.prefixes import Prefixes

MAX_USED: Final = 100_000  # requests
MAX_BLOCKS: Final = 20_000_000  # ids of blocks of all of them


class TraceTurn(Struct, frozen=True, kw_only=True):
    """A request: `num_input_tokens` of its own behind `history_tokens` of the turns before it.

    `shared_tokens` of all these came before, the history included. It is sent `wait_seconds` after
    the answer before it, or, with `at_seconds`, not before then.
    """

    num_input_tokens: int
    num_output_tokens: int
    blocks: tuple[int, ...] = ()
    history_tokens: int = 0
    shared_tokens: int = 0
    wait_seconds: float = 0.0
    at_seconds: float | None = None

    @property
    def context_tokens(self) -> int:
        return self.history_tokens + self.num_input_tokens


class TraceSession(Struct, frozen=True):
    """Turns, the first of which is sent `begins_seconds` after the trace's beginning."""

    begins_seconds: float
    turns: tuple[TraceTurn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The sessions in order of their beginning. `has_times` false: one begins at no time."""

    requests: int
    too_long: int
    sessions: tuple[TraceSession, ...]
    has_times: bool

    @property
    def turns(self) -> Iterator[TraceTurn]:
        return (turn for session in self.sessions for turn in session.turns)

    @property
    def prefix_share(self) -> float:
        """Return how much of the tokens of all prompts came before, 0 to 1."""
        tokens = sum(turn.context_tokens for turn in self.turns)
        return sum(turn.shared_tokens for turn in self.turns) / tokens if tokens else 0.0

    @property
    def seconds(self) -> float:
        return self.sessions[-1].begins_seconds if self.sessions else 0.0

    def mean_tokens(self) -> tuple[float, float]:
        """Return the means of what prompts have, with their history, and of answers."""
        turns = list(self.turns)
        return (
            fmean(turn.context_tokens for turn in turns),
            fmean(turn.num_output_tokens for turn in turns),
        )


def take_sessions(lines: Iterable[TraceLine], spec: TraceSpec, most_requests: int) -> Trace:
    """Take so many requests at most, and read the others for what is wrong with them.

    Raises DatasetRefused.
    """
    open_sessions: dict[Hashable, list[TraceLine]] = {}
    dropped: set[Hashable] = set()
    requests = used = blocks = too_long = 0
    origin: float | None = None
    has_times = True
    for number, line in enumerate(lines, start=1):
        requests += 1
        key: Hashable = number if line.session_id is None else ("session", line.session_id)
        turns = open_sessions.get(key)
        if origin is None:
            origin = line.timestamp
        if key in dropped:
            too_long += 1
            continue
        if used >= min(most_requests, MAX_USED):
            continue
        if turns is not None and len(turns) >= MAX_SESSION_TURNS:
            raise DatasetRefused(
                f"expected at most {MAX_SESSION_TURNS} turns in a session, request {number} is one "
                "more"
            )
        history = 0 if turns is None else sum(map(_tokens, turns))
        if spec.max_input_tokens and history + line.input_length > spec.max_input_tokens:
            too_long += 1
            dropped.add(key)
            continue
        blocks += len(line.hash_ids)
        if blocks > MAX_BLOCKS:
            raise DatasetRefused(
                f"expected at most {MAX_BLOCKS:,} hash_ids in the requests of a level, got more in "
                f"the first {number}: ask for fewer requests"
            )
        has_times = has_times and (turns is not None or line.timestamp is not None)
        open_sessions.setdefault(key, []).append(line)
        used += 1
    if not used:
        raise DatasetRefused(
            f"no request of the trace can be used, of {requests} {too_long} are too long"
            if requests
            else "expected a trace with requests, got an empty file"
        )
    return Trace(
        requests=requests,
        too_long=too_long,
        sessions=tuple(_share(open_sessions.values(), spec, origin or 0.0)),
        has_times=has_times,
    )


def _tokens(line: TraceLine) -> int:
    return line.input_length + max(1, line.output_length)


def _share(
    sessions: Iterable[Sequence[TraceLine]], spec: TraceSpec, origin: float
) -> Iterator[TraceSession]:
    """Count what each session shares with those that began before it."""
    prefixes = Prefixes()
    for session, lines in enumerate(sessions):
        turns: list[TraceTurn] = []
        chain = history = 0
        for turn, line in enumerate(lines):
            pieces = block_pieces(line, spec.block_tokens, (session, turn))
            shared, chain = prefixes.count(pieces, chain)
            num_output_tokens = max(1, line.output_length)
            if spec.max_output_tokens is not None:
                num_output_tokens = min(num_output_tokens, spec.max_output_tokens)
            has_wait = turn and (line.delay is not None or line.timestamp is None)
            is_timed = turn and not has_wait and line.timestamp is not None
            turns.append(
                TraceTurn(
                    num_input_tokens=line.input_length,
                    num_output_tokens=num_output_tokens,
                    blocks=line.hash_ids,
                    history_tokens=history,
                    shared_tokens=history + shared,
                    wait_seconds=(line.delay or 0.0) / 1000 if has_wait else 0.0,
                    at_seconds=((line.timestamp or 0.0) - origin) / 1000 if is_timed else None,
                )
            )
            history += line.input_length + num_output_tokens
            # No other session has had this one's answer.
            _, chain = prefixes.count([((session, turn, "answer"), num_output_tokens)], chain)
        begins = lines[0].timestamp
        yield TraceSession(0.0 if begins is None else (begins - origin) / 1000, tuple(turns))


def block_pieces(
    line: TraceLine, block_tokens: int, name: Hashable
) -> Iterator[tuple[Hashable, int]]:
    """Yield the blocks of a prompt with their tokens, and what is left, by the prompt's name."""
    tokens = line.input_length
    for block in line.hash_ids:
        size = min(block_tokens, tokens)
        yield block, size
        tokens -= size
    if tokens:
        yield (name, "tail"), tokens
