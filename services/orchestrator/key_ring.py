"""The platform's keys, which seal secrets: a file outside the database, read anew each time."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from msgspec import Struct

from schemas.errors import ErrorCode
from shared.errors import RefusedError
from shared.local_platform.secrets_key import join_keys, make_key, split_keys
from shared.paths import make_directory, write_atomically

KEY_ID_CHARACTERS: Final = 16
SETTING: Final = "GPUSTEWARD_ORCHESTRATOR_SECRETS_KEY_FILE"


class Sealed(Struct, frozen=True, array_like=True):
    """What is encrypted: a value says whose it is, so that no row can be passed off as another."""

    namespace: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the file, the one in use first."""

    texts: tuple[str, ...]

    @property
    def id_in_use(self) -> str:
        return key_id(self.texts[0])

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(key_id(text) for text in self.texts)

    def seal(self, namespace: str, name: str, value: str) -> bytes:
        """Encrypt a value with the key in use."""
        return self._cipher.encrypt(msgspec.msgpack.encode(Sealed(namespace, name, value)))

    def unseal(self, namespace: str, name: str, sealed: bytes) -> str:
        """Decrypt a value. Raises RefusedError where no key of the file opens it."""
        try:
            content = msgspec.msgpack.decode(self._cipher.decrypt(sealed), type=Sealed)
        except (InvalidToken, msgspec.MsgspecError) as error:
            raise _cannot_open(namespace, name) from error
        if (content.namespace, content.name) != (namespace, name):
            raise _cannot_open(namespace, name)
        return content.value

    @property
    def _cipher(self) -> MultiFernet:
        return MultiFernet([Fernet(text) for text in self.texts])


@dataclass(frozen=True, slots=True)
class KeyRing:
    """`is_own`: the platform makes and changes the file itself; else it is the operator's."""

    path: Path
    is_own: bool

    def read(self) -> Keys | None:
        """Return the keys; None where there is no file yet that the platform may make. Raises
        RefusedError for a file that cannot be read, or holds no keys.
        """
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            if self.is_own:
                return None
            raise _unusable(f"there is no file {self.path}, which {SETTING} names") from None
        except (OSError, UnicodeDecodeError) as error:
            raise _unusable(f"{self.path} cannot be read: {error}") from error
        keys = Keys(tuple(split_keys(text)))
        if not keys.texts:
            raise _unusable(f"{self.path} holds no key")
        for number, key in enumerate(keys.texts, 1):
            _check(key, number, self.path)
        return keys

    def add(self, keys: Keys | None) -> Keys:
        """Put a new key before the others, as the one in use. Raises OSError."""
        return self.write(Keys((make_key(), *(keys.texts if keys is not None else ()))))

    def write(self, keys: Keys) -> Keys:
        """Have the file hold these keys alone. Raises OSError."""
        make_directory(self.path.parent, 0o700)
        write_atomically(self.path, join_keys(list(keys.texts)).encode(), is_durable=True)
        return keys


def key_id(text: str) -> str:
    """Return what names a key without telling it: it is random, so its hash leads to nothing."""
    return sha256(text.encode()).hexdigest()[:KEY_ID_CHARACTERS]


def _check(key: str, number: int, path: Path) -> None:
    try:
        Fernet(key)
    except ValueError as error:
        raise _unusable(
            f"expected line {number} of the keys in {path} to be 32 bytes in URL-safe Base64, as"
            " `gpusteward secret make-key` prints"
        ) from error


def _unusable(message: str) -> RefusedError:
    return RefusedError(ErrorCode.UNSUPPORTED, f"secrets cannot be used: {message}")


def _cannot_open(namespace: str, name: str) -> RefusedError:
    return _unusable(
        f"no key of the platform opens {name} of namespace {namespace}: set it again, or give back"
        " the keys that it was sealed with"
    )
