"""What an image is built from: compose/Containerfile, locks, and a wheel of what runs here."""

import zipfile
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath
from typing import Final

from services.cli.local_platform.compose import TEMPLATES
from shared.paths import (
    PACKED_LOCKS,
    SOURCE_ROOT,
    give_to_owner_above,
    make_directory,
    read_lock,
    write_atomically,
)

CONTAINERFILE: Final = "Containerfile"
DOCKERFILE: Final = "Dockerfile"  # what `docker build` looks for
LOCKS: Final = ("requirements.lock", "requirements-image.lock")
# What an installer adds to the files of a wheel, beside scripts, which lie elsewhere.
_OF_INSTALLERS: Final = frozenset(
    {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json"}
)
_MODE: Final = 0o100644 << 16


def is_installed_from_wheel() -> bool:
    """Return whether this is no checkout, whose files are not those of a wheel."""
    return PACKED_LOCKS.is_file()


def write_image_directory(directory: Path) -> None:
    """Write what `docker build` takes, as Containerfile says; what is there is replaced.

    The wheel is put together again from the files that were installed.
    """
    for path in (directory, directory / "dist"):
        make_directory(path, 0o700)
        give_to_owner_above(path)
    files = {DOCKERFILE: (TEMPLATES / CONTAINERFILE).read_bytes()}
    files |= {name: read_lock(SOURCE_ROOT / name) for name in LOCKS}
    for name, content in files.items():
        write_atomically(directory / name, content)
        give_to_owner_above(directory / name)
    for old in (directory / "dist").glob("*.whl"):
        old.unlink()
    give_to_owner_above(_write_wheel(directory / "dist"))


def _write_wheel(directory: Path) -> Path:
    installed = distribution("gpusteward")
    record = installed.read_text("RECORD") or ""
    lines = [line for line in record.splitlines() if _is_of_wheel(line.split(",")[0])]
    metadata = f"gpusteward-{installed.version}.dist-info"
    path = directory / f"gpusteward-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in (line.split(",")[0] for line in lines):
            content = Path(str(installed.locate_file(name))).read_bytes()
            wheel.writestr(_entry(name), content)
        lines.append(f"{metadata}/RECORD,,")
        wheel.writestr(_entry(f"{metadata}/RECORD"), "\n".join([*lines, ""]))
    return path


def _is_of_wheel(name: str) -> bool:
    path = PurePosixPath(name)
    if ".." in path.parts or path.is_absolute() or "__pycache__" in path.parts:
        return False
    is_metadata = path.parts[0].endswith(".dist-info")
    return not (is_metadata and path.name in _OF_INSTALLERS)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = _MODE
    return entry
