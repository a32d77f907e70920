"""Where the platform answers: as configured, else what a platform on this machine wrote down."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.client.errors import PlatformUnreachable
from shared.paths import DataDirectory, default_data_dir

URL_VARIABLE: Final = "GPUSTEWARD_URL"
TOKEN_VARIABLE: Final = "GPUSTEWARD_TOKEN"  # noqa: S105  # the variable's name, not a token


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway's base URL and the token to show it.

    `is_supervised`: a supervisor that runs on this machine starts it again whenever it ends.
    """

    url: str
    token: str | None = None
    is_supervised: bool = False


def find_address(
    url: str | None = None,
    *,
    token: str | None = None,
    data_dir: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Address:
    """The argument, else GPUSTEWARD_URL, else the endpoint file of the data directory.

    A `data_dir` given explicitly goes before GPUSTEWARD_URL. The token that a data directory holds
    is shown to its own platform alone. Raises PlatformUnreachable if no platform is known.
    """
    token = token or environ.get(TOKEN_VARIABLE) or None
    known = url or (environ.get(URL_VARIABLE) if data_dir is None else None)
    if known:
        return Address(known.rstrip("/"), token)
    directory = DataDirectory(data_dir or default_data_dir(environ))
    endpoint = directory.read_endpoint()
    if endpoint is None or endpoint.api_url is None:
        raise PlatformUnreachable(f"no platform runs on {directory.root}")
    token = token or directory.read_admin_token()
    return Address(endpoint.api_url, token, is_supervised=True)
