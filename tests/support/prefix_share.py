"""How much of prompts came before, counted token by token at the engine's side."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import repeat
from typing import Any


def count_shared(
    prompts: Iterable[Sequence[Hashable]], answers: Iterable[Sequence[Hashable]] = ()
) -> int:
    """Return the tokens that begin prompts as they began an earlier one and its answer."""
    root: dict[Hashable, Any] = {}
    shared = 0
    for prompt, answer in zip(prompts, [*answers] or repeat(()), strict=False):
        node, is_known = root, True
        for token in prompt:
            following = node.get(token)
            is_known = is_known and following is not None
            shared += is_known
            node = node.setdefault(token, {})
        for token in answer:
            node = node.setdefault(token, {})
    return shared
