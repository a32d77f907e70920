"""Label values, selectors and paths that the API takes."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from msgspec import Struct

MAX_LABEL: Final = 63
_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
_KEY: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DIGITS: Final = 8  # of the digest that makes two shortened names differ


def label_value(text: str) -> str:
    """The text as a label's value: itself where it is one, otherwise shortened with a digest."""
    if len(text) <= MAX_LABEL and _VALUE.fullmatch(text):
        return text
    replaced = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[: MAX_LABEL - _DIGITS - 1].strip("-_.")
    return f"{replaced}-{_digest(text)}".lstrip("-")


def label_selector(labels: Mapping[str, str]) -> str:
    """Selects objects with exactly these labels. Raises ValueError for what is no label."""
    for key, value in labels.items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or len(value) > MAX_LABEL:
            raise ValueError(f"expected a label, got {key!r}={value!r}")
    return ",".join(f"{key}={value}" for key, value in labels.items())


class Resource(Struct, frozen=True):
    """A kind of object by its place in the API."""

    api_version: str  # such as v1, apps/v1
    plural: str
    is_namespaced: bool = True

    def path(
        self, namespace: str | None = None, name: str | None = None, *, subresource: str = ""
    ) -> str:
        """Return the path of one object, or of all, in a namespace or in the cluster.

        Raises ValueError for a name that could lead elsewhere.
        """
        parts = ["apis" if "/" in self.api_version else "api", *self.api_version.split("/")]
        if namespace is not None and self.is_namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "".join(f"/{_segment(part)}" for part in parts)


def _segment(text: str) -> str:
    if not text or text in {".", ".."} or "/" in text or "%" in text:
        raise ValueError(f"expected one part of a path, got {text!r}")
    return quote(text, safe="")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
