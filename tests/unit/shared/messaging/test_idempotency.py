"""What a command gets that comes again."""

import pytest

from schemas.errors import RETRYABLE, Accepted, ErrorCode, Refused
from shared.ids import new_id
from shared.messaging.idempotency import is_final, replay_or_refuse


def test_same_body_gets_the_stored_reply() -> None:
    stored = Accepted(command_id=new_id(), revision=7)

    same = replay_or_refuse(stored.command_id, b"one", b"one", stored)
    other = replay_or_refuse(stored.command_id, b"two", b"one", stored)

    assert same is stored
    assert isinstance(other, Refused)
    assert (other.code, other.path) == (ErrorCode.COMMAND_ID_REUSED, "$.command_id")


@pytest.mark.parametrize("code", ErrorCode)
def test_refusal_is_final_unless_retry_may_help(code: ErrorCode) -> None:
    assert is_final(Refused(code=code, message="no")) == (code not in RETRYABLE)
    assert is_final(Accepted(command_id=new_id()))
