"""What the simulated engine is asked, and what it answers whole; tokens are words."""

from typing import Any, Final, Protocol

import msgspec

NATURAL_LENGTH_TOKENS: Final = 64
DEFAULT_MAX_TOKENS: Final = 128
IMAGE_TOKENS: Final = 256  # of each, whatever its size
DIMENSIONS: Final = 16


class WholeRequest(Protocol):
    """A request that is answered at once, with a result for each of its items."""

    @property
    def prompt(self) -> list[str]: ...

    @property
    def num_items(self) -> int: ...

    def make_results(self) -> dict[str, Any]: ...


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class ImageUrl(msgspec.Struct, frozen=True):
    url: str


class ContentPart(msgspec.Struct, frozen=True):
    """A text or an image of a message."""

    type: str
    text: str = ""
    image_url: ImageUrl | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[ContentPart]

    @property
    def parts(self) -> list[ContentPart]:
        if isinstance(self.content, str):
            return [ContentPart(type="text", text=self.content)]
        return self.content


class ChatRequest(msgspec.Struct, frozen=True):
    """The part of a chat-completions body that changes a simulated answer."""

    messages: list[ChatMessage]
    max_tokens: int = DEFAULT_MAX_TOKENS
    stream: bool = False
    ignore_eos: bool = False
    stream_options: StreamOptions | None = None

    @property
    def prompt(self) -> list[str]:
        words: list[str] = []
        for message in self.messages:
            for part in message.parts:
                words += part.text.split()
                if part.image_url is not None:
                    # As unlike each other as the images are.
                    words += [part.image_url.url[-32:]] * IMAGE_TOKENS
        return words

    @property
    def num_items(self) -> int:
        """Return the number of its images."""
        return sum(
            part.image_url is not None for message in self.messages for part in message.parts
        )

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt)

    @property
    def completion_tokens(self) -> int:
        token_limit = max(1, self.max_tokens)
        return token_limit if self.ignore_eos else min(token_limit, NATURAL_LENGTH_TOKENS)

    @property
    def finish_reason(self) -> str:
        return "length" if self.completion_tokens == self.max_tokens else "stop"

    @property
    def usage(self) -> dict[str, int]:
        prompt, completion = self.prompt_tokens, self.completion_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }


class EmbeddingsRequest(msgspec.Struct, frozen=True):
    input: str | list[str]

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input

    @property
    def prompt(self) -> list[str]:
        return [word for text in self.texts for word in text.split()]

    @property
    def num_items(self) -> int:
        return len(self.texts)

    def make_results(self) -> dict[str, Any]:
        vector = [0.25] * DIMENSIONS
        data = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index in range(self.num_items)
        ]
        return {"object": "list", "data": data}


class RerankRequest(msgspec.Struct, frozen=True):
    query: str
    documents: list[str]

    @property
    def prompt(self) -> list[str]:
        """The query is read with each document."""
        query = self.query.split()
        return [word for text in self.documents for word in (*query, *text.split())]

    @property
    def num_items(self) -> int:
        return len(self.documents)

    def make_results(self) -> dict[str, Any]:
        ranks = [
            {"index": index, "relevance_score": 1 / (1 + index)} for index in range(self.num_items)
        ]
        return {"object": "list", "results": ranks}
