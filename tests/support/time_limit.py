"""A limit of a whole run of tests: what has not begun by then is skipped, and says so."""

import time

import pytest


class TimeLimit:
    """Skips tests that have not begun `seconds` after the start of the run; a plugin of pytest."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip the test. The reason names its file, as pytest's summary folds equal reasons."""
        if time.monotonic() >= self._end:
            pytest.skip(f"NOT RUN, {self._seconds:.0f} s were over: {item.path.name}")
