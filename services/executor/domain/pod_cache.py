"""Where an engine in a pod keeps what it compiles, on a disk that the executor never sees.

A directory's name is new unless an engine that became ready left it: of what is not known to be
good nothing is ever used again, and nothing needs to be removed first.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

_HOST_PATH: Final = "hostPath"
_CLAIM: Final = "persistentVolumeClaim"
# Of GPU Feature Discovery and AMD's node labeller; the driver's version is one label or several.
_MODELS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
_DRIVERS: Final = ("nvidia.com/cuda.driver", "amd.com/gpu.driver-version")


class CacheVolume(Struct, frozen=True):
    """What holds the directories: one of each node, or a claim of the engine's namespace."""

    kind: Literal["hostPath", "persistentVolumeClaim"]
    name: str  # the directory's path, or the claim's name

    @classmethod
    def of(cls, setting: str) -> "CacheVolume | None":
        """`hostPath:/a/path` or `persistentVolumeClaim:name`; None of an empty one."""
        kind, _, name = setting.partition(":")
        if kind == _HOST_PATH:
            return cls("hostPath", name)
        return cls("persistentVolumeClaim", name) if kind == _CLAIM else None

    @property
    def claim(self) -> str | None:
        return self.name if self.kind == _CLAIM else None

    @property
    def source(self) -> dict[str, dict[str, str]]:
        """The volume source for a pod."""
        if self.kind == _CLAIM:
            return {_CLAIM: {"claimName": self.name}}
        return {_HOST_PATH: {"path": self.name, "type": "DirectoryOrCreate"}}


class CacheNode(Struct, frozen=True, kw_only=True):
    """A node as far as what is compiled there depends on it. `boot_id` is another after each
    start of its kernel.
    """

    name: str
    labels: Mapping[str, str]
    boot_id: str

    def traits(self) -> tuple[str, ...]:
        """GPU model and driver; of a node whose labels do not name both, this node since its boot:
        its hardware and, without a driver's operator, which labels nodes, its driver stay until
        the next.
        """
        models, drivers = self._labels_with(_MODELS), self._labels_with(_DRIVERS)
        return (*models, *drivers) if models and drivers else (self.name, self.boot_id)

    def _labels_with(self, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            f"{name}={value}"
            for name, value in sorted(self.labels.items())
            if name.startswith(prefixes)
        )


class CacheUse(Struct, frozen=True, kw_only=True):
    """What decides what is compiled, and whose it is. `namespace` is ours, `pod_namespace` the
    cluster's; `reference` is the image as it is asked for.
    """

    volume: CacheVolume
    node: CacheNode
    namespace: str
    pod_namespace: str
    engine: str
    reference: str
    resource: str

    @property
    def key(self) -> str:
        place = self.node.name if self.volume.claim is None else ""
        parts = (
            *(self.volume.kind, self.volume.name, place, self.namespace, self.pod_namespace),
            *(self.engine, self.reference, self.resource, *self.node.traits()),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]

    def new_directory(self, name: str) -> str:
        """Below the volume's root. A pod sees this directory alone."""
        return f"{self.namespace}/{self.pod_namespace}/{self.key}/{name}"


class PodCache(Struct, frozen=True, kw_only=True):
    """A directory that is one attempt's. `image_digest` is of the image that filled it; of a new
    one it is empty.
    """

    volume: CacheVolume
    key: str
    directory: str
    begun_at: float
    image_digest: str = ""

    def keep_for(self, image_digest: str) -> "PodCache | None":
        """Return the cache that a ready engine of that image leaves to the next one.

        None if it holds files of two images, as after a tag has moved, or if the image is unknown.
        """
        if not image_digest or self.image_digest not in {"", image_digest}:
            return None
        return PodCache(
            volume=self.volume,
            key=self.key,
            directory=self.directory,
            begun_at=self.begun_at,
            image_digest=image_digest,
        )
