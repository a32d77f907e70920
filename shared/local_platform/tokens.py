"""The file of tokens of a platform on this machine, and whether it needs one."""

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from schemas.gateway.tokens import Role, Token
from shared.paths import DataDirectory, give_to_owner_above, write_atomically
from shared.settings import SettingsError

TOKENS_FILE_VARIABLE: Final = "GPUSTEWARD_GATEWAY_TOKENS_FILE"
OIDC_ISSUER_VARIABLE: Final = "GPUSTEWARD_GATEWAY_OIDC_ISSUER"


def digest_of(token: str) -> str:
    """Return the digest that is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def tokens_path(directory: DataDirectory, environ: Mapping[str, str]) -> Path:
    """Return where tokens are stored: as configured, else in the data directory."""
    path = environ.get(TOKENS_FILE_VARIABLE)
    return Path(path) if path else directory.root / "tokens.json"


def read_tokens(path: Path) -> tuple[Token, ...]:
    """Raises SettingsError if there is none, or the file cannot be read."""
    try:
        tokens = msgspec.json.decode(path.read_bytes(), type=tuple[Token, ...])
    except (OSError, msgspec.DecodeError) as error:
        raise SettingsError(f"the file of tokens {path}: {error}") from error
    if not tokens:
        raise SettingsError(f"the file of tokens {path} has none")
    return tokens


def ensure_admin_token(directory: DataDirectory, tokens: Path) -> None:
    """Have this user's clients find an admin's token in the data directory, one that `tokens` has.

    Raises SettingsError for a file of tokens that cannot be read.
    """
    hashes = {token.token_sha256 for token in read_tokens(tokens)} if tokens.exists() else set()
    token = directory.read_admin_token()
    if token is None or digest_of(token) not in hashes:
        made = create_token(tokens, Role.ADMIN, "default")
        write_atomically(directory.admin_token_path, f"{made}\n".encode())


def create_token(path: Path, role: Role, namespace: str) -> str:
    """Add a new token to the file, which is made if need be, and return it.

    Raises SettingsError for a file that cannot be read, msgspec.ValidationError for a namespace
    that is none.
    """
    token = secrets.token_urlsafe(32)
    tokens = read_tokens(path) if path.exists() else ()
    entry = {"token_sha256": digest_of(token), "role": role, "namespace": namespace}
    added = (*tokens, msgspec.convert(entry, Token))
    write_atomically(path, msgspec.json.format(msgspec.json.encode(added)) + b"\n")
    give_to_owner_above(path)
    return token
