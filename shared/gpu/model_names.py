"""Whether a GPU is of a model that people name."""

import re
from collections.abc import Sequence
from typing import Final

_SEPARATORS: Final = re.compile(r"[\s_-]+")


def matches_model(name: str, models: Sequence[str]) -> bool:
    """Whether a device's name contains one of the models; case and separators do not matter."""
    flat = _flat(name)
    return not models or any(_flat(model) in flat for model in models)


def _flat(text: str) -> str:
    return _SEPARATORS.sub("", text).casefold()
