"""What a simulated engine pretends beside its speed: answers, and compiling at its start."""

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

from services.executor.engines.servers.simulated_ranks import say
from shared.benchmarks.words import WORDS


def answer_words(prompt: Sequence[str], count: int, drift: float) -> str:
    """The same for the same prompt, but for a share `drift` of all prompts: from half-way on."""
    rng = random.Random(" ".join(prompt))  # noqa: S311  # an answer, not a secret
    has_drifted = rng.random() < drift
    words = rng.choices(WORDS, k=count)
    if has_drifted:
        words[count // 2 :] = ["drifted"] * (count - count // 2)
    return " ".join(words)


async def compile_once(model: str, seconds: float) -> None:
    """Take that long, unless $VLLM_CACHE_ROOT has what was compiled before."""
    if not seconds:
        return
    root = os.environ.get("VLLM_CACHE_ROOT")
    compiled = Path(root, model.replace("/", "_")) if root else None
    if compiled is not None and compiled.exists():
        say("compiled before (simulated)")
        return
    say("compiling (simulated)")
    await asyncio.sleep(seconds)
    if compiled is not None:
        compiled.parent.mkdir(parents=True, exist_ok=True)
        compiled.touch()
