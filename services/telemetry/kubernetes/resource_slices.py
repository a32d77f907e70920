"""Which GPUs the devices of claims are: kubelet names them, their ResourceSlice says what they are.

The plain GET in place of a client library saves an agent some 60 MB.
"""

import asyncio
import ssl
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from services.telemetry.domain.pods import ClaimedDevice
from services.telemetry.sources.dcgm.http import http_get
from services.telemetry.sources.source import SourceFailedError
from shared.kubernetes.access import SERVICE_ACCOUNT
from shared.kubernetes.objects.common import ObjectList
from shared.kubernetes.objects.devices import Device, ResourceSlice
from shared.logging import log

AGAIN_SECONDS: Final = 60.0
MISSING_AGAIN_SECONDS: Final = 10.0
ANSWER_TIMEOUT_SECONDS: Final = 5.0
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")  # since Kubernetes 1.34, 1.33 and 1.32
# Names under which a driver publishes what the device is, the surest first.
ATTRIBUTES: Final = ("uuid", "pciBusID", "pciAddr")


class ClusterApi(Struct, frozen=True, kw_only=True):
    """Of the cluster in which this process is a pod; its files are read anew at each use."""

    address: str = "https://kubernetes.default.svc"
    token_file: Path = SERVICE_ACCOUNT / "token"
    authority_file: Path = SERVICE_ACCOUNT / "ca.crt"


@dataclass(slots=True)
class ResourceSlices:
    """Known for a minute, because a device that is partitioned anew keeps its name.

    `node` is the node's name in the cluster. Without an `api` nothing is asked.
    """

    api: ClusterApi | None
    node: str
    _names: dict[ClaimedDevice, str] = field(default_factory=dict, init=False)
    _asked_at: float = field(default=-AGAIN_SECONDS, init=False)

    async def names(self, claimed: AbstractSet[ClaimedDevice]) -> Mapping[ClaimedDevice, str]:
        """UUIDs or PCI bus ids; a device that is not known is left out."""
        if claimed and self.api is not None:
            age = asyncio.get_running_loop().time() - self._asked_at
            if age >= (MISSING_AGAIN_SECONDS if claimed - self._names.keys() else AGAIN_SECONDS):
                self._asked_at += age
                await self._ask(self.api)
        return self._names

    async def _ask(self, api: ClusterApi) -> None:
        selector = quote(f"spec.nodeName={self.node}")
        error: Exception | None = None
        for version in VERSIONS:
            path = f"/apis/resource.k8s.io/{version}/resourceslices?fieldSelector={selector}"
            try:
                self._names = names_in(await call_api(api, path))
                return
            except (OSError, SourceFailedError, msgspec.DecodeError) as failure:
                error = error or failure
        log.warning("resource_slices_unknown", error=str(error))


def names_in(listed: bytes | str) -> dict[ClaimedDevice, str]:
    """Return the names of each pool's newest generation. Raises msgspec.DecodeError."""
    specs = [
        slice_.spec for slice_ in msgspec.json.decode(listed, type=ObjectList[ResourceSlice]).items
    ]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        key = spec.driver, spec.pool.name
        newest[key] = max(spec.pool.generation, newest.get(key, 0))
    return {
        ClaimedDevice(spec.driver, spec.pool.name, device.name): name
        for spec in specs
        if spec.pool.generation == newest[spec.driver, spec.pool.name]
        for device in spec.devices
        if (name := _name(device))
    }


def _name(device: Device) -> str:
    """An attribute's own domain, as in resource.kubernetes.io/pciBusID, may be left out."""
    attributes = device.attributes | (device.basic.attributes if device.basic is not None else {})
    values = {key.rpartition("/")[2]: value.string for key, value in attributes.items()}
    return next((name for attribute in ATTRIBUTES if (name := values.get(attribute))), "")


async def call_api(
    api: ClusterApi, path: str, *, patch: str | None = None, headers: str = ""
) -> str:
    """A GET, or a merge patch; `headers` are further lines. Raises OSError, SourceFailedError."""
    trusted = ssl.create_default_context(cafile=str(api.authority_file))
    kind = "" if patch is None else "Content-Type: application/merge-patch+json\r\n"
    return await http_get(
        f"{api.address}{path}",
        deadline_seconds=ANSWER_TIMEOUT_SECONDS,
        headers=f"Authorization: Bearer {api.token_file.read_text().strip()}\r\n{kind}{headers}",
        trusted=trusted,
        patch=patch,
    )
