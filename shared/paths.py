"""Where an installation's files are, and what clients on the same machine read."""

import contextlib
import fcntl
import lzma
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

DATA_DIR_VARIABLE: Final = "GPUSTEWARD_DATA_DIR"
TOOLS_VARIABLE: Final = "GPUSTEWARD_TOOLS_DIR"
DEFAULT_HTTP_PORT: Final = 8470
DEFAULT_METRICS_PORT: Final = 9400  # of an agent
DEFAULT_NATS_PORT: Final = 4222
DOCKER_SOCKET: Final = Path("/var/run/docker.sock")
ROOT_STATE_DIR: Final = Path("/var/lib/gpusteward")
SOURCE_ROOT: Final = Path(__file__).resolve().parents[1]  # holds schemas, services and shared
# A wheel has its lock files in one archive, a JSON object by path: they are hashes, and share most.
PACKED_LOCKS: Final = SOURCE_ROOT / "shared" / "locks.json.xz"


def find_below(name: str, roots: Iterable[Path]) -> Path | None:
    """Return the file of this name below the first root that has it; None outside of all."""
    for root in roots:
        base = root.resolve()
        try:
            path = (base / name).resolve()
            if path.is_relative_to(base) and path.is_file():
                return path
        except (OSError, ValueError, RuntimeError):  # the last for links in a circle
            continue
    return None


def read_lock(path: Path) -> bytes:
    """Return a lock file of the source tree, which a wheel has in its archive alone."""
    if path.is_file():
        return path.read_bytes()
    locks: dict[str, str] = msgspec.json.decode(lzma.decompress(PACKED_LOCKS.read_bytes()))
    return locks[path.relative_to(SOURCE_ROOT).as_posix()].encode()


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """GPUSTEWARD_DATA_DIR, else /var/lib/gpusteward for root, else the XDG data directory."""
    if path := environ.get(DATA_DIR_VARIABLE):
        return Path(path).absolute()
    if os.geteuid() == 0:
        return ROOT_STATE_DIR
    xdg = environ.get("XDG_DATA_HOME", "")
    # The XDG specification has relative paths ignored.
    base = Path(xdg) if xdg.startswith("/") else Path.home() / ".local" / "share"
    return base / "gpusteward"


def tools_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where tools of other makers and models are installed: GPUSTEWARD_TOOLS_DIR, else
    `tools` in the data directory.
    """
    path = environ.get(TOOLS_VARIABLE)
    return Path(path).absolute() if path else default_data_dir(environ) / "tools"


def config_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where a user's settings of this product are, by the XDG specification."""
    xdg = environ.get("XDG_CONFIG_HOME", "")
    base = Path(xdg) if xdg.startswith("/") else Path.home() / ".config"
    return base / "gpusteward"


def python_path(environ: Mapping[str, str] = os.environ) -> str:
    """The PYTHONPATH of a child that runs elsewhere and imports this installation."""
    inherited = environ.get("PYTHONPATH")
    return f"{SOURCE_ROOT}{os.pathsep}{inherited}" if inherited else str(SOURCE_ROOT)


def make_directory(path: Path, mode: int) -> None:
    """Make `path` and its missing parents with exactly this mode, whatever the umask."""
    if path.is_dir():
        return
    make_directory(path.parent, mode)
    try:
        path.mkdir()
    except FileExistsError:
        return
    path.chmod(mode)


def lock_file(path: Path) -> int | None:
    """A descriptor of the file, made where it is missing, that holds its lock until it is closed or
    its process ends. None: another has it. Raises OSError, also for a link.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def write_atomically(
    path: Path, content: bytes, *, mode: int = 0o600, is_durable: bool = False
) -> None:
    """Replace `path` as a whole: a reader sees the old content or the new. Raises OSError.

    If it is durable, so does who reads after a power cut, and afterwards the new one alone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(descriptor)  # before the name is its own, or that may be of an empty file
        temporary.replace(path)
        if is_durable:
            _sync(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_if_changed(path: Path, content: bytes) -> None:
    """Write as `write_atomically` does, unless the file has this content: on a full disk that needs
    no room.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return
    write_atomically(path, content)


def give_to_owner_above(path: Path) -> None:
    """Give what root writes into another user's directory to that user, who could not read it
    otherwise.
    """
    owner = path.parent.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def is_process_alive(pid: int) -> bool:
    """True if a process has this id, ours or another user's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Endpoint(Struct, frozen=True, kw_only=True):
    """How programs on this machine reach a running platform. `pid` is the supervisor's."""

    pid: int
    api_url: str | None = None
    nats_url: str | None = None
    nats_credentials_path: str | None = None
    postgres_dsn: str | None = None


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """The names inside a data directory. `prepare` makes it; nothing above it is ever changed."""

    root: Path

    @property
    def lock_path(self) -> Path:
        return self.root / "lock"

    @property
    def endpoint_path(self) -> Path:
        return self.root / "endpoint.json"

    @property
    def state_path(self) -> Path:
        return self.root / "state.json"

    @property
    def secrets_key_path(self) -> Path:
        """Return the file of the keys that seal secrets, unless a setting names another."""
        return self.root / "secrets.key"

    @property
    def admin_token_path(self) -> Path:
        return self.root / "admin_token"

    def read_admin_token(self) -> str | None:
        """The token that `up` made for this user's own clients; None if it made none."""
        try:
            return self.admin_token_path.read_text().strip() or None
        except OSError:
            return None

    @property
    def restoring_path(self) -> Path:
        """There while a restore is under way, and after one that was cut off."""
        return self.root / "RESTORING"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def tls(self) -> Path:
        return self.root / "tls"

    @property
    def authority_path(self) -> Path:
        """Return where the authority of this installation's own certificates is, if it has any."""
        return self.tls / "ca.pem"

    def find_authority(self) -> str | None:
        """Return that path where the file is there and readable, else None."""
        is_there = os.access(self.authority_path, os.R_OK)
        return str(self.authority_path) if is_there else None

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    def log_path(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def ready_path(self, name: str) -> Path:
        return self.run / f"{name}.ready"

    def prepare(self) -> None:
        """Make the directory and those of logs and run files.

        As root it may be traversed by others, because the database's user has to reach its part;
        what must stay private is 0600 or lies in a 0700 directory.
        """
        make_directory(self.root, 0o711 if os.geteuid() == 0 else 0o700)
        make_directory(self.logs, 0o700)
        make_directory(self.run, 0o700)

    def installation_id(self) -> UUID:
        """The id that marks what this installation started; lasts as long as the directory."""
        path = self.root / "installation_id"
        try:
            return UUID(path.read_text().strip())
        except FileNotFoundError:
            made = uuid4()
            write_atomically(path, f"{made}\n".encode())
            return made

    def write_endpoint(self, endpoint: Endpoint) -> None:
        write_atomically(self.endpoint_path, msgspec.json.encode(endpoint))

    def read_endpoint(self) -> Endpoint | None:
        """Read the endpoint; None if no platform runs here: no readable file, or its supervisor is
        gone.
        """
        try:
            endpoint = msgspec.json.decode(self.endpoint_path.read_bytes(), type=Endpoint)
        except (OSError, msgspec.DecodeError):
            return None
        return endpoint if is_process_alive(endpoint.pid) else None

    def remove_endpoint(self) -> None:
        self.endpoint_path.unlink(missing_ok=True)
