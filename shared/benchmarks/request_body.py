"""The body of a request, and where it is sent."""

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from schemas.task.modality import Modality
from shared.benchmarks.builtin.conversation import Conversation
from shared.benchmarks.images import draw_image_url
from shared.benchmarks.traffic import RequestSize, chat_body, draw_pieces
from shared.benchmarks.whole_answers import whole_body

LONG_PROMPT_TOKENS: Final = 20_000  # about 3 ms of work
LARGE_IMAGE_PIXELS: Final = 300_000  # of all of a request, about as much
PATHS: Final[Mapping[Modality, str]] = {
    Modality.TEXT: "/v1/chat/completions",
    Modality.IMAGES: "/v1/chat/completions",
    Modality.EMBEDDINGS: "/v1/embeddings",
    Modality.RERANK: "/v1/rerank",
}


def make_body(
    size: RequestSize,
    rng: random.Random,
    conversation: Conversation,
    model_name: str,
    parameters: Mapping[str, Any],
) -> bytes:
    """Return the next request of the conversation, which says it."""
    if not size.modality.has_tokens:
        return msgspec.json.encode(whole_body(model_name, size, parameters, rng))
    images = size.num_items if size.modality is Modality.IMAGES else 0
    urls = [draw_image_url(size.image_size, rng) for _ in range(images)]
    conversation.ask(draw_pieces(size, rng), urls)
    body = chat_body(model_name, conversation.messages, size.num_output_tokens, parameters)
    return msgspec.json.encode(body)


def takes_long(size: RequestSize, conversation: Conversation) -> bool:
    """Return whether making it would hold up other requests."""
    width, height = size.image_size
    if size.num_items * width * height >= LARGE_IMAGE_PIXELS:
        return True
    return conversation.history_tokens + size.num_input_tokens >= LONG_PROMPT_TOKENS
