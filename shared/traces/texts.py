"""What was taken of a trace, in words."""

from schemas.task.dataset import LengthUnit
from schemas.task.trace import TraceUse


def trace_text(use: TraceUse) -> str:
    """Say which trace it was, how much of it was sent, and what its prompts shared."""
    too_long = f", {use.too_long} were too long" if use.too_long else ""
    unit = (
        "words, as the engine counts no tokens"
        if use.length_unit is LengthUnit.WORDS
        else f"tokens, {use.tokens_per_word:.2f} a word"
    )
    return (
        f"trace: at most {use.used} of {use.requests} requests in {use.sessions} sessions"
        f"{too_long}, {100 * use.prefix_share:.1f} % of their prompts shared,"
        f" SHA-256 {use.sha256}; lengths in {unit}"
    )
