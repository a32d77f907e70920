"""A limit of a whole run of tests: what has not begun by then is skipped, and says so."""

import time
from collections.abc import Callable

import pytest


class TimeLimit:
    """Skips tests that have not begun `seconds` after the start of the run; a plugin of pytest."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip the test. The reason names its file, as pytest's summary folds equal reasons."""
        if self._clock() >= self._end:
            pytest.skip(f"NOT RUN, {self._seconds:.0f} s were over: {_file_of(item)}")


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
