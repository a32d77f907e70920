"""How far the pull of an image is, from what the container engine says of its layers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shared.errors import StewardError

# Of a layer's way; unpacking is usually the shorter part.
DOWNLOAD_SHARE: Final = 0.7
MEGABYTE: Final = 1e6
_DOWNLOADED: Final = frozenset({"Verifying Checksum", "Download complete"})
_THERE: Final = frozenset({"Pull complete", "Already exists"})
_ANNOUNCED: Final = frozenset({"Pulling fs layer", "Waiting"})


class PullRefused(StewardError):
    """The pull has failed, for the reason in the text, which is the registry's or the engine's."""


@dataclass(slots=True)
class Layer:
    """Bytes; `total` None until the engine reports it."""

    total: int | None = None
    downloaded: int = 0
    unpacked: int = 0
    is_there: bool = False

    @property
    def share(self) -> float:
        """Return the part that is done, 0 to 1."""
        if self.is_there:
            return 1.0
        if not self.total:
            return 0.0
        done = DOWNLOAD_SHARE * self.downloaded + (1 - DOWNLOAD_SHARE) * self.unpacked
        return min(1.0, done / self.total)


@dataclass(slots=True)
class PullProgress:
    """Fed with the engine's messages, in order. The fraction never falls."""

    layers: dict[str, Layer] = field(default_factory=dict)
    fraction: float = 0.0

    def feed(self, message: Mapping[str, Any]) -> bool:
        """Take one message of a pull; return whether it changed anything. Raises PullRefused."""
        if "error" in message:
            raise PullRefused(str(message["error"]))
        status, name = str(message.get("status", "")), str(message.get("id", ""))
        is_known = status in _THERE | _DOWNLOADED | _ANNOUNCED | {"Downloading", "Extracting"}
        if not name or not is_known:
            return False
        _advance(self.layers.setdefault(name, Layer()), status, message.get("progressDetail") or {})
        self.fraction = max(self.fraction, self._fraction())
        return True

    @property
    def sentence(self) -> str:
        """Return the progress as a sentence for people."""
        done_count = sum(layer.is_there for layer in self.layers.values())
        sized_layers = [layer for layer in self.layers.values() if layer.total]
        total = sum(layer.total or 0 for layer in sized_layers) / MEGABYTE
        done = sum(layer.downloaded for layer in sized_layers) / MEGABYTE
        size = f", {done:.0f} of {total:.0f} MB" if total else ""
        return f"{done_count} of {len(self.layers)} layers{size}"

    def _fraction(self) -> float:
        """Return the progress by bytes among the layers of known size, by number for the rest."""
        sized_layers = [layer for layer in self.layers.values() if layer.total]
        unknown = [layer for layer in self.layers.values() if not layer.total]
        total = sum(layer.total or 0 for layer in sized_layers)
        by_bytes = (
            sum(layer.share * (layer.total or 0) for layer in sized_layers) / total if total else 0
        )
        by_number = sum(layer.share for layer in unknown)
        return (by_bytes * len(sized_layers) + by_number) / len(self.layers)


def _advance(layer: Layer, status: str, detail: Mapping[str, Any]) -> None:
    current, total = int(detail.get("current") or 0), int(detail.get("total") or 0)
    if total > 0:
        layer.total = max(total, layer.total or 0)
    if status == "Downloading":
        layer.downloaded = max(layer.downloaded, current)
    elif status in _DOWNLOADED:
        layer.downloaded = layer.total or 0
    elif status == "Extracting":
        layer.downloaded = layer.total or 0
        layer.unpacked = max(layer.unpacked, current)
    elif status in _THERE:
        layer.is_there = True
        layer.downloaded = layer.unpacked = layer.total or 0
