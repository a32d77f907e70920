"""How many GPUs and how much memory a configuration needs; pure, as a domain is.

The rules are the requirements': `world_size = tp * pp * max(dp, dcp, cp)`, memory by model name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from schemas.errors import ErrorCode
from shared.errors import RefusedError

MAX_DEGREE: Final = 4096

# Every spelling by which people name a degree of parallelism, hyphens for underscores.
SPELLINGS: Final[Mapping[str, frozenset[str]]] = {
    "tp": frozenset({"tensor-parallel-size", "tp-size", "tpsize", "tp"}),
    "pp": frozenset({"pipeline-parallel-size", "pp-size", "ppsize", "pp"}),
    "dp": frozenset({"data-parallel-size", "dp-size", "dpsize", "dp"}),
    "cp": frozenset({"context-parallel-size", "cp-size", "cpsize", "cp"}),
    "dcp": frozenset({"decode-context-parallel-size", "dcp-size", "dcpsize", "dcp"}),
}
MEMORY_BY_SIZE_MB: Final = (((70, 65), 20_000), ((13, 7), 12_000))
BASE_MEMORY_MB: Final = 8_000

_BILLIONS: Final = re.compile(r"(?<![\d.])(\d{1,4})b(?![a-z])")
_WHOLE: Final = re.compile(r"\d{1,4}")  # more digits are beyond MAX_DEGREE, or what Python reads


def hyphenate(name: str) -> str:
    """A parameter's name as flags spell it."""
    return name.lower().lstrip("-").replace("_", "-")


def degree_named(name: str) -> str | None:
    """The degree of parallelism (`tp`, `pp`, ...) that a parameter's name means."""
    spelled = hyphenate(name)
    return next((kind for kind, forms in SPELLINGS.items() if spelled in forms), None)


def degree(value: Any, path: str) -> int:
    """A degree of parallelism. Raises RefusedError if it is no whole number within bounds."""
    number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= MAX_DEGREE:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a whole number from 1 to {MAX_DEGREE}, got {value!r}",
            path=path,
        )
    return number


def world_size_of(degrees: Iterable[tuple[str, int]]) -> int:
    """`tp * pp * max(dp, dcp, cp)` of the largest degree of each kind; one that is absent is 1."""
    largest = dict.fromkeys(SPELLINGS, 1)
    for kind, value in degrees:
        largest[kind] = max(largest[kind], value)
    return largest["tp"] * largest["pp"] * max(largest["dp"], largest["dcp"], largest["cp"])


def memory_per_gpu_mb(model: str) -> int:
    """20,000 for 70B and 65B models, 12,000 for 13B and 7B, 8,000 for all others, by name."""
    billions = {int(size) for size in _BILLIONS.findall(model.lower())}
    for sizes, memory_mb in MEMORY_BY_SIZE_MB:
        if billions & set(sizes):
            return memory_mb
    return BASE_MEMORY_MB
