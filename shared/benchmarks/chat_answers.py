"""What an OpenAI-compatible server answers whole, as far as it is read here."""

from typing import Any

import msgspec


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the server lists it. `root` is where it took it from; vLLM and SGLang say so."""

    id: str
    simulated: bool = False
    owned_by: str | None = None
    root: str | None = None


class ModelList(msgspec.Struct, frozen=True):
    """What is served."""

    data: list[ServedModel]


class ServerProperties(msgspec.Struct, frozen=True):
    """What llama.cpp's server says of itself."""

    model_path: str | None = None


class TokenList(msgspec.Struct, frozen=True):
    """The tokens of a text; vLLM counts them too."""

    tokens: list[Any]
    count: int | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def text(self) -> str:
        return (self.reasoning_content or self.reasoning or "") + (self.content or "")


class _Answer(msgspec.Struct, frozen=True):
    message: _Message


class _CompletionUsage(msgspec.Struct, frozen=True):
    completion_tokens: int | None = None


class Completion(msgspec.Struct, frozen=True):
    """An answer that came whole."""

    choices: list[_Answer]
    usage: _CompletionUsage | None = None

    @property
    def text(self) -> str:
        """The answer, its thoughts before it."""
        return self.choices[0].message.text
