"""The size of a transformer, from its config.json."""

from typing import Final

import msgspec
from msgspec import Struct

from schemas.executor.model_shape import ModelShape

_MAX_WEIGHTS: Final = 10**14


class _Config(Struct, frozen=True):
    """By the names of the `transformers` library; a model of several kinds of input has them in
    `text_config`.
    """

    hidden_size: int = 0
    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 0
    moe_intermediate_size: int | None = None
    vocab_size: int = 0
    tie_word_embeddings: bool = False
    num_local_experts: int | None = None
    num_experts: int | None = None
    n_routed_experts: int | None = None
    num_experts_per_tok: int | None = None
    text_config: "_Config | None" = None


def shape_of_model(config: bytes) -> ModelShape | None:
    """Return the shape from a model's config.json, with grouped-query attention and a gated MLP, as
    in Llama and Qwen; None if it is incomplete.
    """
    try:
        read = msgspec.json.decode(config, type=_Config)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if read.text_config is not None:
        read = read.text_config
    shape = (
        read.hidden_size,
        read.num_hidden_layers,
        read.num_attention_heads,
        read.intermediate_size,
        read.vocab_size,
    )
    if min(shape) <= 0:
        return None
    head = read.head_dim or read.hidden_size // read.num_attention_heads
    keys = head * (read.num_key_value_heads or read.num_attention_heads)
    attention = 2 * read.hidden_size * (head * read.num_attention_heads + keys)
    experts = read.num_local_experts or read.num_experts or read.n_routed_experts or 1
    used = min(experts, read.num_experts_per_tok or experts)
    expert = 3 * read.hidden_size * (read.moe_intermediate_size or read.intermediate_size)
    embedding = read.vocab_size * read.hidden_size
    around = embedding * (1 if read.tie_word_embeddings else 2)
    weights = around + read.num_hidden_layers * (attention + experts * expert)
    if not 0 < weights < _MAX_WEIGHTS or keys <= 0 or used < 1:
        return None
    return ModelShape(
        weights=weights,
        active_weights=embedding + read.num_hidden_layers * (attention + used * expert),
        cached_values=2 * keys * read.num_hidden_layers,
        layers=read.num_hidden_layers,
    )
