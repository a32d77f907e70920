"""The keys that seal secrets: their form, which needs no cipher to be made."""

import base64
import secrets
from typing import Final

KEY_BYTES: Final = 32


def make_key() -> str:
    """Return a new key in the form of Fernet's: 32 random bytes in URL-safe Base64."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def split_keys(text: str) -> list[str]:
    """Return the keys of a file, one a line; empty lines and those that begin with # are none."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def join_keys(keys: list[str]) -> str:
    """Return a file's text with these keys, each once, the one in use first."""
    return "".join(f"{key}\n" for key in dict.fromkeys(keys))
