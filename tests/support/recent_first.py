"""Which files of tests come first where not all of them will be run.

Every other file is the one nearest to what changed: the fewest steps, of which an import is one and
a commit since then is one. Those between come in turn, so that a few runs together run each file: a
test of the whole platform depends on all of it by its processes, which no import tells.
"""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Final

import pytest

from tests.support.imports import imports_of
from tests.support.paths import ROOT

RECENT_SECONDS: Final = 2 * 86_400
# Beyond it nearly all of our code is reached.
FARTHEST_IMPORT: Final = 3
# What no import leads to, and the helper through which tests use it.
USED_THROUGH: Final = {
    "services/gateway/web/": Path("tests/support/web/browser.py"),
    "compose/helm/": Path("tests/support/kubernetes/chart.py"),
    "compose/": Path("tests/support/docker/compose_platform.py"),
}
# Rounds a day of where the others begin. Its multiples spread evenly over a circle, so that runs at
# one hour of each day begin elsewhere too.
GOLDEN_RATIO: Final = 0.618034

Imports = Callable[[Path], frozenset[Path]]


class RecentFirst:
    """Runs first what is near to a recent change or whose turn it is; a plugin of pytest."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order what the other options have left, by file."""
        files = [file.relative_to(ROOT) for file in dict.fromkeys(item.path for item in items)]
        commits_ago = read_commits_ago(ROOT)
        counted = {file: count_steps(file, commits_ago, imports_of) for file in files}
        steps = {file: count for file, count in counted.items() if count is not None}
        days = time.time() / 86_400
        place = {file: n for n, file in enumerate(order_files(files, steps, days))}
        items.sort(key=lambda item: place[item.path.relative_to(ROOT)])


def order_files(files: Sequence[Path], steps: Mapping[Path, int], days: float) -> list[Path]:
    """Return `files` with those of the fewest `steps` and those whose turn it is after so many
    `days` alternating.
    """
    near = sorted((file for file in files if file in steps), key=steps.__getitem__)
    start = int(len(files) * (days * GOLDEN_RATIO % 1))
    in_turn = [*files[start:], *files[:start]]
    alternating = chain.from_iterable(zip_longest(near, in_turn))
    return list(dict.fromkeys(file for file in alternating if file is not None))


def count_steps(file: Path, commits_ago: Mapping[Path, int], imports: Imports) -> int | None:
    """Return how far it is from `file` to a change, imports and commits since then together; None
    where no import leads to one.
    """
    found: list[int] = []
    reached: set[Path] = set()
    newly = {file}
    for imports_away in range(FARTHEST_IMPORT + 1):
        if imports_away:
            newly = set(chain.from_iterable(map(imports, newly))) - reached
        reached |= newly
        found += [commits_ago[each] + imports_away for each in newly if each in commits_ago]
    return min(found, default=None)


def read_commits_ago(root: Path) -> dict[Path, int]:
    """Return how many commits ago each file changed that did so within two days before the last;
    nothing where git does not know.
    """
    if _ask_git(root, "rev-parse", "--is-shallow-repository") != "false":
        return {}
    since = int(_ask_git(root, "log", "-1", "--format=%ct")) - RECENT_SECONDS
    told = _ask_git(root, "log", f"--since={since}", "--format=%x00", "--name-only", "--no-renames")
    commits_ago: dict[Path, int] = {}
    for number, names in enumerate(told.split("\0")[1:]):
        for name in names.split("\n"):
            if name:
                commits_ago.setdefault(_code_behind(name), number)
    return commits_ago


def _code_behind(name: str) -> Path:
    through = (helper for folder, helper in USED_THROUGH.items() if name.startswith(folder))
    return next(through, Path(name))


def _ask_git(root: Path, *arguments: str) -> str:
    """Return what it answers; an empty text where it cannot."""
    command = ["git", "-C", str(root), "-c", "core.quotePath=false", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
