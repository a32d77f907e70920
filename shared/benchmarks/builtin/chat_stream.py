"""What arrives on a streamed chat completion, and what it says about one request."""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from shared.errors import StewardError

MAX_LINE_BYTES: Final = 4 * 2**20
MAX_EVENT_LINES: Final = 10_000
DONE: Final = b"[DONE]"
PIECE_SLACK: Final = 0.1  # of an answer's tokens that no piece shows, such as its end


class MalformedStream(StewardError):
    """The server sent something that is not a chat-completions stream."""


@dataclass(slots=True)
class EventParser:
    """Server-sent events out of chunks that may end anywhere, even inside a character.

    Lines end in LF, CR or CRLF. Comments and fields other than `data` are skipped. An event that
    the stream's end cuts off is never reported.
    """

    _tail: bytes = b""
    _data: list[bytes] = field(default_factory=list)
    _data_bytes: int = 0
    _skips_line_feed: bool = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that `chunk` completes. Raises MalformedStream."""
        if self._skips_line_feed and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if not chunk:
            return []
        self._skips_line_feed = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._tail = (self._tail + chunk).split(b"\n")
        if len(self._tail) > MAX_LINE_BYTES:
            raise MalformedStream(f"a line of more than {MAX_LINE_BYTES} bytes")
        events: list[bytes] = []
        for line in lines:
            if not line:
                self._dispatch(events)
            elif line.startswith(b"data:"):
                self._keep(line[6:] if line[5:6] == b" " else line[5:])
        return events

    def _keep(self, data: bytes) -> None:
        self._data.append(data)
        self._data_bytes += len(data)
        if self._data_bytes > MAX_LINE_BYTES or len(self._data) > MAX_EVENT_LINES:
            raise MalformedStream(
                f"an event of more than {MAX_LINE_BYTES} bytes or {MAX_EVENT_LINES} lines"
            )

    def _dispatch(self, events: list[bytes]) -> None:
        if self._data:
            events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
            self._data.clear()
            self._data_bytes = 0


class Delta(msgspec.Struct, frozen=True, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(msgspec.Struct, frozen=True, gc=False):
    delta: Delta | None = None
    finish_reason: str | None = None


class PromptTokensDetails(msgspec.Struct, frozen=True, gc=False):
    cached_tokens: float | None = None


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of a whole answer; `cached_tokens` None: the server does not say."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


class ReportedUsage(msgspec.Struct, frozen=True, gc=False):
    """What a chunk says of tokens. Servers and proxies leave out parts until the last chunk, write
    null for them, or count in floats.
    """

    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    prompt_tokens_details: PromptTokensDetails | None = None

    def whole(self) -> Usage | None:
        """Return it if it tells both counts; None: it says too little to count."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        details = self.prompt_tokens_details
        cached = details.cached_tokens if details is not None else None
        return Usage(
            prompt_tokens=int(self.prompt_tokens),
            completion_tokens=int(self.completion_tokens),
            cached_tokens=int(cached) if cached is not None else None,
        )


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """The measured part of a `chat.completion.chunk`; an error may come in its place."""

    choices: list[Choice] | None = None
    usage: ReportedUsage | None = None
    error: object = None
    object: str = ""


_decoder: Final = msgspec.json.Decoder(Chunk)


@dataclass(slots=True)
class ChatStream:
    """One request's answer as it arrives. Times are whatever clock `feed` is given. `text`, without
    thoughts, stays empty unless it `keeps_text`.
    """

    keeps_text: bool = False
    first_content_at: float | None = None
    finished_at: float | None = None
    content_chunks: int = 0
    first_characters: int = 0
    characters: int = 0
    usage: Usage | None = None
    _text: list[str] = field(default_factory=list)
    _is_finished: bool = False
    _is_failed: bool = False
    _events: EventParser = field(default_factory=EventParser)

    def count_first_tokens(self, num_output_tokens: int) -> int:
        """Return how many of the answer's tokens its first piece had, by its share of the text: 1
        where each piece has been a token.
        """
        if num_output_tokens - self.content_chunks <= max(1, PIECE_SLACK * num_output_tokens):
            return 1
        share = self.first_characters / self.characters
        return max(1, min(num_output_tokens - 1, round(share * num_output_tokens)))

    @property
    def text(self) -> str:
        return "".join(self._text)

    def feed(self, chunk: bytes, now: float) -> None:
        """Take what arrived at `now`. Raises MalformedStream."""
        for data in self._events.feed(chunk):
            if self.finished_at is not None:
                return
            if data == DONE:
                self.finished_at = now
            else:
                self._take(data, now)

    def close(self, now: float) -> str | None:
        """The stream has ended at `now`: why the request failed, None if it did not.

        A stream without its end marker is complete only if the server said why generation finished.
        """
        if self._is_failed:
            return "server_error"
        if self.finished_at is None:
            if not self._is_finished:
                return "truncated"
            self.finished_at = now
        return None if self.content_chunks else "empty"

    def _take(self, data: bytes, now: float) -> None:
        try:
            chunk = _decoder.decode(data)
        except msgspec.DecodeError as error:
            raise MalformedStream(str(error)) from error
        if chunk.error is not None or chunk.object == "error":
            self._is_failed = True
        if chunk.usage is not None:
            self.usage = chunk.usage.whole() or self.usage
        for choice in chunk.choices or ():
            if choice.finish_reason is not None:
                self._is_finished = True
            delta = choice.delta
            text = delta and (delta.content or delta.reasoning_content or delta.reasoning)
            if delta and text:
                self.content_chunks += 1
                self.characters += len(text)
                if self.keeps_text and delta.content:
                    self._text.append(delta.content)
                if self.first_content_at is None:
                    self.first_content_at = now
                    self.first_characters = len(text)
