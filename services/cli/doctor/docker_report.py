"""What the container engine says, asked as the executor would ask it."""

import os
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from shared.paths import DOCKER_SOCKET

ADDRESS_VARIABLES: Final = ("GPUSTEWARD_EXECUTOR_DOCKER_HOST", "DOCKER_HOST")


class DockerReport(Struct, frozen=True, kw_only=True):
    """`info` and `version` are the engine's own; empty with an `error`."""

    address: str
    error: str | None = None
    info: dict[str, Any] = {}
    version: dict[str, Any] = {}

    def text(self, key: str) -> str:
        """A text of `info`, empty if it has none."""
        value = self.info.get(key)
        return value if isinstance(value, str) else ""


def docker_address(environment: Mapping[str, str]) -> str:
    """Return the address of the container engine, by the executor's own setting or Docker's."""
    addresses = (environment.get(name) for name in ADDRESS_VARIABLES)
    return next((address for address in addresses if address), f"unix://{DOCKER_SOCKET}")


def ask_docker(timeout_seconds: float, environment: Mapping[str, str]) -> DockerReport:
    """Never raises; what could not be asked is an `error`."""
    address = docker_address(environment)
    # Its path is ours to check: the SDK says "connection aborted" for whatever is wrong with it.
    socket_path = address.removeprefix("unix://")
    if address.startswith("unix://") and not os.path.lexists(socket_path):
        return DockerReport(address=address, error=f"no socket {socket_path}")
    # It brings `requests`, which nothing else here needs.
    import docker
    from docker.utils import kwargs_from_env

    # The environment's TLS settings, at the address that was chosen.
    client_options: dict[str, Any] = {
        **kwargs_from_env(environment=dict(environment)),
        "base_url": address,
    }
    try:
        client = docker.APIClient(
            **client_options, timeout=max(1, round(timeout_seconds)), version="auto"
        )
    except Exception as failure:  # noqa: BLE001  # requests, urllib3, ssl and the SDK raise their own
        return DockerReport(address=address, error=str(failure))
    try:
        return DockerReport(
            address=address, info=_mapping(client.info()), version=_mapping(client.version())
        )
    except Exception as failure:  # noqa: BLE001  # as above
        return DockerReport(address=address, error=str(failure))
    finally:
        client.close()


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
