"""What engines compile when they start, kept for the next start that would compile the same.

An engine has a directory to itself while it runs: caches are written by one at a time. What an
engine left that did not become ready, or whose executor died, is dropped: it may be why.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.executor.attempts import StartExperiment
from services.executor.settings import ExecutorSettings
from shared.engines.table import PROFILES
from shared.logging import log
from shared.paths import lock_file, make_directory

ENGINE_VARIABLES: Final[Mapping[str, str]] = {
    name: folder for p in PROFILES.values() for name, folder in p.cache_variables.items()
}
# docs.pytorch.org "Compile Time Caching Configuration"; flashinfer/jit/env.py; DeepGEMM's README;
# NVIDIA's CUDA programming guide.
VARIABLES: Final[Mapping[str, str]] = {
    **ENGINE_VARIABLES,
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep_gemm",
    "CUDA_CACHE_PATH": "cuda",
}
CONTAINER_TARGET: Final = "/var/cache/compiled"
MAX_SLOTS: Final = 64
_FILES: Final = "files"
_LOCK: Final = "lock"
_OPEN: Final = "open"  # from taking it to the release of a good one
_DRIVERS: Final = ("/sys/module/nvidia/version", "/sys/module/amdgpu/version")


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Equal only where what is compiled is the same, and whose it is."""

    namespace: str
    engine: str
    image: str
    devices: tuple[str, ...]
    driver: str

    @classmethod
    def of(cls, command: StartExperiment, image: str) -> "CacheKey":
        """`image`: its digest, or the program of an engine without one."""
        names = {device.mig_profile or device.name for device in command.devices}
        return cls(command.namespace, command.engine.engine, image, tuple(sorted(names)), _driver())

    @property
    def path(self) -> Path:
        parts = json.dumps([self.engine, self.image, self.devices, self.driver])
        return Path(self.namespace, hashlib.sha256(parts.encode()).hexdigest()[:24])


def cache_variables(directory: str) -> dict[str, str]:
    """Return the variables that make engines keep in this directory what they compile."""
    return {name: f"{directory}/{folder}" for name, folder in VARIABLES.items()}


@dataclass(slots=True)
class CacheLease:
    """A directory that is one engine's until it is released."""

    directory: Path
    _lock: int

    @property
    def files(self) -> Path:
        return self.directory / _FILES

    def release(self, *, is_good: bool) -> None:
        """Not `is_good`: drop what is in it. Never raises."""
        with contextlib.suppress(OSError):
            os.utime(self.directory / _LOCK)
            if is_good:
                (self.directory / _OPEN).unlink(missing_ok=True)
        if not is_good:
            shutil.rmtree(self.files, ignore_errors=True)
        os.close(self._lock)


@dataclass(frozen=True, slots=True)
class CompileCaches:
    """All of a host's. What has not been used for `max_age_seconds` goes, and beyond `max_bytes`
    the longest unused; what an engine adds while it runs is not bounded.
    """

    root: Path
    max_bytes: int
    max_age_seconds: float

    @classmethod
    def of(cls, settings: ExecutorSettings) -> "CompileCaches":
        return cls(
            root=Path(settings.compile_cache_dir or Path(settings.data_dir) / "compile-caches"),
            max_bytes=settings.compile_cache_mb << 20,
            max_age_seconds=settings.compile_cache_days * 86_400,
        )

    def take(self, key: CacheKey) -> CacheLease | None:
        """The one for this key that no engine has; None if it cannot be had, which is logged."""
        try:
            for slot in range(MAX_SLOTS):
                directory = self.root / key.path / str(slot)
                make_directory(directory, 0o700)
                lock = lock_file(directory / _LOCK)
                if lock is not None:
                    return _open(CacheLease(directory, lock))
        except OSError as error:
            log.warning("compile_cache_unavailable", path=str(self.root), error=str(error))
        return None

    def prune(self) -> None:
        """Remove the caches that no engine uses. Never raises."""
        try:
            self._prune()
        except OSError as error:
            log.warning("compile_cache_not_pruned", path=str(self.root), error=str(error))

    def _prune(self) -> None:
        caches = [
            (lock.stat().st_mtime, sum(_sizes(lock.parent)), lock)
            for lock in self.root.glob(f"*/*/*/{_LOCK}")
        ]
        total = sum(size for _, size, _ in caches)
        oldest = time.time() - self.max_age_seconds
        for used_at, size, lock in sorted(caches, key=lambda cache: cache[0]):
            if used_at >= oldest and total <= self.max_bytes:
                return
            descriptor = lock_file(lock)
            if descriptor is not None:
                # The lock's file stays: another executor of this host may be opening it.
                shutil.rmtree(lock.parent / _FILES, ignore_errors=True)
                os.close(descriptor)
                total -= size


def _open(cache: CacheLease) -> CacheLease:
    mark = cache.directory / _OPEN
    try:
        if mark.exists() and cache.files.exists():
            shutil.rmtree(cache.files)
        mark.touch(0o600)
        make_directory(cache.files, 0o700)
    except OSError:
        cache.release(is_good=False)
        raise
    return cache


def _sizes(directory: Path) -> Iterator[int]:
    """Yield the disk space of each file in bytes."""
    for above, _, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(OSError):
                yield os.lstat(f"{above}/{name}").st_blocks * 512


def _driver() -> str:
    """The version of the GPU driver that is loaded; empty without one."""
    for path in _DRIVERS:
        with contextlib.suppress(OSError):
            return Path(path).read_text().strip()
    return ""
