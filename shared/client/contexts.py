"""The platforms that this user has signed in to, each by a name, and which of them is meant.

Tokens are in the keyring of the system where there is one, else in the file, which its user alone
reads.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from shared.errors import RefusedError
from shared.near_words import did_you_mean
from shared.paths import make_directory, write_atomically

FILE_NAME: Final = "contexts.json"
KEYRING_SERVICE: Final = "gpusteward"
DIRECTORY_MODE: Final = 0o700


class Context(Struct, frozen=True, kw_only=True):
    """A platform. `token` is None where it is `in_keyring`, or nobody is signed in any more.

    `person` is who signed in; `is_session`: at the platform's provider, not with a token. `ca` is
    the file with the authority of an https address, None for the system's.
    """

    name: str
    url: str
    person: str = ""
    token: str | None = None
    in_keyring: bool = False
    is_session: bool = False
    ca: str | None = None

    @property
    def is_signed_in(self) -> bool:
        return self.in_keyring or self.token is not None


class _File(Struct, frozen=True, kw_only=True):
    current: str | None = None
    contexts: tuple[Context, ...] = ()


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a directory. Raises RefusedError for a file that cannot be read, and for a
    name of none.
    """

    directory: Path

    @property
    def path(self) -> Path:
        return self.directory / FILE_NAME

    def list_contexts(self) -> tuple[Context, ...]:
        """Return all, by name."""
        return self._read().contexts

    def current(self) -> Context | None:
        """Return the one that is meant where nothing else is said."""
        file = self._read()
        return next((context for context in file.contexts if context.name == file.current), None)

    def at(self, url: str) -> Context | None:
        """Return the one of a platform; None for a platform that nobody signed in to."""
        return next((context for context in self._read().contexts if context.url == url), None)

    def find(self, name: str) -> Context:
        """Return the one of this name."""
        contexts = self._read().contexts
        for context in contexts:
            if context.name == name:
                return context
        names = [context.name for context in contexts]
        listing = f"there are {', '.join(names)}" if names else "there is none yet"
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"no context is called {name} ({listing}; `gpusteward login URL` makes one)"
            f"{did_you_mean(name, names)}",
        )

    def token_of(self, context: Context) -> str | None:
        """Return the token that a platform is shown; None where nobody is signed in.

        Raises RefusedError where the keyring does not give it.
        """
        return _ask_keyring("get", context.name) if context.in_keyring else context.token

    def store(self, name: str | None, url: str, token: str, **fields: Any) -> Context:
        """Store a sign-in, have it be the current context, and return it."""
        file = self._read()
        present = self.at(url)
        name = name or (present.name if present is not None else self._free_name(url))
        context = Context(name=name, url=url, token=token, **fields)
        if has_keyring():
            _ask_keyring("set", name, token)
            context = replace(context, token=None, in_keyring=True)
        remaining = tuple(context for context in file.contexts if context.name != name)
        self._write(_File(current=name, contexts=_by_name((*remaining, context))))
        return context

    def use(self, name: str) -> Context:
        """Have a context be the current one."""
        context = self.find(name)
        self._write(replace(self._read(), current=name))
        return context

    def forget_token(self, name: str) -> None:
        """Forget what the platform was shown; the context stays."""
        context = self.find(name)
        self._forget_in_keyring(context)
        file = self._read()
        signed_out = replace(context, token=None, in_keyring=False)
        remaining = tuple(context for context in file.contexts if context.name != name)
        self._write(replace(file, contexts=_by_name((*remaining, signed_out))))

    def remove(self, name: str) -> None:
        """Forget a platform."""
        self._forget_in_keyring(self.find(name))
        file = self._read()
        remaining = tuple(context for context in file.contexts if context.name != name)
        current = None if file.current == name else file.current
        self._write(_File(current=current, contexts=remaining))

    def _forget_in_keyring(self, context: Context) -> None:
        if context.in_keyring:
            _ask_keyring("delete", context.name)

    def _free_name(self, url: str) -> str:
        parts = urlsplit(url)
        host = (parts.hostname or "platform").replace(":", "-")
        names = {context.name for context in self._read().contexts}
        return host if host not in names else f"{host}-{parts.port or parts.scheme}"

    def _read(self) -> _File:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_File)
        except FileNotFoundError:
            return _File()
        except (OSError, msgspec.DecodeError) as error:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected the contexts of this user in {self.path}, found what cannot be read"
                f" ({error}); remove that file, then `gpusteward login URL` again",
            ) from error

    def _write(self, file: _File) -> None:
        make_directory(self.directory, DIRECTORY_MODE)
        write_atomically(self.path, msgspec.json.format(msgspec.json.encode(file)) + b"\n")


def _by_name(contexts: tuple[Context, ...]) -> tuple[Context, ...]:
    return tuple(sorted(contexts, key=lambda context: context.name))


def has_keyring() -> bool:
    """Return whether the library is installed, and the system has a keyring that it can use."""
    try:
        import keyring
        from keyring.core import recommended
    except ImportError:
        return False
    return bool(recommended(keyring.get_keyring()))


def _ask_keyring(verb: str, name: str, *secret: str) -> str | None:
    """Get, set or delete a token. Raises RefusedError where the keyring is locked or away."""
    try:
        import keyring
        from keyring.errors import KeyringError, PasswordDeleteError

        try:
            answer: str | None = getattr(keyring, f"{verb}_password")(
                KEYRING_SERVICE, name, *secret
            )
        except PasswordDeleteError:
            return None  # somebody else has taken it out
        except KeyringError as error:
            raise _keyring_closed(name, str(error)) from error
    except ImportError as error:
        raise _keyring_closed(name, "the library `keyring` is not installed here") from error
    if verb == "get" and answer is None:
        raise _keyring_closed(name, "it has none")
    return answer


def _keyring_closed(name: str, reason: str) -> RefusedError:
    return RefusedError(
        ErrorCode.UNAUTHENTICATED,
        f"the keyring does not give the token of the context {name}: {reason}; unlock it, or sign"
        " in again with `gpusteward login URL`",
    )
