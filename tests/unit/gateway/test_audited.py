"""What the audit log keeps of a change."""

from services.gateway.domain.audited import difference


def test_only_what_differs_is_kept() -> None:
    before = {"state": "running", "name": "t", "reason": ""}
    after = {"state": "cancelled", "name": "t", "reason": "wrong", "ended": 1}

    assert difference(before, after) == (
        {"state": "running", "reason": ""},
        {"state": "cancelled", "reason": "wrong", "ended": 1},
    )


def test_what_was_not_there_or_is_gone_is_nothing() -> None:
    assert difference(None, {"a": 1}) == (None, {"a": 1})
    assert difference({"a": 1}, None) == ({"a": 1}, None)
    assert difference(None, None) == (None, None)


def test_the_file_of_a_task_which_may_hold_secrets_is_left_out() -> None:
    assert difference(None, {"state": "running", "task": {"parameters": {"api-key": "sk"}}}) == (
        None,
        {"state": "running"},
    )
