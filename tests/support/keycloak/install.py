"""Installs Keycloak: `python -m tests.support.keycloak.install`.

Maven fetches its archive, which is checked against the digest below, and its own build step makes
it start quickly. Without Java or Maven it says so, and nothing is installed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from tests.support.benchmark_tools import TEST_TOOLS

VERSION: Final = "26.7.3"
ARTIFACT: Final = "keycloak-quarkus-dist"
COORDINATES: Final = f"org.keycloak:{ARTIFACT}:{VERSION}:zip"
PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
ARCHIVE_SHA256: Final = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
FETCH_SECONDS: Final = 600
BUILD_SECONDS: Final = 600
BUILD_OPTIONS: Final = ("--db=dev-mem", "--features=device-flow", "--cache=local")


def home() -> Path:
    return TEST_TOOLS / f"keycloak-{VERSION}"


def missing() -> str | None:
    """What tests with Keycloak would need; None where all is there."""
    if shutil.which("java") is None:
        return "needs Java 17 (Debian: openjdk-17-jre-headless)"
    if not (home() / "built").is_file():
        return "needs Keycloak: python -m tests.support.keycloak.install (with Maven)"
    return None


def install() -> str | None:
    """Have it installed; say what is missing where it cannot be."""
    for program, package in (("java", "openjdk-17-jre-headless"), ("mvn", "maven")):
        if shutil.which(program) is None:
            return f"Keycloak is not installed: needs {program} (Debian: {package})"
    directory = TEST_TOOLS
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "keycloak.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (home() / "built").is_file():
            return None
        shutil.rmtree(home(), ignore_errors=True)
        archive = _fetch(directory)
        with zipfile.ZipFile(archive) as content:
            content.extractall(directory)
        archive.unlink()
        for script in (home() / "bin").glob("*.sh"):
            script.chmod(0o755)
        build = [str(home() / "bin" / "kc.sh"), "build", *BUILD_OPTIONS]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL, timeout=BUILD_SECONDS)
        (home() / "built").touch()
    return None


def _fetch(directory: Path) -> Path:
    """The archive from Maven's repositories, whole and as it was."""
    archive = directory / f"{ARTIFACT}-{VERSION}.zip"
    command = ["mvn", "-q", "-B", PLUGIN, f"-Dartifact={COORDINATES}"]
    command += [f"-DoutputDirectory={directory}", "-Dmdep.useBaseVersion=true"]
    subprocess.run(command, check=True, timeout=FETCH_SECONDS, env=dict(os.environ))
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != ARCHIVE_SHA256:
        archive.unlink()
        raise SystemExit(f"{archive.name}: expected SHA-256 {ARCHIVE_SHA256}, found {digest}")
    return archive


if __name__ == "__main__":
    sys.stderr.write(f"{install() or f'Keycloak {VERSION} is in {home()}'}\n")
