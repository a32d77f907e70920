"""Models of GPUs: whether one is what people name, and whether two are alike."""

import re
from collections.abc import Sequence
from typing import Final

# Drivers keep different amounts for themselves, so the same board has not always as many MB.
SIZE_STEP_MB: Final = 4096
_SEPARATORS: Final = re.compile(r"[\s_-]+")


def matches_model(name: str, models: Sequence[str]) -> bool:
    """True if a device's name contains one of the models; case and separators do not matter."""
    flat = _flat(name)
    return not models or any(_flat(model) in flat for model in models)


def model_of_instance(name: str) -> str:
    """Return the GPU's own name of a MIG instance's, `A100 MIG 1g.5gb`; of a GPU, its name."""
    return name.partition(" MIG ")[0]


def memory_size(total_mb: int) -> int:
    """Return a memory size in steps of 4 GiB, as GPUs of one model are told apart by it."""
    return round(total_mb / SIZE_STEP_MB)


def _flat(text: str) -> str:
    return _SEPARATORS.sub("", text).casefold()
