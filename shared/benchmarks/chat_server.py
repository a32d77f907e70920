"""An OpenAI-compatible server: what it serves, and one streamed chat completion at a time."""

import asyncio
import io
import random
import time
from dataclasses import dataclass, field
from typing import Any, Final, Self

import aiohttp
import msgspec

from shared.benchmarks.builtin.chat_stream import ChatStream, MalformedStream
from shared.benchmarks.builtin.conversation import Conversation
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.tools.adapter import ModelNotServed, ServerUnreachable
from shared.benchmarks.traffic import RequestSize, chat_body, draw_prompt
from shared.waiting import within

JSON_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}
PATIENT_TRIES: Final = 3
LONG_PROMPT_TOKENS: Final = 20_000  # about 3 ms of work
LARGE_BODY_BYTES: Final = 2**20
MAX_ANSWER_BYTES: Final = 8 * 2**20
SHORTEST_PREFLIGHT_SECONDS: Final = 60.0
PREFLIGHT_SIZE: Final = RequestSize(num_input_tokens=8, num_output_tokens=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """Deadlines of a connection, of a whole request, and of what a level leaves behind.

    Requests in flight when a level's time is over get `drain` to finish; the rest are timeouts.
    """

    connect_seconds: float = 10.0
    request_seconds: float = 900.0
    drain_seconds: float = 30.0


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the server lists it. `root` is where it took it from; vLLM and SGLang say so."""

    id: str
    simulated: bool = False
    owned_by: str | None = None
    root: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """Why a request gave no sample: an HTTP status, or a word for what went wrong below HTTP.

    `detail` says what of the answer was malformed.
    """

    code: str
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class ChatServer:
    """One server; owns the HTTP session while entered. `parameters` go into every request."""

    base_url: str
    model_name: str
    api_key: str | None = field(default=None, repr=False)
    parameters: dict[str, Any] = field(default_factory=dict)
    limits: LoadLimits = field(default_factory=LoadLimits)
    _session: aiohttp.ClientSession = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.base_url = self.base_url.rstrip("/")

    async def __aenter__(self) -> Self:
        # One connection per request, as genai-bench does: a server that closes an idle connection
        # just when the next request is sent would otherwise look like a failing one.
        authorization = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_seconds),
            headers=JSON_HEADERS | authorization,
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def check_health(self) -> None:
        """Raises ServerUnreachable if the server has a `/health` and it says that it is ill."""
        url = f"{self.base_url}/health"
        status, _ = await self._get(url, "an answer")
        if status >= 500:
            raise ServerUnreachable(f"expected a healthy server, got status {status} from {url}")

    async def find_model(self) -> ServedModel:
        """The wanted model as the server lists it. Raises ServerUnreachable and ModelNotServed.

        Some servers answer for any model's name, so its presence is checked before the load.
        """
        served = {model.id: model for model in await self._models()}
        if self.model_name not in served:
            raise ModelNotServed(
                f"expected {self.model_name!r} at {self.base_url}, which serves {sorted(served)}"
            )
        return served[self.model_name]

    async def only_model(self) -> str:
        """The name of the one model that is served. Raises ServerUnreachable and ModelNotServed."""
        names = [model.id for model in await self._models()]
        if len(names) != 1:
            raise ModelNotServed(f"expected one model at {self.base_url}, found {sorted(names)}")
        return names[0]

    async def model_file(self) -> str | None:
        """The file that llama.cpp's server says it serves; None from other servers."""
        try:
            _, body = await self._get(f"{self.base_url}/props", "properties")
            return msgspec.json.decode(body, type=_Properties).model_path
        except (ServerUnreachable, msgspec.DecodeError):
            return None

    async def answers(self) -> bool:
        """True if the server answers at all; a busy one is given time."""
        for _ in range(PATIENT_TRIES):
            try:
                await self._get(f"{self.base_url}/v1/models", "an answer")
                return True
            except ServerUnreachable as error:
                if isinstance(error.__cause__, aiohttp.ClientConnectorError):
                    return False
        return False

    async def check_completion(self, level_seconds: float) -> None:
        """Stream one short completion, within a level's time or, where that is less, a minute.

        Raises ServerUnreachable if that fails.
        """
        deadline_seconds = max(SHORTEST_PREFLIGHT_SECONDS, level_seconds)
        outcome = await self.request(PREFLIGHT_SIZE, random.Random(0), deadline_seconds)  # noqa: S311  # no secret
        if isinstance(outcome, RequestFailed):
            raise ServerUnreachable(
                f"expected one streamed completion of {self.model_name!r} from {self.base_url}, "
                f"got {outcome.code}{f': {outcome.detail}' if outcome.detail else ''}"
            )

    async def request(
        self,
        size: RequestSize,
        rng: random.Random,
        deadline_seconds: float,
        conversation: Conversation | None = None,
    ) -> RequestSample | RequestFailed:
        """Send one prompt of this size and read the answer to its end, within the deadline.

        It is the next turn of the conversation, which has it afterwards, with its answer.
        """
        conversation = conversation or Conversation()
        body = await self._body(size, rng, conversation)
        try:
            async with within(deadline_seconds):
                return await self._stream(body, size, conversation)
        except TimeoutError:
            return RequestFailed(code="timeout")
        except MalformedStream as error:
            return RequestFailed(code="malformed", detail=str(error))
        except aiohttp.ClientConnectorError:
            return RequestFailed(code="connect")
        except (aiohttp.ServerConnectionError, aiohttp.ClientOSError, aiohttp.ClientPayloadError):
            return RequestFailed(code="disconnected")
        except aiohttp.ClientError:
            return RequestFailed(code="protocol")

    async def _body(
        self, size: RequestSize, rng: random.Random, conversation: Conversation
    ) -> bytes:
        # Drawn here, since threads take turns with `rng` in no order that could be repeated.
        own_rng = random.Random(rng.getrandbits(64))  # noqa: S311  # repeatable, not secret

        def made() -> bytes:
            conversation.ask(draw_prompt(size, own_rng))
            body = chat_body(
                self.model_name, conversation.messages, size.num_output_tokens, self.parameters
            )
            return msgspec.json.encode(body)

        if conversation.history_tokens + size.num_input_tokens < LONG_PROMPT_TOKENS:
            return made()
        return await asyncio.to_thread(made)

    async def answer(self, prompt: str, max_tokens: int, deadline_seconds: float) -> str | None:
        """The greedy answer to one prompt, thoughts included; None: there was none in time."""
        body = {
            **self.parameters,
            "model": self.model_name,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "seed": 0,
        }
        url = f"{self.base_url}/v1/chat/completions"
        try:
            async with (
                within(deadline_seconds),
                self._session.post(
                    url, data=msgspec.json.encode(body), allow_redirects=False
                ) as response,
            ):
                if response.status != 200:
                    return None
                completion = msgspec.json.decode(
                    await _read_bounded(response, url), type=_Completion
                )
        except (TimeoutError, aiohttp.ClientError, ServerUnreachable, msgspec.DecodeError):
            return None
        return completion.choices[0].message.text if completion.choices else None

    async def _stream(
        self, body: bytes, size: RequestSize, conversation: Conversation
    ) -> RequestSample | RequestFailed:
        stream = ChatStream(keeps_text=not conversation.is_last_turn)
        # Sent in pieces, as one piece a large body would hold up everything else.
        data = io.BytesIO(body) if len(body) >= LARGE_BODY_BYTES else body
        started = time.perf_counter()
        async with self._session.post(
            f"{self.base_url}/v1/chat/completions", data=data, allow_redirects=False
        ) as response:
            if response.status != 200:
                return RequestFailed(code=str(response.status))
            async for chunk in response.content.iter_any():
                stream.feed(chunk, time.perf_counter())
                if stream.finished_at is not None:
                    break
            failure = stream.close(time.perf_counter())
        if failure is not None:
            return RequestFailed(code=failure)
        sample = _sample(stream, started, size, conversation)
        conversation.answer(stream.text, sample)
        return sample

    async def metrics_page(self) -> str | None:
        """Return the server's Prometheus page; None where it has none."""
        try:
            status, body = await self._get(f"{self.base_url}/metrics", "metrics")
        except ServerUnreachable:
            return None
        return body.decode(errors="replace") if status == 200 else None

    async def post(self, path: str) -> tuple[int, bytes] | None:
        """Status and body; None where nothing answered in time."""
        url = f"{self.base_url}{path}"
        try:
            async with (
                within(self.limits.connect_seconds),
                self._session.post(url, allow_redirects=False) as response,
            ):
                return response.status, await _read_bounded(response, url)
        except (TimeoutError, aiohttp.ClientError, ServerUnreachable):
            return None

    async def _models(self) -> list[ServedModel]:
        url = f"{self.base_url}/v1/models"
        status, body = await self._get(url, "a list of models")
        try:
            return msgspec.json.decode(body, type=_Models).data
        except msgspec.DecodeError as error:
            raise ServerUnreachable(
                f"expected a list of models from {url}, got status {status}: {error}"
            ) from error

    async def _get(self, url: str, expected: str) -> tuple[int, bytes]:
        try:
            async with (
                within(self.limits.connect_seconds),
                self._session.get(url, allow_redirects=False) as response,
            ):
                return response.status, await _read_bounded(response, url)
        except aiohttp.ClientConnectorError as error:
            cause = error.strerror or repr(error.os_error)
            raise ServerUnreachable(
                f"expected {expected} from {url}, where nothing answers: {cause}"
            ) from error
        except TimeoutError as error:
            raise ServerUnreachable(
                f"expected {expected} from {url} within {self.limits.connect_seconds:g} s"
            ) from error
        except aiohttp.ClientError as error:
            raise ServerUnreachable(f"expected {expected} from {url}, got {error!r}") from error


class _Models(msgspec.Struct, frozen=True):
    data: list[ServedModel]


class _Properties(msgspec.Struct, frozen=True):
    model_path: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def text(self) -> str:
        return (self.reasoning_content or self.reasoning or "") + (self.content or "")


class _Answer(msgspec.Struct, frozen=True):
    message: _Message


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Answer]


async def _read_bounded(response: aiohttp.ClientResponse, url: str) -> bytes:
    """The body, unless it is larger than any that is wanted: a server may send without an end."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise ServerUnreachable(
                f"expected at most {MAX_ANSWER_BYTES >> 20} MiB from {url}, got more"
            )
    return bytes(body)


def _sample(
    stream: ChatStream, started: float, size: RequestSize, conversation: Conversation
) -> RequestSample:
    first, last = stream.first_content_at, stream.finished_at
    if first is None or last is None:
        raise RuntimeError("a stream without content or end was taken for a complete one")
    usage, history_tokens = stream.usage, conversation.history_tokens
    return RequestSample(
        ttft=first - started,
        e2e_latency=last - started,
        num_input_tokens=history_tokens + size.num_input_tokens
        if usage is None
        else usage.prompt_tokens,
        num_output_tokens=stream.content_chunks if usage is None else usage.completion_tokens,
        tokens_estimated=usage is None,
        turn=conversation.turn if conversation.turns > 1 else None,
        reusable_tokens=history_tokens or len(size.prefix_words),
        cached_tokens=None if usage is None else usage.cached_tokens,
    )
