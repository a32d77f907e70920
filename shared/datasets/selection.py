"""Which rows of a dataset are used, and why the rest is not."""

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from schemas.task.dataset import DatasetSpec, DropReason
from shared.datasets.bounds import MAX_KEPT_CHARACTERS, MAX_PROMPT_CHARACTERS
from shared.datasets.rows import Row

CANDIDATES_PER_ROW: Final = 10  # of the sample, so that enough are left once lengths are known


@dataclass(slots=True)
class Candidates:
    """Rows in the order in which they are drawn; of all others why not."""

    rows: list[Row] = field(default_factory=list)
    rows_read: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)


def draw_candidates(rows: Iterable[Row], spec: DatasetSpec) -> Candidates:
    """Draw more rows than are wanted, since lengths are counted afterwards. The same for the same
    seed; memory is bounded however many rows come.
    """
    max_rows = spec.sample * (1 if _takes_any_length(spec) else CANDIDATES_PER_ROW)
    rng = random.Random(spec.seed)  # noqa: S311  # repeatable, not secret
    drawn = Candidates()
    digests: set[bytes] = set()
    # The last in the order comes first, to go when others come before it.
    kept: list[tuple[float, int, Row]] = []
    characters = 0
    for number, row in enumerate(rows):
        drawn.rows_read += 1
        priority = rng.random()
        if (reason := refuse_row(row, spec, digests)) is not None:
            drawn.dropped[reason] += 1
            continue
        heapq.heappush(kept, (-priority, number, row))
        characters += _characters(row)
        while len(kept) > max_rows or (characters > MAX_KEPT_CHARACTERS and len(kept) > 1):
            characters -= _characters(heapq.heappop(kept)[2])
            drawn.dropped[DropReason.NOT_SAMPLED] += 1
    drawn.rows = [row for _, _, row in sorted(kept, reverse=True)]
    return drawn


def _takes_any_length(spec: DatasetSpec) -> bool:
    return spec.min_input_tokens == 1 and spec.max_input_tokens is None


def _characters(row: Row) -> int:
    return len(row.prompt) + len(row.answer)


def refuse_row(row: Row, spec: DatasetSpec, digests: set[bytes]) -> DropReason | None:
    """Say why a row is not used, whatever its length; None if it may be."""
    if not row.prompt:
        return DropReason.EMPTY
    if max(len(row.prompt), len(row.answer)) > MAX_PROMPT_CHARACTERS:
        return DropReason.TOO_LARGE
    if spec.deduplicate:
        digest = hashlib.blake2b(row.prompt.encode(), digest_size=16).digest()
        if digest in digests:
            return DropReason.DUPLICATE
        digests.add(digest)
    return None


def refuse_length(num_input_tokens: int, spec: DatasetSpec) -> DropReason | None:
    """Say why a prompt of so many tokens is not used; None if it is."""
    if num_input_tokens < spec.min_input_tokens:
        return DropReason.TOO_SHORT
    if spec.max_input_tokens is not None and num_input_tokens > spec.max_input_tokens:
        return DropReason.TOO_LONG
    return None


def answer_length(row: Row, counted_tokens: int | None, spec: DatasetSpec) -> int:
    """Return how many tokens are asked for: the row's own, its answer's, or what the task says."""
    num_tokens = row.output_tokens or counted_tokens or spec.max_output_tokens
    return min(num_tokens, spec.max_output_tokens)


def count_words(texts: Sequence[str]) -> list[int]:
    """Count each text's words, where no engine counts its tokens."""
    return [len(text.split()) for text in texts]
