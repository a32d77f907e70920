"""Installing a tool into an environment of its own, from the packages that its lock names."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from shared.benchmarks.tools.environment import (
    Environment,
    PythonVersion,
    Receipt,
    Tool,
    lock_digest,
)
from shared.errors import StewardError
from shared.paths import make_directory, read_lock, write_atomically

PYTHON_NAMES: Final = ("python3.13", "python3.12", "python3.11", "python3.10", "python3")
INSTALL_SECONDS: Final = 1800.0
FIRST_RUN_SECONDS: Final = 300.0

Say = Callable[[str], None]


class InstallationFailed(StewardError):
    """The tool could not be installed; the text says why and what to do."""


def install(tool: Tool, tools: Path, say: Say, *, reinstall: bool = False) -> Environment:
    """Install it below `tools`, unless it is there; `say` is called with what happens.

    What a cut off installation left behind is never taken for one: the receipt is written when
    everything is there and the program has run. `reinstall` begins anew. Raises InstallationFailed.
    """
    environment = Environment(tool, tools)
    make_directory(tools, 0o755)
    with _alone(tools, say):
        if environment.is_current() and not reinstall:
            say(f"{tool.name} {tool.version} is installed in {environment.root}")
            return environment
        environment.receipt_path.unlink(missing_ok=True)
        say(f"installing {tool.name} {tool.version} into {environment.root}")
        with TemporaryDirectory() as folder:
            lock = Path(folder) / "requirements.lock"
            lock.write_bytes(read_lock(tool.lock_path))
            _fill(environment, lock, say)
        say("starting it once, which takes some seconds")
        version = _version_of(environment)
        if version != tool.version:
            raise InstallationFailed(f"expected {tool.name} {tool.version}, it says {version!r}")
        receipt = Receipt(version=tool.version, lock_digest=lock_digest(tool.lock_path))
        write_atomically(environment.receipt_path, msgspec.json.encode(receipt), mode=0o644)
        say(f"{tool.name} {tool.version} is installed in {environment.root}")
    return environment


def install_packages(lock_path: Path, directory: Path, say: Say) -> None:
    """Put the locked packages into a plain directory, without what they depend on.

    An installation that was cut off leaves nothing there. Raises InstallationFailed.
    """
    make_directory(directory.parent, 0o755)
    with _alone(directory.parent, say):
        if directory.is_dir():
            return
        unfinished = directory.with_name(f".{directory.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        packages = ["--no-deps", "--target", str(unfinished), "--require-hashes"]
        packages += ["-r", str(lock_path)]
        if (uv := find_uv()) is not None:
            _run([uv, "pip", "install", "--python", sys.executable, *packages])
        else:
            with TemporaryDirectory() as folder:  # an environment made by uv or pipx has no pip
                _run([sys.executable, "-m", "venv", folder])
                pip = f"{folder}/bin/pip"
                _run([pip, "install", "--disable-pip-version-check", *packages])
        unfinished.rename(directory)


@contextmanager
def _alone(tools: Path, say: Say) -> Iterator[None]:
    """Hold the lock of the directory; a second installation waits for the first."""
    descriptor = os.open(tools / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another installation to end")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fill(environment: Environment, lock: Path, say: Say) -> None:
    uv, tool = find_uv(), environment.tool
    root, python = str(environment.root), str(environment.python)
    packages = ["--require-hashes", "-r", str(lock)]
    if uv is not None:
        version_spec = fitting_python(tool) or ">={}.{},<{}.{}".format(
            *tool.pythons[0], *tool.pythons[1]
        )
        _run([uv, "venv", "--quiet", "--clear", "--no-project", "--python", version_spec, root])
        _run([uv, "pip", "install", "--python", python, *packages])
        return
    interpreter = fitting_python(tool)
    if interpreter is None:
        raise InstallationFailed(
            f"expected a Python from {_text(tool.pythons[0])} on and before "
            f"{_text(tool.pythons[1])} for {tool.name}, found none on PATH: install one, or "
            "install uv, which fetches it (pip install uv)"
        )
    say("without uv, this takes a few minutes")
    _run([interpreter, "-m", "venv", "--clear", root])
    _run([python, "-m", "pip", "install", "--disable-pip-version-check", *packages])


def find_uv() -> str | None:
    """The one beside our own Python, else the one on PATH."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")


def fitting_python(tool: Tool) -> str | None:
    """A Python that the tool runs on: ours if it is one, else the newest on PATH."""
    candidates = [sys.executable, *filter(None, map(shutil.which, PYTHON_NAMES))]
    return next((python for python in candidates if _fits(tool, python)), None)


def _text(version: PythonVersion) -> str:
    return ".".join(map(str, version))


def _fits(tool: Tool, python: str) -> bool:
    first, end = tool.pythons
    is_fitting = f"import sys; sys.exit(not {first} <= sys.version_info[:2] < {end})"
    try:
        return (
            subprocess.run(
                [python, "-c", is_fitting], capture_output=True, timeout=30, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _run(argv: Sequence[str]) -> None:
    """Run a step, its own progress going to our standard error. Raises InstallationFailed."""
    try:
        # Elsewhere than in a project, whose settings would count for uv.
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            cwd="/",
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationFailed(f"{Path(argv[0]).name} failed: {error}") from error
    if done.returncode != 0:
        raise InstallationFailed(
            f"`{Path(argv[0]).name} {argv[1]}` ended with exit {done.returncode}; "
            "its own lines above say why; then run it again"
        )


def _version_of(environment: Environment) -> str:
    try:
        completed = subprocess.run(
            [environment.program, environment.tool.version_argument],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FIRST_RUN_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationFailed(f"it was installed, but does not start: {error}") from error
    words = completed.stdout.split()
    return words[-1] if words else (completed.stderr.strip().splitlines() or ["nothing"])[-1]
