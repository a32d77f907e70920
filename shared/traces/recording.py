"""A trace out of an engine's log: times, lengths and equal beginnings, never a text."""

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shared.datasets.bounds import DatasetRefused
from shared.engines.request_log import LoggedRequest, LogReader
from shared.engines.table import PROFILES
from shared.traces.sessions import MAX_BLOCKS

MAX_REQUESTS: Final = 1_000_000
MAX_LINES: Final = 50_000_000


@dataclass(slots=True)
class Recording:
    """The requests of a log, in order of time. `engine` is whose log it is."""

    engine: str
    requests: list[LoggedRequest] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def count(self) -> int:
        return len(self.requests)

    @property
    def estimated_answers(self) -> int:
        return sum(not request.is_answer_known for request in self.requests)


def list_log_engines() -> list[str]:
    """Return the engines whose logs can be read."""
    return [name for name, profile in PROFILES.items() if profile.request_log is not None]


def record(lines: Iterable[str], block_tokens: int, engine: str | None = None) -> Recording:
    """Read a log of the engine, or of the one whose requests it has most of.

    Raises DatasetRefused for a log without such requests.
    """
    readers: dict[str, LogReader] = {
        name: profile.request_log(block_tokens)
        for name, profile in PROFILES.items()
        if profile.request_log is not None and engine in {None, name}
    }
    recordings = {name: Recording(name, skipped=reader.skipped) for name, reader in readers.items()}
    blocks = 0
    for number, line in enumerate(lines, start=1):
        if number > MAX_LINES:
            raise DatasetRefused(f"expected a log of at most {MAX_LINES:,} lines, got more")
        for name, reader in readers.items():
            for request in reader.read(line):
                blocks += len(request.blocks)
                _keep(recordings[name], request, blocks)
    for name, reader in readers.items():
        for request in reader.end():
            _keep(recordings[name], request, blocks)
    recording = max(recordings.values(), key=Recording.count)
    if not recording.requests:
        raise DatasetRefused(_say_nothing_found(recordings))
    recording.requests.sort(key=lambda request: request.at_seconds)
    recording.requests = list(_spread(recording.requests))
    return recording


def _keep(recording: Recording, request: LoggedRequest, blocks: int) -> None:
    recording.requests.append(request)
    if len(recording.requests) > MAX_REQUESTS or blocks > MAX_BLOCKS:
        raise DatasetRefused(
            f"expected a log of at most {MAX_REQUESTS:,} requests and {MAX_BLOCKS:,} blocks of "
            "prompts, got more: give it in parts"
        )


def _say_nothing_found(recordings: Mapping[str, Recording]) -> str:
    skipped = [
        f"{count} of {PROFILES[name].title} {reason}"
        for name, recording in recordings.items()
        for reason, count in recording.skipped.items()
        if count
    ]
    titles = " or ".join(PROFILES[name].title for name in recordings)
    skipped_text = ", ".join(skipped) or "none"
    return (
        f"expected a log of {titles} with requests and their lengths, found "
        f"{skipped_text}: see which options of the engine write them"
    )


def _spread(requests: Sequence[LoggedRequest]) -> Iterator[LoggedRequest]:
    """Spread those of one second evenly over it, where the clock counts whole ones."""
    if any(not request.at_seconds.is_integer() for request in requests):
        yield from requests
        return
    for _, group in itertools.groupby(requests, key=lambda request: request.at_seconds):
        requests_of_second = list(group)
        for place, request in enumerate(requests_of_second):
            seconds = request.at_seconds + place / len(requests_of_second)
            yield replace(request, at_seconds=seconds)


def trace_lines(recording: Recording) -> Iterator[dict[str, Any]]:
    """Yield the lines of a trace, whose blocks are numbered as they come."""
    numbers: dict[Hashable, int] = {}
    origin = recording.requests[0].at_seconds
    for request in recording.requests:
        yield {
            "timestamp": round(1000 * (request.at_seconds - origin), 3),
            "input_length": request.num_input_tokens,
            "output_length": request.num_output_tokens,
            "hash_ids": [numbers.setdefault(block, len(numbers)) for block in request.blocks],
        }
