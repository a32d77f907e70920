"""Unprivileged users of this host, for what root starts and must not run as root."""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import structlog

from shared.errors import StewardError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Identity:
    """The user that a child runs as."""

    uid: int
    gid: int
    name: str


class NoSystemUser(StewardError):
    """There is no such user, and it could not be made; the text says what to do."""


def identity_of(name: str) -> Identity:
    """Raises KeyError if there is no such user."""
    entry = pwd.getpwnam(name)
    return Identity(uid=entry.pw_uid, gid=entry.pw_gid, name=name)


def system_user(name: str, *, home: Path) -> Identity:
    """The system user of that name, made if missing, or `nobody` where that fails.

    Raises NoSystemUser where there is no `nobody` either.
    """
    try:
        return identity_of(name)
    except KeyError:
        failure = _add_system_user(name, home)
    try:
        return identity_of(name)
    except KeyError:
        log.warning("system_user_missing", wanted=name, instead="nobody", reason=failure)
    try:
        return identity_of("nobody")
    except KeyError:
        raise NoSystemUser(
            f"the user {name} could not be made: {failure}; make it with `useradd --system {name}`"
        ) from None


def can_reach(path: Path, identity: Identity) -> bool:
    """Return True if the user may pass every directory above `path` and read and execute `path`
    itself.

    Permission bits only; access control lists can only make the answer too cautious or Postgres'
    own error explain.
    """
    resolved = path.resolve()
    if not resolved.exists() or not _allows(resolved.stat(), identity, 0o5):
        return False
    return all(_allows(parent.stat(), identity, 0o1) for parent in resolved.parents)


def can_pass(directory: Path, identity: Identity) -> bool:
    """Return True if the user may pass `directory` and all above it."""
    resolved = directory.resolve()
    return all(
        _allows(directory.stat(), identity, 0o1) for directory in (resolved, *resolved.parents)
    )


def may_read(path: Path, identity: Identity) -> bool:
    """Return True if the user may read a file, or list and pass a directory."""
    status = path.stat()
    return _allows(status, identity, 0o5 if stat.S_ISDIR(status.st_mode) else 0o4)


def find_closed_ancestor(path: Path, identity: Identity) -> Path | None:
    """The uppermost directory above `path` that the user may not pass."""
    above = reversed(path.parents)
    return next(
        (directory for directory in above if not _allows(directory.stat(), identity, 0o1)), None
    )


def _allows(stat: os.stat_result, identity: Identity, mode: int) -> bool:
    if stat.st_uid == identity.uid:
        granted = stat.st_mode >> 6
    elif stat.st_gid == identity.gid:
        granted = stat.st_mode >> 3
    else:
        granted = stat.st_mode
    return granted & mode == mode


def _add_system_user(name: str, home: Path) -> str | None:
    """Add the user; return why that failed, or None."""
    useradd = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    if useradd is None:
        return "there is no useradd"
    made = subprocess.run(
        [
            *(useradd, "--system", "--user-group", "--no-create-home"),
            *("--home-dir", str(home), "--shell", "/usr/sbin/nologin", name),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if made.returncode == 0:
        log.info("system_user_made", user=name)
        return None
    return made.stderr.strip() or f"useradd ended with status {made.returncode}"
