"""What every unit test is held to."""

from collections.abc import Iterator

import pytest

from tests.support.leftovers import nothing_is_left


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """A test's leftover is that test's error, not the next one's."""
    with nothing_is_left():
        yield
