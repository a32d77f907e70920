"""The user that engines run as where the executor is root: one that owns nothing of this host.

What it has to read may lie where it may not pass, such as an interpreter below /root. The engine
then gets a mount namespace of its own, in which the closed directory holds that and nothing else.
"""

import ctypes
import grp
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from shared.errors import StewardError
from shared.paths import SOURCE_ROOT, make_directory
from shared.processes.users import (
    Identity,
    NoSystemUser,
    find_closed_ancestor,
    identity_of,
    may_read,
    system_user,
)

ENGINE_USER: Final = "gpusteward-engine"
SETTING: Final = "GPUSTEWARD_EXECUTOR_ENGINE_USER"
PROBE_SECONDS: Final = 30.0
_DEVICES: Final = ("nvidia*", "kfd", "dri/render*")
_DEVICE_GROUPS: Final = ("video", "render")
_CLONE_NEWNS: Final = 0x20000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_PR_SET_NO_NEW_PRIVS: Final = 38
_libc: Final = ctypes.CDLL(None, use_errno=True)


class NoEngineUser(StewardError):
    """Engines cannot run as an unprivileged user here; the text says what to do."""


@dataclass(frozen=True, slots=True)
class EngineUser:
    """`home` is its own, and where its engines start."""

    identity: Identity
    home: Path

    def entering(self, needed: Iterable[Path]) -> Callable[[], None]:
        """Return a function that a child of root calls before it executes a program.

        The program may read the `needed` paths. The function raises OSError in the child.
        """
        existing_paths = (
            path
            for needed_path in needed
            for path in (needed_path, needed_path.resolve())
            if path.exists()
        )
        # What stays closed to it would only close what else is shown below.
        paths = {self.home, *(path for path in existing_paths if may_read(path, self.identity))}
        closed = {
            path: above for path in paths if (above := find_closed_ancestor(path, self.identity))
        }
        groups = sorted({self.identity.gid, *device_groups()})
        identity, home = self.identity, self.home

        def enter() -> None:
            if closed:
                _show_only(closed)
            os.chdir(home)
            os.setgroups(groups)
            os.setresgid(identity.gid, identity.gid, identity.gid)
            os.setresuid(identity.uid, identity.uid, identity.uid)
            _call(_libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

        return enter


def engine_user(name: str, home: Path) -> EngineUser | None:
    """Return the user that engines run as; None to run them as ourselves, as non-root or by `name`.

    An empty name is a system user of our own, made if missing. Makes `home`. Raises NoEngineUser.
    """
    if os.geteuid() != 0:
        own_name = _own_name()
        if name not in {"", own_name}:
            raise NoEngineUser(
                f"expected {SETTING} to be {own_name}: only root starts engines as another"
            )
        return None
    if name == "root":
        return None
    user = EngineUser(_identity(name), home)
    make_directory(home, 0o700)
    os.chown(home, user.identity.uid, user.identity.gid)
    if (problem := _problem(user.identity, home.parent)) is not None:
        raise NoEngineUser(
            f"expected engines to run as {user.identity.name} and not as root, but it cannot run "
            f"{sys.executable}: {problem}; install GPU Steward where every user may read, such as "
            f"/opt, or set {SETTING}=root"
        )
    return user


def interpreter_paths() -> tuple[Path, ...]:
    """Return the paths from which our own engines are read."""
    base = Path(sys.executable).resolve().parents[1]
    return (Path(sys.prefix), Path(sys.base_prefix), base, SOURCE_ROOT)


def program_paths(program: str) -> Sequence[Path]:
    """Return the paths from which a program of a virtual environment is read: itself and its
    interpreter.
    """
    folder = Path(program).parent
    if not (folder / "python").exists():
        return (Path(program),)
    return (folder.parent, (folder / "python").resolve().parents[1])


def device_groups() -> set[int]:
    """The groups that may use this host's GPUs, without root's."""
    group_ids = {path.stat().st_gid for pattern in _DEVICES for path in Path("/dev").glob(pattern)}
    for name in _DEVICE_GROUPS:
        try:
            group_ids.add(grp.getgrnam(name).gr_gid)
        except KeyError:
            continue
    return group_ids - {0}


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _identity(name: str) -> Identity:
    if not name:
        try:
            return system_user(ENGINE_USER, home=Path("/nonexistent"))
        except NoSystemUser as error:
            raise NoEngineUser(f"engines do not run as root, and {error}") from error
    try:
        return identity_of(name)
    except KeyError:
        raise NoEngineUser(
            f"expected a user for engines, {SETTING}={name} is none; "
            f"make it with `useradd --system {name}`"
        ) from None


@cache
def _problem(identity: Identity, above_home: Path) -> str | None:
    """Return why the user cannot run our interpreter, or None."""
    enter = EngineUser(identity, above_home).entering(interpreter_paths())
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-c", ""],
            env={},
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
            preexec_fn=enter,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    lines = ran.stderr.strip().splitlines()
    return None if ran.returncode == 0 else (lines[-1] if lines else f"exit {ran.returncode}")


def _show_only(closed: dict[Path, Path]) -> None:
    """Hide each closed directory but for the given paths below it, in a mount namespace of its
    own.
    """
    _call(_libc.unshare, _CLONE_NEWNS)
    _mount(b"none", b"/", None, _MS_REC | _MS_SLAVE)
    # Sorted, a directory comes before what is in it.
    opened = {path: os.open(path, os.O_PATH) for path in sorted(closed)}
    for above in set(closed.values()):
        _mount(b"tmpfs", os.fsencode(above), b"tmpfs", 0, b"mode=755,size=1m")
    for path, descriptor in opened.items():
        if path.exists():  # below another that is shown
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            path.mkdir()
        else:
            path.touch()
        _mount(b"/proc/self/fd/%d" % descriptor, os.fsencode(path), None, _MS_BIND | _MS_REC)
    for descriptor in opened.values():
        os.close(descriptor)


def _mount(
    source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None
) -> None:
    _call(_libc.mount, source, target, kind, ctypes.c_ulong(flags), data)


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
