"""Which releases may work with each other."""

import pytest

from shared.releases import is_neighbour


@pytest.mark.parametrize(
    ("release", "other", "expected"),
    [
        ("0.2.0", "0.2.7", True),
        ("0.2.0", "0.1.0", True),
        ("0.2.0", "0.3.0", True),
        ("0.3.0", "0.1.9", False),
        ("1.0.0", "0.9.0", False),
        ("0.2.0rc1", "0.1.0", True),
        ("0.2.0", "unknown", None),
    ],
)
def test_neighbours_are_one_minor_release_apart(
    release: str, other: str, expected: bool | None
) -> None:
    assert is_neighbour(release, other) is expected
    assert is_neighbour(other, release) is expected
