"""A refusal fits into a message, whatever it repeats."""

from schemas.errors import ErrorCode
from shared.errors import LONGEST_MESSAGE, RefusedError, shortened


def test_a_refusal_that_repeats_much_keeps_its_beginning_and_its_end() -> None:
    refused = RefusedError(
        ErrorCode.BAD_REQUEST, f"expected a number, got {'x' * 2_000_000}!", path="$." + "y" * 9999
    ).refused()

    assert refused.message.startswith("expected a number, got x")
    assert refused.message.endswith("x!")
    assert len(refused.message) <= LONGEST_MESSAGE
    assert refused.path is not None
    assert len(refused.path) <= LONGEST_MESSAGE


def test_what_is_short_enough_stays_as_it_is() -> None:
    assert shortened("a" * LONGEST_MESSAGE) == "a" * LONGEST_MESSAGE
    assert shortened("abcdef", 5) == "ab…ef"
