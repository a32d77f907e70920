"""What one step of a batching engine computes, and how long it takes: plain data, no clock.

The rules are those that vLLM and SGLang share. Each step first goes on with the running requests,
in order of admission, then admits waiting ones, while the step's tokens, the slots and the KV cache
have room; long prompts are computed in pieces. Where the KV cache has no room for a running
request, the one admitted last is preempted: it loses its cache and is computed again. A step takes

    step_seconds + prompt tokens computed * prefill_token_seconds + cached tokens read by decoding
    requests * kv_token_seconds

so that an idle engine's times have a closed form, and those of any load follow exactly from the
arrivals.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

BLOCK_TOKENS: Final = 16
ANSWER_WORD: Final = "token"  # of streamed answers


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpeed:
    """How fast a step is, and what fits. `kv_tokens` None: the KV cache has no end."""

    step_seconds: float
    prefill_token_seconds: float = 0.0
    kv_token_seconds: float = 0.0
    compile_seconds: float = 0.0
    slots: int = 8
    kv_tokens: int | None = None
    batch_tokens: int = 2048
    prefix_cache: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class BatchedRequest:
    """A request while it is served. `computed` of its tokens are in the KV cache."""

    prompt: Sequence[str]
    output_tokens: int
    generated: int = 0
    computed: int = 0
    _blocks: list[int] | None = None

    @property
    def length(self) -> int:
        return len(self.prompt) + self.generated

    @property
    def is_done(self) -> bool:
        return self.generated >= self.output_tokens

    def blocks(self) -> list[int]:
        """A hash for each whole block of the prompt, which covers all before it."""
        if self._blocks is None:
            self._blocks = _blocks(self.prompt)
        return self._blocks

    def blocks_with_answer(self) -> list[int]:
        """And of the answer; its last token was never computed."""
        words = [*self.prompt, *[ANSWER_WORD] * (self.generated - 1)]
        return _blocks(words, self.blocks())


def _blocks(words: Sequence[str], prefix_hashes: Sequence[int] = ()) -> list[int]:
    hashes = list(prefix_hashes)
    for start in range(len(hashes) * BLOCK_TOKENS, len(words) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        previous_hash = hashes[-1] if hashes else 0
        hashes.append(hash((previous_hash, *words[start : start + BLOCK_TOKENS])))
    return hashes


@dataclass(frozen=True, slots=True)
class Step:
    """One step: each of `emitting` gets a token when it is over."""

    seconds: float
    emitting: tuple[BatchedRequest, ...]


@dataclass(slots=True)
class PrefixCache:
    """Blocks of prompts and streamed answers that were computed, the longest unused leave first.

    It is apart from the running requests' room: what it saves is computing, not memory.
    """

    capacity_blocks: int | None
    _blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def count_cached_tokens(self, sequence: BatchedRequest) -> int:
        """Return the tokens of the prompt that need not be computed.

        At least one token is always computed, as generation has to start from one.
        """
        token_count = 0
        for block in sequence.blocks():
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            token_count += BLOCK_TOKENS
        return min(token_count, (len(sequence.prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS)

    def store(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while self.capacity_blocks is not None and len(self._blocks) > self.capacity_blocks:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        self._blocks.clear()


@dataclass(slots=True)
class BatchScheduler:
    """Requests that wait and run, and the counters that engines report of them."""

    speed: BatchSpeed
    waiting: deque[BatchedRequest] = field(default_factory=deque)
    running: list[BatchedRequest] = field(default_factory=list)
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    _cache: PrefixCache = field(init=False)
    _compiled: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        room = self.speed.kv_tokens
        self._cache = PrefixCache(None if room is None else room // BLOCK_TOKENS)

    @property
    def kv_tokens_used(self) -> int:
        return sum(sequence.computed for sequence in self.running)

    def fits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Return whether such a request could ever be served to its end."""
        room = self.speed.kv_tokens
        return room is None or prompt_tokens + output_tokens <= room

    def add(self, sequence: BatchedRequest) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: BatchedRequest) -> None:
        """Drop a sequence whose client has gone."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def reset_prefix_cache(self) -> bool:
        """False, and nothing happens, while requests are served."""
        if self.running or self.waiting:
            return False
        self._cache.clear()
        return True

    def step(self) -> Step | None:
        """Compute the next step; None without requests."""
        if not self.running and not self.waiting:
            return None
        pieces = self._go_on()
        if len(pieces) == len(self.running):
            self._admit(pieces)
        prefill_tokens = read_tokens = 0
        for sequence, tokens in pieces:
            if sequence.computed < len(sequence.prompt) or tokens > 1:
                prefill_tokens += tokens
            else:
                read_tokens += sequence.computed
        seconds = (
            self.speed.step_seconds
            + prefill_tokens * self.speed.prefill_token_seconds
            + read_tokens * self.speed.kv_token_seconds
        )
        if self.speed.compile_seconds and len(pieces) not in self._compiled:
            self._compiled.add(len(pieces))
            seconds += self.speed.compile_seconds
        return Step(seconds, self._advance(pieces))

    def _go_on(self) -> list[tuple[BatchedRequest, int]]:
        pieces: list[tuple[BatchedRequest, int]] = []
        budget, used, place = self.speed.batch_tokens, self.kv_tokens_used, 0
        while place < len(self.running) and budget > 0:
            sequence = self.running[place]
            tokens = min(sequence.length - sequence.computed, budget)
            while not self._has_room(used + tokens):
                victim = self.running.pop()
                used -= victim.computed
                victim.computed = 0
                self.waiting.appendleft(victim)
                self.preemptions += 1
                if victim is sequence:
                    return pieces
            pieces.append((sequence, tokens))
            budget -= tokens
            used += tokens
            place += 1
        return pieces

    def _admit(self, pieces: list[tuple[BatchedRequest, int]]) -> None:
        budget = self.speed.batch_tokens - sum(tokens for _, tokens in pieces)
        used = self.kv_tokens_used + sum(tokens for _, tokens in pieces)
        while self.waiting and len(self.running) < self.speed.slots and budget > 0:
            sequence = self.waiting[0]
            if not self._has_room(used + sequence.length):
                return
            self.waiting.popleft()
            self.running.append(sequence)
            if self.speed.prefix_cache:
                cached = self._cache.count_cached_tokens(sequence)
                if not sequence.generated:
                    self.prefix_queries += len(sequence.prompt)
                    self.prefix_hits += cached
                sequence.computed = cached
            tokens = min(sequence.length - sequence.computed, budget)
            pieces.append((sequence, tokens))
            budget -= tokens
            used += sequence.computed + tokens

    def _advance(self, pieces: Sequence[tuple[BatchedRequest, int]]) -> tuple[BatchedRequest, ...]:
        emitting = []
        for sequence, tokens in pieces:
            sequence.computed += tokens
            if sequence.computed < sequence.length:
                continue
            if not sequence.generated:
                self.prompt_tokens += len(sequence.prompt)
                if self.speed.prefix_cache:
                    self._cache.store(sequence.blocks())
            sequence.generated += 1
            self.generated_tokens += 1
            emitting.append(sequence)
            if sequence.is_done:
                self.running.remove(sequence)
                if self.speed.prefix_cache:
                    self._cache.store(sequence.blocks_with_answer())
        return tuple(emitting)

    def _has_room(self, tokens: int) -> bool:
        return self.speed.kv_tokens is None or tokens <= self.speed.kv_tokens
