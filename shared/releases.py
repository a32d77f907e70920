"""Numbers of releases, and which may work with each other."""

import re
from typing import Final

_NUMBER: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def is_neighbour(release: str, other: str) -> bool | None:
    """Return whether programs of both may work together: at most one minor number apart.

    None where one of them is no number of a release.
    """
    numbers = [_NUMBER.match(text) for text in (release, other)]
    if not all(numbers):
        return None
    (major, minor), (other_major, other_minor) = (
        (int(match[1]), int(match[2])) for match in numbers if match is not None
    )
    return major == other_major and abs(minor - other_minor) <= 1
