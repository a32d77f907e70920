"""What a simulated engine pretends beside its speed: answers, and compiling at its start."""

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from shared.engines.simulated.ranks import say
from shared.words import WORDS


def answer_words(prompt: Sequence[str], count: int, drift: float) -> str:
    """The same for the same prompt, but for a share `drift` of all prompts: from half-way on."""
    rng = random.Random(" ".join(prompt))  # noqa: S311  # an answer, not a secret
    has_drifted = rng.random() < drift
    words = rng.choices(WORDS, k=count)
    if has_drifted:
        words[count // 2 :] = ["drifted"] * (count - count // 2)
    return " ".join(words)


def compile_once(model: str, processor_seconds: float) -> None:
    """Compute for that long, unless $VLLM_CACHE_ROOT has what was compiled before."""
    if not processor_seconds:
        return
    root = os.environ.get("VLLM_CACHE_ROOT")
    compiled = Path(root, model.replace("/", "_")) if root else None
    if compiled is not None and compiled.exists():
        say("compiled before (simulated)")
        return
    say("compiling (simulated)")
    ends = time.process_time() + processor_seconds
    while time.process_time() < ends:
        sum(range(10_000))
    if compiled is not None:
        compiled.parent.mkdir(parents=True, exist_ok=True)
        compiled.touch()
