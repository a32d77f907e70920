"""Requests whose answer comes whole: embeddings, and documents ranked for a query.

Their forms are those that vLLM, SGLang, llama.cpp, Cohere and Jina share: `/v1/embeddings` is
OpenAI's, `/v1/rerank` has no owner, and answers differ.
"""

import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from schemas.task.modality import Modality
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.traffic import RequestSize, make_prompt


class MalformedAnswer(Exception):
    """The answer is not what was asked for; its text says why."""


def whole_body(
    model_name: str, size: RequestSize, parameters: Mapping[str, Any], rng: random.Random
) -> dict[str, Any]:
    """Return the request of embeddings or of rerank."""
    texts = [make_prompt(size.item_tokens, rng) for _ in range(size.num_items)]
    if size.modality is Modality.EMBEDDINGS:
        return {"encoding_format": "float", **parameters, "model": model_name, "input": texts}
    query = make_prompt(size.query_tokens, rng)
    return {**parameters, "model": model_name, "query": query, "documents": texts}


class _Usage(msgspec.Struct, frozen=True):
    """Tokens of a request; some servers tell the total alone."""

    prompt_tokens: float | None = None
    total_tokens: float | None = None

    @property
    def input_tokens(self) -> int | None:
        tokens = self.total_tokens if self.prompt_tokens is None else self.prompt_tokens
        return None if tokens is None else int(tokens)


class _Embeddings(msgspec.Struct, frozen=True):
    data: list[msgspec.Raw]
    usage: _Usage | None = None


class _RankMeta(msgspec.Struct, frozen=True):
    prompt_tokens: float | None = None


class _Rank(msgspec.Struct, frozen=True):
    index: int
    meta_info: _RankMeta | None = None


class _Ranking(msgspec.Struct, frozen=True):
    results: list[_Rank]
    usage: _Usage | None = None


_read_embeddings: Final = msgspec.json.Decoder(_Embeddings)
_read_ranking: Final = msgspec.json.Decoder(_Ranking | list[_Rank])


def read_whole_answer(content: bytes, size: RequestSize, seconds: float) -> RequestSample:
    """Return the sample of a request that took so long. Raises MalformedAnswer for an answer that
    has not one result for each item.
    """
    try:
        if size.modality is Modality.EMBEDDINGS:
            embeddings = _read_embeddings.decode(content)
            count, usage = len(embeddings.data), embeddings.usage
            tokens = usage.input_tokens if usage is not None else None
        else:
            count, tokens = _read_ranks(content)
    except msgspec.DecodeError as error:
        raise MalformedAnswer(str(error)) from error
    if count != size.num_items:
        items = size.modality.traits.items
        raise MalformedAnswer(
            f"expected a result for each of {size.num_items} {items}, got {count}"
        )
    return RequestSample(
        e2e_latency=seconds,
        num_input_tokens=size.num_input_tokens if tokens is None else tokens,
        tokens_estimated=tokens is None,
    )


def _read_ranks(content: bytes) -> tuple[int, int | None]:
    """Return how many documents were ranked, and the tokens read; SGLang lists them bare, and
    tells of each.
    """
    ranking = _read_ranking.decode(content)
    ranks = ranking if isinstance(ranking, list) else ranking.results
    if isinstance(ranking, _Ranking) and ranking.usage is not None:
        tokens = ranking.usage.input_tokens
        if tokens is not None:
            return len(ranks), tokens
    counts = [
        rank.meta_info.prompt_tokens
        for rank in ranks
        if rank.meta_info is not None and rank.meta_info.prompt_tokens is not None
    ]
    return len(ranks), int(sum(counts)) if counts and len(counts) == len(ranks) else None
