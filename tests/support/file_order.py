"""In which order files of tests are run, where several run at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Of the files that compute: short ones, so that all workers end together.
SHARE_LEFT_FOR_THE_END: Final = 0.25


def spread(files: Sequence[Path], computing: Path) -> list[Path]:
    """The order of `files` in which most of those below `computing`, which come after the others,
    are evenly among them.

    Tests of real servers wait for half of their time, tests that compute for none of it: workers
    at both leave less of the cores idle than workers at one. An order that begins with `computing`
    stays as it is.
    """
    moved = [file for file in files if file.is_relative_to(computing)]
    others = [file for file in files if not file.is_relative_to(computing)]
    if not moved or files[0] == moved[0]:
        return list(files)
    early = len(moved) - int(len(moved) * SHARE_LEFT_FOR_THE_END)
    place = {file: index / len(others) for index, file in enumerate(others)}
    place |= {file: (index + 0.5) / early for index, file in enumerate(moved)}
    return sorted(files, key=place.__getitem__)
