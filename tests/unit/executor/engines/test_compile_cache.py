"""Directories for what engines compile: whose they are, and when they go."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.executor.attempts import GangPlace
from services.executor.attempts.compile_cache import AttemptCache
from services.executor.engines.compile_cache import (
    CacheKey,
    CacheLease,
    CompileCaches,
    cache_variables,
)
from tests.support.worlds.executor import make_start

KEY = CacheKey("team-a", "vllm", "sha256:1", ("H100",), "570.1")
GANG = GangPlace(rank=1, size=2, coordinator_id="n2")
DAY_SECONDS = 86_400


def make_caches(root: Path, max_mb: int = 100) -> CompileCaches:
    return CompileCaches(root=root, max_bytes=max_mb << 20, max_age_seconds=30 * DAY_SECONDS)


def used(
    caches: CompileCaches, key: CacheKey = KEY, *, size_mb: int = 0, days_ago: int = 0
) -> Path:
    """A cache with a file in it, released and left for so long."""
    held = caches.take(key)
    assert held is not None
    (held.files / "kernel").write_bytes(b"x" * (size_mb << 20))
    held.release(is_good=True)
    lock = held.directory / "lock"
    at = lock.stat().st_mtime - days_ago * DAY_SECONDS
    os.utime(lock, (at, at))
    return held.files


def taken(caches: CompileCaches, key: CacheKey = KEY) -> CacheLease:
    held = caches.take(key)
    assert held is not None
    return held


def test_next_engine_of_same_key_finds_cache(tmp_path: Path) -> None:
    caches = make_caches(tmp_path)
    used(caches)

    again = taken(caches)

    assert (again.files / "kernel").exists()
    again.release(is_good=True)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(KEY, namespace="team-b"), id="namespace"),
        pytest.param(replace(KEY, engine="sglang"), id="engine"),
        pytest.param(replace(KEY, image="sha256:2"), id="image"),
        pytest.param(replace(KEY, devices=("A100",)), id="GPU model"),
        pytest.param(replace(KEY, driver="571.0"), id="driver"),
    ],
)
def test_nothing_is_shared_where_the_key_differs(tmp_path: Path, other: CacheKey) -> None:
    caches = make_caches(tmp_path)
    used(caches)

    held = taken(caches, other)

    assert list(held.files.iterdir()) == []
    held.release(is_good=True)


def test_concurrent_engines_have_own_directories(tmp_path: Path) -> None:
    caches = make_caches(tmp_path)

    first, second = taken(caches), taken(caches)

    assert first.files != second.files
    first.release(is_good=True)
    second.release(is_good=True)


def test_cache_of_failed_engine_or_executor_is_dropped(tmp_path: Path) -> None:
    caches = make_caches(tmp_path)
    used(caches)
    failed = taken(caches)
    failed.release(is_good=False)
    assert not failed.files.exists()

    used(caches)
    died = taken(caches)
    os.close(died._lock)  # noqa: SLF001  # as the kernel does when its process ends

    again = taken(caches)
    assert again.files == died.files
    assert list(again.files.iterdir()) == []
    again.release(is_good=True)


def test_oldest_caches_are_pruned_unless_in_use(tmp_path: Path) -> None:
    caches = make_caches(tmp_path, max_mb=3)
    stale = used(caches, replace(KEY, image="stale"), days_ago=31)
    old = used(caches, replace(KEY, image="old"), size_mb=2, days_ago=3)
    new = used(caches, replace(KEY, image="new"), size_mb=2, days_ago=1)
    running = replace(KEY, image="running")
    used(caches, running, size_mb=1, days_ago=9)
    held = taken(caches, running)

    caches.prune()

    assert [path.exists() for path in (stale, old, new, held.files)] == [False, False, True, True]
    held.release(is_good=True)


def test_unwritable_cache_does_not_stop_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert make_caches(tmp_path / "file").take(KEY) is None
    make_caches(tmp_path / "absent").prune()


def test_every_compiler_gets_a_cache_folder() -> None:
    found = cache_variables("/c")

    assert found["VLLM_CACHE_ROOT"] == "/c/vllm"
    assert found["TRITON_CACHE_DIR"] == "/c/triton"
    assert found["SGLANG_DG_CACHE_DIR"] == found["DG_JIT_CACHE_DIR"]


@pytest.mark.parametrize(
    ("max_mb", "gang"), [pytest.param(0, None, id="no room"), pytest.param(1, GANG, id="a rank")]
)
def test_no_cache_without_room_or_for_gang_rank(
    tmp_path: Path, max_mb: int, gang: GangPlace | None
) -> None:
    attempt = AttemptCache(command=make_start(gang=gang), caches=make_caches(tmp_path, max_mb))

    assert attempt.take("image") is None
    assert list(tmp_path.iterdir()) == []


async def test_namespaces_have_separate_caches(tmp_path: Path) -> None:
    caches = make_caches(tmp_path)

    async def taken(namespace: str) -> Path | None:
        attempt = AttemptCache(command=make_start(namespace=namespace), caches=caches, is_good=True)
        files = attempt.take("image")
        assert attempt.take("image") == files
        assert files is not None
        (files / "compiled").touch()
        await attempt.release()
        assert attempt.take("image") is None
        return files

    first, again, other = [await taken(each) for each in ("team-a", "team-a", "team-b")]

    assert first == again != other
