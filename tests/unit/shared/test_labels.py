"""Labels as they are written, and what is read back from them."""

from uuid import UUID

import pytest

from shared.labels import environment_of, parse_epoch, parse_id

RESERVATION = UUID("0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b")


def test_what_is_not_known_is_not_written() -> None:
    assert environment_of(RESERVATION, node_id="a", epoch=7) == {
        "GPUSTEWARD_RESERVATION": str(RESERVATION),
        "GPUSTEWARD_NODE": "a",
        "GPUSTEWARD_EPOCH": "7",
    }


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        ("0", None),
        ("-7", None),
        ("\u0667", None),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
    ],
)
def test_epoch_is_read_within_message_range(text: str | None, want: int | None) -> None:
    assert parse_epoch(text) == want


@pytest.mark.parametrize("text", [None, "", "x", str(RESERVATION).upper(), f"{{{RESERVATION}}}"])
def test_an_id_in_another_spelling_is_no_label(text: str | None) -> None:
    assert parse_id(text) is None
    assert parse_id(str(RESERVATION)) == RESERVATION
