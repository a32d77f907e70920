"""The users of a NATS server, as files: what each logs in with, and the server's part of it."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from shared.errors import StewardError
from shared.messaging.permissions import authorization, inbox_of
from shared.messaging.user_names import SERVICES, bus_user
from shared.paths import give_to_owner_above, make_directory, write_atomically, write_if_changed

LOCAL_ADMIN: Final = "admin_local"


class Credentials(Struct, frozen=True, omit_defaults=True):
    """The content of a credentials file: user, password and inbox as nats-py's `connect` takes
    them; `ca` is the authority by which the server is verified, in PEM, empty without TLS.
    """

    user: str
    password: str
    inbox_prefix: str
    ca: str = ""


class NoSuchUser(StewardError):
    """There is no user of this name."""


class BusUsers:
    """A directory with a credentials file for each user, and `authorization.conf` of them all.

    A server includes the latter; it learns of changes when its configuration is loaded again.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def configuration_path(self) -> Path:
        return self.directory / "authorization.conf"

    @property
    def authority_path(self) -> Path:
        """Return where the authority lies that every credentials file carries."""
        return self.directory / "ca.pem"

    def set_authority(self, pem: str) -> None:
        """Have all credentials carry this authority from now on, empty for none."""
        with self._changing():
            if not pem:
                self.authority_path.unlink(missing_ok=True)
                return
            write_if_changed(self.authority_path, pem.encode())
            give_to_owner_above(self.authority_path)

    def path_of(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def read(self, name: str) -> Credentials:
        return msgspec.json.decode(self.path_of(name).read_bytes(), type=Credentials)

    def create(self, names: Iterable[str]) -> None:
        """Create the missing users, with the services and the admin of this machine."""
        with self._changing():
            for name in (*SERVICES, LOCAL_ADMIN, *names):
                if not self.path_of(name).exists():
                    self._write(name)

    def rotate(self, name: str) -> None:
        """A new password. Raises NoSuchUser."""
        with self._changing():
            self._require(name)
            self._write(name)

    def revoke(self, name: str) -> None:
        """Raises NoSuchUser."""
        with self._changing():
            self._require(name)
            self.path_of(name).unlink()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        make_directory(self.directory, 0o700)
        lock = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
            names = [path.stem for path in self.directory.glob("*.json")]
            self._spread_authority(names)
            password_by_name = {name: self.read(name).password for name in names}
            write_if_changed(self.configuration_path, authorization(password_by_name).encode())
            give_to_owner_above(self.configuration_path)
        finally:
            os.close(lock)

    def _require(self, name: str) -> None:
        if not self.path_of(name).exists():
            raise NoSuchUser(f"there are no credentials of {name} in {self.directory}")

    def _write(self, name: str) -> None:
        bus_user(name)
        self._store(name, Credentials(name, secrets.token_urlsafe(32), inbox_of(name)))

    def _store(self, name: str, credentials: Credentials) -> None:
        write_atomically(self.path_of(name), msgspec.json.encode(credentials))
        give_to_owner_above(self.path_of(name))

    def _spread_authority(self, names: Iterable[str]) -> None:
        path = self.authority_path
        authority = path.read_text() if path.exists() else ""
        for name in names:
            if (stored := self.read(name)).ca != authority:
                self._store(name, msgspec.structs.replace(stored, ca=authority))
