"""Puts into a distribution what is no source: hatchling imports this while it builds."""

import json
import lzma
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE: Final = "services/gateway/web/dist"
COMPOSE: Final = "compose"
BENCHMARKS: Final = "shared/benchmarks"
# What the image is built by, which `gpusteward compose init` hands out.
LOCKS: Final = ("requirements.lock", "requirements-image.lock")
PACKED_LOCKS: Final = "shared/locks.json.xz"  # of shared.paths


class DataIncluded(BuildHookInterface[Any]):
    """Adds the built page, and to a wheel the files of `gpusteward compose` and packed locks."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._packed = TemporaryDirectory()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to what is built. Raises SystemExit if the page is not built."""
        if version == "editable":
            return
        root, is_wheel = Path(self.root), self.target_name == "wheel"
        if not (root / PAGE / "index.html.gz").is_file():
            raise SystemExit(f"expected the built page in {PAGE}, found none: run `make dist`")
        included = build_data["force_include"]
        for path in sorted((root / PAGE).rglob("*")):
            # The gateway unpacks a compressed file for the rare client that cannot.
            is_packed_too = path.with_name(f"{path.name}.gz").is_file()
            if path.is_file() and not (is_wheel and is_packed_too):
                included[str(path)] = path.relative_to(root).as_posix()
        if is_wheel:
            included[str(root / COMPOSE)] = f"gpusteward/{COMPOSE}"
            locks = [root / name for name in LOCKS]
            locks += (root / BENCHMARKS).glob("*/requirements.lock")
            texts = {lock.relative_to(root).as_posix(): lock.read_text() for lock in sorted(locks)}
            packed = Path(self._packed.name) / "locks"
            packed.write_bytes(lzma.compress(json.dumps(texts).encode(), preset=9))
            included[str(packed)] = PACKED_LOCKS
