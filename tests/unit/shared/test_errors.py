"""A refusal fits into a message, whatever it repeats."""

from schemas.errors import ErrorCode
from shared.errors import MAX_MESSAGE, RefusedError, shorten


def test_long_refusal_keeps_beginning_and_end() -> None:
    refused = RefusedError(
        ErrorCode.BAD_REQUEST, f"expected a number, got {'x' * 2_000_000}!", path="$." + "y" * 9999
    ).as_refused()

    assert refused.message.startswith("expected a number, got x")
    assert refused.message.endswith("x!")
    assert len(refused.message) <= MAX_MESSAGE
    assert refused.path is not None
    assert len(refused.path) <= MAX_MESSAGE


def test_what_is_short_enough_stays_as_it_is() -> None:
    assert shorten("a" * MAX_MESSAGE) == "a" * MAX_MESSAGE
    assert shorten("abcdef", 5) == "ab…ef"
