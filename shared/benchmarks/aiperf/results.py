"""What AIPerf writes down about its requests, as a level.

Its aggregates are not read: figures are computed of each request, by the rules of the built-in
generator. Requests that it cancelled when the time was over are in none of its files but the log.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec, LevelResult
from shared.benchmarks.arrivals import Load
from shared.benchmarks.levels.measured_level import (
    LevelOutcome,
    PromptTokens,
    Record,
    measured_level_result,
)
from shared.benchmarks.metrics import FailedRequest, RequestSample, with_unanswered
from shared.benchmarks.tools.adapter import DamagedResult
from shared.benchmarks.traffic import RequestSize

_STARTED: Final = re.compile(r"Phase profiling .*started")
_ENDED: Final = re.compile(
    r"Phase profiling .*complete \| completed=\d+, cancelled=(\d+).* elapsed=([\d.]+)s"
)
NANOSECONDS: Final = 1e9
CODES: Final = {
    "ClientConnectorError": "connect",
    "ClientPayloadError": "disconnected",
    "ClientOSError": "disconnected",
    "ServerDisconnectedError": "disconnected",
    "InvalidInferenceResultError": "malformed",
    "TimeoutError": "timeout",
    "ServerTimeoutError": "timeout",
    "SocketTimeoutError": "timeout",
}


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The measured part of a level, by the log."""

    cancelled: int
    seconds: float


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    session_num: int
    benchmark_phase: str
    request_start_ns: int
    request_end_ns: int
    credit_issued_ns: int | None = None
    conversation_id: str | None = None
    x_correlation_id: str | None = None
    turn_index: int | None = None


class _Times(msgspec.Struct, frozen=True):
    value: tuple[float, ...]


class _Number(msgspec.Struct, frozen=True):
    value: float
    unit: str


class _Metrics(msgspec.Struct, frozen=True, kw_only=True):
    time_to_first_token: _Number | None = None
    request_latency: _Number | None = None
    usage_prompt_tokens: _Number | None = None
    usage_completion_tokens: _Number | None = None
    usage_prompt_cache_read_tokens: _Number | None = None
    inter_chunk_latency: _Times | None = None


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    code: int | None = None
    type: str | None = None


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Metadata
    metrics: _Metrics = _Metrics()
    error: _Error | None = None


_decoder: Final = msgspec.json.Decoder(_Line)


def says_started(line: str) -> bool:
    """True if the line says that the measured part of the level begins."""
    return _STARTED.search(line) is not None


def read_end(line: str) -> Ended | None:
    """Return the end that the line reports; None if it reports something else."""
    match = _ENDED.search(line)
    return None if match is None else Ended(cancelled=int(match[1]), seconds=float(match[2]))


def read_level(
    lines: Iterable[bytes],
    ended: Ended,
    *,
    scenario: str,
    load: Load,
    sizes: Sequence[RequestSize],
    spec: BenchmarkSpec,
    began_at: datetime,
) -> tuple[LevelResult, PromptTokens]:
    """The level of `profile_export.jsonl`; `sizes` are those asked for, of the measured requests or
    of all conversations.

    `began_at` counts where no request ended. Raises DamagedResult.
    """
    measured = [
        line for line in map(_decode_line, lines) if line.metadata.benchmark_phase == "profiling"
    ]
    origin = measured[0].metadata.request_start_ns if measured else None
    requests = _Requests(sizes, spec.turns)
    records = [
        _record(line, origin or 0, requests)
        for line in sorted(measured, key=lambda line: line.metadata.request_start_ns)
    ]
    first = min((record.sent for record in records), default=0.0)
    outcome = LevelOutcome(
        load=load,
        records=records,
        lags=[],
        started_at=began_at
        if origin is None
        else datetime.fromtimestamp(origin / NANOSECONDS + first, UTC),
        started=first,
        # Its closed loop ends with the last request that it was to send, and the rest is answered.
        window_ends=None if records else first + ended.seconds,
        in_flight_mean=None,
        rate_per_s=0.0,
        sent_in_all=len(records) + ended.cancelled,
    )
    level = with_unanswered(measured_level_result(scenario, outcome, spec), ended.cancelled)
    return level, requests.prompts


def _decode_line(line: bytes) -> _Line:
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise DamagedResult(f"expected a request of AIPerf: {error}") from error


@dataclass(slots=True)
class _Requests:
    """What requests were to be, read in the order in which they were sent."""

    sizes: Sequence[RequestSize]
    turns: int
    prompts: PromptTokens = field(default_factory=PromptTokens)
    _history_tokens: dict[str, int] = field(default_factory=dict)  # by run of a conversation

    def size(self, metadata: _Metadata) -> RequestSize:
        number = metadata.session_num
        if self.turns > 1:
            try:
                number = int(metadata.conversation_id or "") * self.turns + self._turn(metadata) - 1
            except ValueError as error:
                raise DamagedResult(f"expected a conversation's number: {error}") from error
        if not 0 <= number < len(self.sizes):
            raise DamagedResult(
                f"expected at most {len(self.sizes)} requests, found number {number + 1}"
            )
        return self.sizes[number]

    def place(self, metadata: _Metadata) -> tuple[int | None, int]:
        """The turn, and the tokens of all before it."""
        if self.turns == 1:
            return None, 0
        return self._turn(metadata), self._history_tokens.get(metadata.x_correlation_id or "", 0)

    def count_answer(self, metadata: _Metadata, sample: RequestSample) -> None:
        self.prompts.add(sample)
        if self.turns > 1:
            self._history_tokens[metadata.x_correlation_id or ""] = sample.total_tokens

    def _turn(self, metadata: _Metadata) -> int:
        return 1 + (metadata.turn_index or 0)


def _record(line: _Line, origin: int, requests: _Requests) -> Record:
    metadata = line.metadata
    sent = (metadata.request_start_ns - origin) / NANOSECONDS
    seconds = (metadata.request_end_ns - metadata.request_start_ns) / NANOSECONDS
    outcome = _outcome(line, seconds, requests.size(metadata), *requests.place(metadata))
    if isinstance(outcome, RequestSample):
        seconds = outcome.e2e_latency
        requests.count_answer(metadata, outcome)
    issued = metadata.credit_issued_ns or metadata.request_start_ns
    late_seconds = max(0.0, (metadata.request_start_ns - issued) / NANOSECONDS)
    return Record(sent, sent + seconds, late_seconds, outcome)


def _outcome(
    line: _Line, seconds: float, size: RequestSize, turn: int | None, history_tokens: int
) -> RequestSample | FailedRequest:
    first, latency = line.metrics.time_to_first_token, line.metrics.request_latency
    if line.error is not None:
        return FailedRequest(code=_code(line.error), seconds=seconds)
    if first is None or latency is None:
        return FailedRequest(code="malformed", seconds=seconds)
    return _sample(line.metrics, _seconds(first), _seconds(latency), size, turn, history_tokens)


def _code(error: _Error) -> str:
    if error.code is not None:
        return str(error.code)
    return CODES.get(error.type or "", "protocol")


def _sample(
    metrics: _Metrics,
    ttft: float,
    latency: float,
    size: RequestSize,
    turn: int | None,
    history_tokens: int,
) -> RequestSample:
    prompt, completion = metrics.usage_prompt_tokens, metrics.usage_completion_tokens
    cached = metrics.usage_prompt_cache_read_tokens
    if prompt is not None and completion is not None:
        counts = int(prompt.value), int(completion.value)
    else:
        gaps = metrics.inter_chunk_latency
        counts = history_tokens + size.num_input_tokens, 1 + (len(gaps.value) if gaps else 0)
    return RequestSample(
        ttft=ttft,
        e2e_latency=latency,
        num_input_tokens=counts[0],
        num_output_tokens=counts[1],
        tokens_estimated=prompt is None or completion is None,
        turn=turn,
        reusable_tokens=history_tokens or len(size.prefix_words),
        cached_tokens=None if cached is None else int(cached.value),
    )


def _seconds(number: _Number) -> float:
    if number.unit != "ms":
        raise DamagedResult(f"expected a time in ms, found {number.unit!r}")
    return number.value / 1000
