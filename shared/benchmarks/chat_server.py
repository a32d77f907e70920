"""An OpenAI-compatible server: what it serves, and one request at a time."""

import asyncio
import io
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec

from schemas.task.modality import Modality
from shared.benchmarks.builtin.chat_stream import ChatStream, MalformedStream
from shared.benchmarks.builtin.conversation import Conversation, sample_of
from shared.benchmarks.chat_answers import (
    Completion,
    ModelList,
    ServedModel,
    ServerProperties,
    TokenList,
)
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.request_body import PATHS, make_body, takes_long
from shared.benchmarks.tools.adapter import ModelNotServed, ServerUnreachable
from shared.benchmarks.traffic import PREFLIGHT_SIZE, RequestSize
from shared.benchmarks.whole_answers import MalformedAnswer, read_whole_answer
from shared.tls.contexts import trusting
from shared.waiting import within

JSON_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}
PATIENT_TRIES: Final = 3
LARGE_BODY_BYTES: Final = 2**20
MAX_ANSWER_BYTES: Final = 8 * 2**20
MAX_WHOLE_ANSWER_BYTES: Final = 256 * 2**20  # a thousand vectors, as text
MAX_REASON_BYTES: Final = 500  # of a refusal
SHORTEST_PREFLIGHT_SECONDS: Final = 60.0
_ANSWERS: Final = {
    Modality.TEXT: "one streamed completion",
    Modality.IMAGES: "one streamed completion about an image",
    Modality.EMBEDDINGS: "embeddings (/v1/embeddings)",
    Modality.RERANK: "a ranking of documents (/v1/rerank)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """Deadlines of a connection, of a whole request, and of what a level leaves behind.

    Requests in flight when a level's time is over get `drain` to finish; the rest are timeouts.
    """

    connect_seconds: float = 10.0
    request_seconds: float = 900.0
    drain_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """Why a request gave no sample: an HTTP status, or a word for what went wrong below HTTP.

    `detail` says what of the answer was malformed.
    """

    code: str
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class ChatServer:
    """One server; owns the HTTP session while entered. `parameters` go into every request. With
    `adapters` each conversation is with one of them instead of the model.

    With a `certificate`, a file, the server has to show that one; its name does not matter then.
    """

    base_url: str
    model_name: str
    api_key: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    adapters: tuple[str, ...] = ()
    limits: LoadLimits = field(default_factory=LoadLimits)
    _session: aiohttp.ClientSession = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.base_url = self.base_url.rstrip("/")

    async def __aenter__(self) -> Self:
        # One connection per request, as genai-bench does: a server that closes an idle connection
        # just when the next request is sent would otherwise look like a failing one.
        authorization = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, force_close=True, ssl=trusting(self.certificate)
            ),
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
        for adapter in self.adapters:
            if adapter not in served:
                raise ModelNotServed(
                    f"expected the adapter {adapter!r} at {self.base_url}, which serves"
                    f" {sorted(served)}"
                )
        return served[self.model_name]

    async def list_models(self) -> list[str]:
        """Return the names of the models that are served. Raises ServerUnreachable."""
        return [model.id for model in await self._models()]

    async def only_model(self) -> str:
        """The name of the one model that is served. Raises ServerUnreachable and ModelNotServed."""
        names = await self.list_models()
        if len(names) != 1:
            raise ModelNotServed(f"expected one model at {self.base_url}, found {sorted(names)}")
        return names[0]

    async def model_file(self) -> str | None:
        """The file that llama.cpp's server says it serves; None from other servers."""
        try:
            _, body = await self._get(f"{self.base_url}/props", "properties")
            return msgspec.json.decode(body, type=ServerProperties).model_path
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

    async def check_answer(
        self, level_seconds: float, size: RequestSize = PREFLIGHT_SIZE
    ) -> RequestSample:
        """Send one request, within a level's time or, where that is less, a minute.

        Raises ServerUnreachable if that fails.
        """
        deadline_seconds = max(SHORTEST_PREFLIGHT_SECONDS, level_seconds)
        outcome = await self.request(size, random.Random(0), deadline_seconds)  # noqa: S311  # no secret
        if isinstance(outcome, RequestFailed):
            raise ServerUnreachable(
                f"expected {_ANSWERS[size.modality]} of {self.model_name!r} from {self.base_url}, "
                f"got {outcome.code}{f': {outcome.detail}' if outcome.detail else ''}"
            )
        return outcome

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
                if size.modality.has_tokens:
                    return await self._stream(body, size, conversation)
                return await self._ask_whole(body, size, conversation)
        except TimeoutError:
            return RequestFailed(code="timeout")
        except (MalformedStream, MalformedAnswer, ServerUnreachable) as error:
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
        if self.adapters and not conversation.adapter:
            conversation.adapter = own_rng.choice(self.adapters)
        model_name = conversation.adapter or self.model_name

        def made() -> bytes:
            return make_body(size, own_rng, conversation, model_name, self.parameters)

        return await asyncio.to_thread(made) if takes_long(size, conversation) else made()

    async def answer(self, prompt: str, max_tokens: int, deadline_seconds: float) -> str | None:
        """The greedy answer to one prompt, thoughts included; None: there was none in time."""
        messages = [{"role": "user", "content": prompt}]
        greedy = {"temperature": 0, "seed": 0}
        try:
            return (await self.complete(messages, max_tokens, deadline_seconds, greedy)).text
        except ServerUnreachable:
            return None

    async def complete(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        deadline_seconds: float,
        parameters: Mapping[str, Any],
    ) -> Completion:
        """Return the answer to a conversation. Raises ServerUnreachable where none came in time."""
        limits = {"model": self.model_name, "messages": messages, "max_tokens": max_tokens}
        url = f"{self.base_url}/v1/chat/completions"
        data = msgspec.json.encode({**self.parameters, **limits, **parameters})
        try:
            async with (
                within(deadline_seconds),
                self._session.post(url, data=data, allow_redirects=False) as response,
            ):
                body = await _read_bounded(response, url)
                if response.status != 200:
                    text = body[:MAX_REASON_BYTES].decode(errors="replace")
                    raise ServerUnreachable(f"{url} answered {response.status}: {text}")
                completion = msgspec.json.decode(body, type=Completion)
        except TimeoutError as error:
            raise ServerUnreachable(f"no answer of {url} in {deadline_seconds:g} s") from error
        except (aiohttp.ClientError, msgspec.DecodeError) as error:
            raise ServerUnreachable(f"expected a completion from {url}, got {error!r}") from error
        if not completion.choices:
            raise ServerUnreachable(f"{url} answered without a choice")
        return completion

    async def count_tokens(self, text: str) -> int | None:
        """Return the tokens of a text as the engine counts them; None where it does not."""
        # vLLM and SGLang read the prompt, llama.cpp the content.
        texts = {"prompt": text, "content": text}
        body = msgspec.json.encode(
            {"model": self.model_name, "add_special_tokens": False, "add_special": False, **texts}
        )
        url = f"{self.base_url}/tokenize"
        try:
            async with (
                within(self.limits.connect_seconds),
                self._session.post(url, data=body, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    return None
                answer = msgspec.json.decode(await _read_bounded(response, url), type=TokenList)
        except (TimeoutError, aiohttp.ClientError, ServerUnreachable, msgspec.DecodeError):
            return None
        return len(answer.tokens) if answer.count is None else answer.count

    async def _stream(
        self, body: bytes, size: RequestSize, conversation: Conversation
    ) -> RequestSample | RequestFailed:
        stream = ChatStream(keeps_text=not conversation.is_last_turn)
        # Sent in pieces, as one piece a large body would hold up everything else.
        data = io.BytesIO(body) if len(body) >= LARGE_BODY_BYTES else body
        started = time.perf_counter()
        async with self._session.post(
            f"{self.base_url}{PATHS[size.modality]}", data=data, allow_redirects=False
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
        sample = sample_of(stream, started, size, conversation)
        conversation.answer(stream.text, sample)
        return sample

    async def _ask_whole(
        self, body: bytes, size: RequestSize, conversation: Conversation
    ) -> RequestSample | RequestFailed:
        url = f"{self.base_url}{PATHS[size.modality]}"
        data = io.BytesIO(body) if len(body) >= LARGE_BODY_BYTES else body
        started = time.perf_counter()
        async with self._session.post(url, data=data, allow_redirects=False) as response:
            if response.status != 200:
                body = await _read_bounded(response, url)
                reason = body[:MAX_REASON_BYTES].decode(errors="replace")
                return RequestFailed(code=str(response.status), detail=reason)
            content = await _read_bounded(response, url, MAX_WHOLE_ANSWER_BYTES)
        sample = read_whole_answer(content, size, time.perf_counter() - started)
        conversation.answer("", sample)
        return sample

    async def metrics_page(self, path: str = "/metrics") -> str | None:
        """Return the server's Prometheus page; None where it has none."""
        try:
            status, body = await self._get(f"{self.base_url}{path}", "metrics")
        except ServerUnreachable:
            return None
        return body.decode(errors="replace") if status == 200 else None

    async def document(self, path: str) -> dict[str, Any]:
        """Return a JSON object of the server's; an empty one where there is none."""
        try:
            status, body = await self._get(f"{self.base_url}{path}", "a JSON object")
            return msgspec.json.decode(body, type=dict[str, Any]) if status == 200 else {}
        except (ServerUnreachable, msgspec.DecodeError):
            return {}

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
            return msgspec.json.decode(body, type=ModelList).data
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


async def _read_bounded(
    response: aiohttp.ClientResponse, url: str, most_bytes: int = MAX_ANSWER_BYTES
) -> bytes:
    """The body, unless it is larger than any that is wanted: a server may send without an end."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most_bytes:
            raise ServerUnreachable(f"expected at most {most_bytes >> 20} MiB from {url}, got more")
    return bytes(body)
