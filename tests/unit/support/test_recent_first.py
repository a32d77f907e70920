"""Where not all long tests can be run: those near to a change, and the others in turn."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.imports import imports_of
from tests.support.paths import ROOT
from tests.support.recent_first import (
    FARTHEST_IMPORT,
    USED_THROUGH,
    RecentFirst,
    count_steps,
    order_files,
    read_commits_ago,
)

FILES = [Path(f"tests/real/test_{number}.py") for number in range(20)]


def test_the_nearest_to_a_change_alternate_with_the_rest() -> None:
    order = order_files(FILES, {FILES[7]: 3, FILES[12]: 1}, days=0)

    assert order == [
        FILES[12],
        FILES[0],
        FILES[7],
        FILES[1],
        *[file for file in FILES[2:] if file not in {FILES[7], FILES[12]}],
    ]


@pytest.mark.parametrize("days_between", [1 / 6, 1 / 4, 1 / 2, 1, 2, 3])
def test_a_few_runs_of_a_quarter_run_each_file(days_between: float) -> None:
    """However many are near to a change: they take every other place at most."""
    steps = dict.fromkeys(FILES, 1)
    begun: set[Path] = set()

    for number in range(20):
        begun |= set(order_files(FILES, steps, days=20_000 + number * days_between)[:5])

    assert begun == set(FILES)


@pytest.mark.parametrize("steps", [{}, {FILES[3]: 0}, dict.fromkeys(FILES, 2)])
def test_no_file_is_lost_or_run_twice(steps: dict[Path, int]) -> None:
    order = order_files(FILES, steps, days=0.3)

    assert len(order) == len(FILES)
    assert set(order) == set(FILES)


def chain_of(length: int) -> dict[Path, frozenset[Path]]:
    return {Path(f"{n}.py"): frozenset({Path(f"{n + 1}.py")}) for n in range(length)}


def test_an_import_counts_as_much_as_a_commit() -> None:
    imports = chain_of(9).__getitem__

    assert count_steps(Path("0.py"), {Path("0.py"): 4}, imports) == 4
    assert count_steps(Path("0.py"), {Path("2.py"): 1}, imports) == 3
    assert count_steps(Path("0.py"), {Path("0.py"): 4, Path("2.py"): 1}, imports) == 3


def test_what_is_far_away_or_not_reached_counts_nothing() -> None:
    imports = chain_of(9).__getitem__
    too_far = Path(f"{FARTHEST_IMPORT + 1}.py")

    assert count_steps(Path("0.py"), {too_far: 0, Path("other.py"): 0}, imports) is None


def test_modules_that_import_each_other_are_counted() -> None:
    imports = {Path("a.py"): frozenset({Path("b.py")}), Path("b.py"): frozenset({Path("a.py")})}

    assert count_steps(Path("a.py"), {Path("b.py"): 2}, imports.__getitem__) == 3


def test_imports_are_those_of_our_own_modules() -> None:
    assert imports_of(Path("tests/support/imports.py")) == {Path("tests/support/paths.py")}
    assert Path("shared/__init__.py") not in imports_of(Path("tests/conftest.py"))
    assert Path("tests/support/docker/private_engine.py") in imports_of(Path("tests/conftest.py"))


def commit(repository: Path, name: str, date: str) -> None:
    file = repository / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(date)
    run_git(repository, "add", ".", date=date)
    run_git(repository, "commit", "--quiet", "--message", name, date=date)


def run_git(folder: Path, *arguments: str, date: str = "") -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    environment = {**os.environ, "GIT_COMMITTER_DATE": date} if date else dict(os.environ)
    subprocess.run(["git", *author, *arguments], cwd=folder, env=environment, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Four commits: one is old, two are of one file."""
    made = tmp_path / "made"
    made.mkdir()
    run_git(made, "init", "--quiet")
    commit(made, "old.py", "2026-01-01T00:00:00+00:00")
    commit(made, "services/a.py", "2026-01-09T00:00:00+00:00")
    commit(made, "services/gateway/web/src/ü page.tsx", "2026-01-10T00:00:00+00:00")
    commit(made, "services/a.py", "2026-01-10T10:00:00+00:00")
    return made


def test_git_tells_the_changes_of_the_last_two_days(repository: Path) -> None:
    assert read_commits_ago(repository) == {
        Path("services/a.py"): 0,
        Path("tests/support/web/browser.py"): 1,
    }


def test_a_shallow_clone_tells_no_change(repository: Path) -> None:
    shallow = repository.with_name("shallow")
    run_git(repository, "clone", "--quiet", "--depth", "1", f"file://{repository}", str(shallow))

    assert read_commits_ago(shallow) == {}


def test_a_folder_without_git_tells_no_change(tmp_path: Path) -> None:
    assert read_commits_ago(tmp_path) == {}


def test_tests_of_a_file_stay_together_in_their_order() -> None:
    files = [
        ROOT / "tests/unit/support" / name for name in ("test_recent_first.py", "test_tables.py")
    ]
    items: Any = [SimpleNamespace(path=file, number=n) for file in files for n in range(3)]

    RecentFirst().pytest_collection_modifyitems(items)

    assert {item.path for item in items[:3]} in ({files[0]}, {files[1]})
    assert [item.number for item in items] == [0, 1, 2, 0, 1, 2]


def test_helpers_that_stand_for_a_folder_exist() -> None:
    assert all((ROOT / folder).is_dir() for folder in USED_THROUGH)
    assert all((ROOT / helper).is_file() for helper in USED_THROUGH.values())
