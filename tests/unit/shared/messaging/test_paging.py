"""Parts of lists, and the cursors between them."""

from datetime import UTC, datetime

import pytest
from msgspec import Struct

from schemas.errors import ErrorCode
from shared.errors import RefusedError
from shared.messaging.paging import REPLY_BYTES, cursor_at, page_of, place_at


class Place(Struct, frozen=True, array_like=True, tag="thing"):
    stored_at: datetime


class OtherPlace(Struct, frozen=True, array_like=True, tag="other"):
    stored_at: datetime


PLACES = [Place(datetime(2026, 1, 1, 0, 0, 0, n, tzinfo=UTC)) for n in range(1, 5)]


def test_a_cursor_names_its_place_to_the_microsecond() -> None:
    cursor = cursor_at(PLACES[0])

    assert place_at(cursor, Place) == PLACES[0]
    assert place_at(None, Place) is None
    assert cursor.isascii()
    assert cursor.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "cursor", ["", "1", "no cursor", "änderung", cursor_at(OtherPlace(PLACES[0].stored_at))]
)
def test_what_is_no_cursor_of_this_list_is_refused(cursor: str) -> None:
    with pytest.raises(
        RefusedError, match="expected the next_cursor of an earlier answer"
    ) as caught:
        place_at(cursor, Place)

    assert (caught.value.code, caught.value.path) == (ErrorCode.BAD_REQUEST, "$.cursor")


@pytest.mark.parametrize(
    ("items", "limit", "page", "last"),
    [
        pytest.param(["a", "b"], 2, ("a", "b"), None, id="the end"),
        pytest.param(["a", "b", "c"], 2, ("a", "b"), 1, id="more follow"),
        pytest.param([], 2, (), None, id="nothing"),
        pytest.param(["a", "b" * REPLY_BYTES, "c"], 5, ("a",), 0, id="the next does not fit"),
        pytest.param(["a" * REPLY_BYTES, "b"], 5, ("a" * REPLY_BYTES,), 0, id="at least one"),
    ],
)
def test_page_ends_at_limit_or_full_reply(
    items: list[str], limit: int, page: tuple[str, ...], last: int | None
) -> None:
    found = list(zip(items, PLACES, strict=False))

    assert page_of(found, limit) == (page, None if last is None else cursor_at(PLACES[last]))
