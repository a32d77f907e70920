"""Where the platform answers: as configured, else what a platform on this machine wrote down."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from schemas.errors import ErrorCode
from shared.client.contexts import Context, Contexts
from shared.client.errors import PlatformUnreachable
from shared.errors import RefusedError
from shared.paths import DATA_DIR_VARIABLE, DataDirectory, config_directory, default_data_dir

URL_VARIABLE: Final = "GPUSTEWARD_URL"
AUTHORITY_VARIABLE: Final = "GPUSTEWARD_CA"
TOKEN_VARIABLE: Final = "GPUSTEWARD_TOKEN"  # noqa: S105  # the variable's name, not a token


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway's base URL and the token to show it.

    `is_supervised`: a supervisor that runs on this machine starts it again whenever it ends. Of an
    https address the certificate's authority is one of the system's, that of `ca`, by default the
    file that GPUSTEWARD_CA names, or that of `ca_text`.
    """

    url: str
    token: str | None = None
    is_supervised: bool = False
    ca: str | None = None
    ca_text: str = ""


def find_address(
    url: str | None = None,
    *,
    token: str | None = None,
    data_dir: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Address:
    """The argument, else GPUSTEWARD_URL, else the current context of `gpusteward login`, else the
    endpoint file of the data directory.

    A `data_dir` given explicitly goes before GPUSTEWARD_URL, and GPUSTEWARD_DATA_DIR before the
    context. Of an address without a scheme http is meant. The token that a data directory or a
    context holds is shown to its own platform alone, however that is named. Raises
    PlatformUnreachable if no platform is known, RefusedError for what is no address.
    """
    token = token or environ.get(TOKEN_VARIABLE) or None
    gateway_url = url or (environ.get(URL_VARIABLE) if data_dir is None else None)
    directory = DataDirectory(data_dir or default_data_dir(environ))
    endpoint = directory.read_endpoint()
    if gateway_url:
        base = base_url(gateway_url)
        if endpoint is None or not _is_same(base, endpoint.api_url):
            return Address(base, token or _token_for(base, environ))
        return _own_address(directory, base, token)
    if (context := _current_context(data_dir, environ)) is not None:
        token = token or _contexts(environ).token_of(context)
        if endpoint is not None and _is_same(context.url, endpoint.api_url):
            return _own_address(directory, context.url, token)
        return Address(context.url, token, ca=context.ca)
    if endpoint is None or endpoint.api_url is None:
        raise PlatformUnreachable(f"no platform runs on {directory.root}")
    return _own_address(directory, endpoint.api_url, token)


def _own_address(directory: DataDirectory, url: str, token: str | None) -> Address:
    token = token or directory.read_admin_token()
    return Address(url, token, is_supervised=True, ca=directory.find_authority())


def find_authority(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the file that GPUSTEWARD_CA names, None without it."""
    return environ.get(AUTHORITY_VARIABLE) or None


def is_named(
    url: str | None, data_dir: Path | None = None, environ: Mapping[str, str] = os.environ
) -> bool:
    """True if an address is given: as an argument, by GPUSTEWARD_URL or by the current context."""
    if url or (data_dir is None and environ.get(URL_VARIABLE)):
        return True
    return _current_context(data_dir, environ) is not None


def _contexts(environ: Mapping[str, str]) -> Contexts:
    return Contexts(config_directory(environ))


def _current_context(data_dir: Path | None, environ: Mapping[str, str]) -> Context | None:
    """Return the context that is meant; None where a data directory is."""
    if data_dir is not None or environ.get(DATA_DIR_VARIABLE):
        return None
    return _contexts(environ).current()


def _token_for(url: str, environ: Mapping[str, str]) -> str | None:
    contexts = _contexts(environ)
    for context in contexts.list_contexts():
        if context.is_signed_in and _is_same(url, context.url):
            return contexts.token_of(context)
    return None


def base_url(text: str) -> str:
    """Return the address that was typed with its scheme. Raises RefusedError for what is none."""
    url = (text if "://" in text else f"http://{text}").rstrip("/")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected the address of a platform's API, such as http://127.0.0.1:8470, got"
            f" {text!r} (--url or {URL_VARIABLE})",
        )
    return url


def _is_same(url: str, other: str | None) -> bool:
    return other is not None and _place(url) == _place(other)


def _place(url: str) -> tuple[str, str, int | None, str]:
    """Return what tells addresses apart: localhost is another name of 127.0.0.1."""
    parts = urlsplit(url)
    host = (parts.hostname or "").replace("localhost", "127.0.0.1")
    return parts.scheme, host, parts.port, parts.path.rstrip("/")
