"""A table in one test is as strict as a test for each of its entries."""

import inspect

import pytest

from tests.support.tables import for_each


def test_only_failing_entries_are_named() -> None:
    @for_each("number", [1, 2, 3, 4], name=lambda number: f"number {number}")
    def check(number: int) -> None:
        if number == 3:
            pytest.fail("three")
        assert number != 2

    with pytest.raises(BaseExceptionGroup) as failure:
        check()

    assert failure.value.message == "2 of 4 entries"
    notes = [note for error in failure.value.exceptions for note in error.__notes__]
    assert notes == ["number: number 2", "number: number 3"]


def test_entries_are_checked_with_fixtures() -> None:
    seen = []

    @for_each("number", [1, 2])
    def check(number: int, tmp_path: str) -> None:
        seen.append((number, tmp_path))

    check(tmp_path="here")

    assert list(inspect.signature(check).parameters) == ["tmp_path"]
    assert seen == [(1, "here"), (2, "here")]


def test_a_table_without_entries_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="expected entries for number"):
        for_each("number", [])
