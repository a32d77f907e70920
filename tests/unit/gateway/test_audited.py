"""What the audit log keeps of a change."""

from services.gateway.domain.audited import difference, place_made


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


def test_task_file_is_left_out_of_audit() -> None:
    assert difference(None, {"state": "running", "task": {"parameters": {"api-key": "sk"}}}) == (
        None,
        {"state": "running"},
    )


def test_identifying_fields_are_kept_if_equal() -> None:
    before = {"state": "active", "holder": "exec/carol", "request": {"gpus": 2}, "epoch": 7}

    assert difference(before, {**before, "state": "released"}) == (
        {"state": "active", "holder": "exec/carol", "request": {"gpus": 2}},
        {"state": "released", "holder": "exec/carol", "request": {"gpus": 2}},
    )


def test_new_task_or_reservation_is_named_by_address() -> None:
    assert place_made("/api/v1/reservations/12") == {"reservation_id": "12"}
    assert place_made("/api/v1/tasks/ab") == {"task_id": "ab"}
    assert place_made("/api/v1/presets/wide") == place_made("") == place_made("tasks") == {}
