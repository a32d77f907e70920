"""How a task may name a model: the id of a hub, or a path below a node's model roots."""

import posixpath
import re
from collections.abc import Sequence
from typing import Final

# Colons are for what follows an id, such as the quantization of a GGUF file.
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def model_refusal(model: str, roots: Sequence[str]) -> str | None:
    """Say why no node with these roots would open the model, as far as its text says; None if one
    may.

    Only the node knows where links lead.
    """
    if _ADDRESS.match(model):
        return f"expected a model's id or path, got the address {model!r}"
    path = posixpath.normpath(model)
    is_relative = not path.startswith(("/", "~")) and path.split("/")[0] != ".."
    # "./x" is a path, which a node looks for below its roots.
    if is_relative and (roots or not model.startswith(".")):
        return None
    if any(_is_below(path, posixpath.normpath(root)) for root in roots):
        return None
    if not roots:
        return (
            f"expected a model's id, got {model!r}; no directories of models are set "
            "(GPUSTEWARD_EXECUTOR_MODEL_ROOTS)"
        )
    return f"expected a model's id, or a path inside {', '.join(roots)}, got {model!r}"


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")
