"""What AIPerf writes down about its requests, as a level.

Its aggregates are not read: figures are computed of each request, by the rules of the built-in
generator. Requests that it cancelled when the time was over are in none of its files but the log.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkSpec, LevelResult
from shared.benchmarks.aiperf.command import Plan
from shared.benchmarks.levels.measured_level import (
    LevelOutcome,
    PromptTokens,
    Record,
    make_measured_level,
)
from shared.benchmarks.metrics import FailedRequest, RequestSample, with_unanswered
from shared.benchmarks.tools.adapter import DamagedResult
from shared.benchmarks.traffic import RequestSize
from shared.traces.prefixes import Prefixes

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
    plan: Plan,
    spec: BenchmarkSpec,
    began_at: datetime,
) -> tuple[LevelResult, PromptTokens]:
    """The level of `profile_export.jsonl`; `plan` is of the measured requests or of all
    conversations.

    `began_at` counts where no request ended. Raises DamagedResult.
    """
    measured = [
        line for line in map(_decode_line, lines) if line.metadata.benchmark_phase == "profiling"
    ]
    origin = measured[0].metadata.request_start_ns if measured else None
    requests = _Requests(plan)
    records = [
        _record(line, origin or 0, requests)
        for line in sorted(measured, key=lambda line: line.metadata.request_start_ns)
    ]
    first = min((record.sent for record in records), default=0.0)
    outcome = LevelOutcome(
        load=plan.load,
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
    level = with_unanswered(make_measured_level(scenario, outcome, spec), ended.cancelled)
    return level, requests.prompts


def _decode_line(line: bytes) -> _Line:
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise DamagedResult(f"expected a request of AIPerf: {error}") from error


@dataclass(slots=True)
class _Requests:
    """What requests were to be, read in the order in which they were sent."""

    plan: Plan
    prompts: PromptTokens = field(default_factory=PromptTokens)
    _history_tokens: dict[str, int] = field(default_factory=dict)  # by run of a conversation
    _prefixes: Prefixes = field(default_factory=Prefixes)

    def size(self, metadata: _Metadata) -> RequestSize:
        return self.plan.sizes[self._number(metadata)]

    def _number(self, metadata: _Metadata) -> int:
        number, count = metadata.session_num, len(self.plan.sizes)
        if self.plan.conversations:
            try:
                conversation = int(metadata.conversation_id or "")
            except ValueError as error:
                raise DamagedResult(f"expected a conversation's number: {error}") from error
            conversations = self.plan.conversations
            if not 0 <= conversation < len(conversations):
                raise DamagedResult(
                    f"expected at most {len(conversations)} conversations, found number "
                    f"{conversation + 1}"
                )
            number = conversations[conversation] + self._turn(metadata) - 1
        if not 0 <= number < count:
            raise DamagedResult(f"expected at most {count} requests, found number {number + 1}")
        return number

    def place(self, metadata: _Metadata) -> tuple[int | None, int]:
        """The turn, and the tokens of all before it."""
        if not self.plan.conversations:
            return None, 0
        return self._turn(metadata), self._history_tokens.get(metadata.x_correlation_id or "", 0)

    def count_new_share(self, metadata: _Metadata) -> float | None:
        """Keep the prompt of a trace, and return how much of its own text came before; None of
        other requests.
        """
        if not self.plan.script:
            return None
        if self._turn(metadata) > 1:
            return 0.0  # no other conversation has had this one's answers
        # The file that AIPerf was given has the same words wherever a block comes.
        size = self.size(metadata)
        shared_words, _ = self._prefixes.count(size.blocks)
        return shared_words / size.num_words

    def count_answer(self, metadata: _Metadata, sample: RequestSample) -> None:
        turn = self.plan.script[self._number(metadata)] if self.plan.script else None
        self.prompts.add(sample, turn)
        if self.plan.conversations:
            self._history_tokens[metadata.x_correlation_id or ""] = sample.total_tokens

    def _turn(self, metadata: _Metadata) -> int:
        return 1 + (metadata.turn_index or 0)


def _record(line: _Line, origin: int, requests: _Requests) -> Record:
    metadata = line.metadata
    sent = (metadata.request_start_ns - origin) / NANOSECONDS
    seconds = (metadata.request_end_ns - metadata.request_start_ns) / NANOSECONDS
    new_share = requests.count_new_share(metadata)
    outcome = _outcome(line, seconds, requests.size(metadata), *requests.place(metadata))
    if isinstance(outcome, RequestSample) and new_share is not None:
        outcome = _with_new_share(outcome, new_share)
    if isinstance(outcome, RequestSample):
        seconds = outcome.e2e_latency
        requests.count_answer(metadata, outcome)
    issued = metadata.credit_issued_ns or metadata.request_start_ns
    late_seconds = max(0.0, (metadata.request_start_ns - issued) / NANOSECONDS)
    return Record(sent, sent + seconds, late_seconds, outcome)


def _with_new_share(sample: RequestSample, new_share: float) -> RequestSample:
    """Return the sample of a prompt of which so much came before, but for its history."""
    new_tokens = max(0, sample.num_input_tokens - sample.reusable_tokens)
    reusable_tokens = sample.reusable_tokens + round(new_share * new_tokens)
    return replace(sample, reusable_tokens=min(sample.num_input_tokens, reusable_tokens))


def _outcome(
    line: _Line, seconds: float, size: RequestSize, turn: int | None, history_tokens: int
) -> RequestSample | FailedRequest:
    first, latency = line.metrics.time_to_first_token, line.metrics.request_latency
    if line.error is not None:
        return FailedRequest(code=_code(line.error), seconds=seconds)
    if latency is not None and not size.modality.has_tokens:
        return _whole_sample(line.metrics, _seconds(latency), size)
    if first is None or latency is None:
        return FailedRequest(code="malformed", seconds=seconds)
    return _sample(line.metrics, _seconds(first), _seconds(latency), size, turn, history_tokens)


def _whole_sample(metrics: _Metrics, latency: float, size: RequestSize) -> RequestSample:
    """It reads no token counts of answers that come whole."""
    prompt = metrics.usage_prompt_tokens
    return RequestSample(
        e2e_latency=latency,
        num_input_tokens=size.num_input_tokens if prompt is None else int(prompt.value),
        tokens_estimated=prompt is None,
    )


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
    gaps = metrics.inter_chunk_latency
    pieces = 1 + (len(gaps.value) if gaps else 0)
    if prompt is not None and completion is not None:
        counts = int(prompt.value), int(completion.value)
    else:
        counts = history_tokens + size.num_input_tokens, pieces
    # It says how many pieces came, and of none how large it was.
    first_tokens = max(1, round(counts[1] / pieces)) if counts[1] > pieces + 1 else 1
    return RequestSample(
        ttft=ttft,
        e2e_latency=latency,
        num_input_tokens=counts[0],
        num_output_tokens=counts[1],
        tokens_estimated=prompt is None or completion is None,
        turn=turn,
        reusable_tokens=history_tokens or len(size.prefix_words),
        cached_tokens=None if cached is None else int(cached.value),
        num_first_tokens=min(first_tokens, max(1, counts[1] - 1)),
    )


def _seconds(number: _Number) -> float:
    if number.unit != "ms":
        raise DamagedResult(f"expected a time in ms, found {number.unit!r}")
    return number.value / 1000
