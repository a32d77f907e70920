"""Variables that a task may set of an engine's environment, by an operator's list of patterns.

A pattern lets through what tunes how an engine computes, not what names code, files, addresses or
secrets: such a variable has to be on the list by its whole name.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from schemas.errors import ErrorCode
from shared.errors import Mistakes, RefusedError

# Parts of names between underscores; of NCCL_NET_PLUGIN, VLLM_CACHE_ROOT, VLLM_NCCL_SO_PATH,
# SGLANG_EXTERNAL_MODEL_PACKAGE, VLLM_ALLOW_INSECURE_SERIALIZATION and the like.
_BY_NAME_ALONE: Final = frozenset(
    {
        *("ADDR", "ADDRESS", "API", "AUTH", "CLASS", "CONF", "CONFIG", "CREDENTIALS", "DEV", "DIR"),
        *("DIRECTORY", "ENDPOINT", "EXTERNAL", "FILE", "FOLDER", "HOME", "HOST", "HOSTID", "HUB"),
        *("ID", "INSECURE", "IP", "KEY", "LIB", "LIBRARY", "LOCATION", "MODELSCOPE", "MODULE"),
        *("PACKAGE", "PASSWORD", "PATH", "PICKLE", "PLUGIN", "PLUGINS", "PORT", "PROXY", "ROOT"),
        *("SECRET", "SERIALIZATION", "SERVER", "SO", "SOURCE", "STATS", "TOKEN", "UPDATING", "URI"),
        *("URL", "USER"),
    }
)
# Numbers, words, and lists of them such as `allreduce:tree;broadcast:ring` or `^lo,docker0`.
_VALUE: Final = re.compile(r"[A-Za-z0-9^=+.:,;%_-]{0,1000}")


def read_variables(values: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, str]:
    """Return the variables as the engine gets them; those of None are not set, true is 1.

    Raises RefusedError with every variable that is not a task's to set, by path.
    """
    variables: dict[str, str] = {}
    mistakes = Mistakes()
    for name, value in values.items():
        if value is None:
            continue
        with mistakes.collect():
            text = str(int(value)) if isinstance(value, bool) else str(value)
            _check(name, text, allowed)
            variables[name] = text
    mistakes.refuse()
    return variables


def _check(name: str, text: str, allowed: Sequence[str]) -> None:
    path = f"$.env.{name}"
    if name not in allowed:
        patterns = [pattern for pattern in allowed if fnmatchcase(name, pattern)]
        part = next((part for part in name.upper().split("_") if part in _BY_NAME_ALONE), None)
        how = "the operator of a node allows it with GPUSTEWARD_EXECUTOR_TASK_VARIABLES"
        if not patterns:
            listed = ", ".join(allowed) or "none"
            _refuse(f"a task may set {listed} of an engine's environment; {how}", path)
        if part is not None:
            _refuse(
                f"expected a variable that names no code, file, address or secret, this one has"
                f" {part} in its name; {how} by its whole name",
                path,
            )
    if not _VALUE.fullmatch(text):
        _refuse(
            "expected numbers and words without '/' and blanks, such as 1, FLASHINFER or"
            f" ring,tree; got {text!r}",
            path,
        )


def _refuse(message: str, path: str) -> None:
    raise RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
