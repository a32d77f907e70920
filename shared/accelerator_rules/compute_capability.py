"""Compute capabilities, and which GPU has which."""

import re
from typing import Final

Capability = tuple[int, int]

_FORM: Final = re.compile(r"(\d{1,2})\.(\d{1,2})")
_SEPARATORS: Final = re.compile(r"[\s_-]+")
# For GPUs whose source does not report it. NVIDIA, https://developer.nvidia.com/cuda-gpus; the
# first that matches counts.
_BY_NAME: Final = tuple(
    (re.compile(rf"\b(?:{names})\b", re.IGNORECASE), capability)
    for names, capability in (
        (r"GB10", (12, 1)),
        (r"RTX PRO \d000|RTX 50[5-9]0", (12, 0)),
        (r"G?B300", (10, 3)),
        (r"G?B[12]00", (10, 0)),
        (r"GH200|H[128]00|H20", (9, 0)),
        (r"L4|L40S?|L20|L2|RTX 40[5-9]0|RTX \d000(?: SFF)? Ada", (8, 9)),
        (r"Orin", (8, 7)),
        (r"A2|A10[GM]?|A16|A40|RTX A\d{3,4}|RTX 30[5-9]0", (8, 6)),
        (r"A100[XC]?|A30X?|A800", (8, 0)),
        (r"T4G?|T1000|T400|RTX 20[6-8]0|Quadro RTX \d000|TITAN RTX|GTX 16[5-6]0", (7, 5)),
        (r"V100S?|TITAN V|GV100", (7, 0)),
        (r"P40?|GTX 10[3-8]0|TITAN Xp?", (6, 1)),
        (r"P100|GP100", (6, 0)),
        (r"M4|M10|M40|M60|GTX 9[5-8]0", (5, 2)),
        (r"K80", (3, 7)),
    )
)
_AMD: Final = re.compile(r"\b(?:AMD|Instinct|Radeon|MI\d{2,3}[A-Z]?)\b", re.IGNORECASE)
_OTHERS: Final = re.compile(r"\b(?:Intel|Gaudi|Ascend|MLU\d*)\b", re.IGNORECASE)


def capability(text: str | None) -> Capability | None:
    """`8.9` as (8, 9); None if it is none."""
    match = _FORM.fullmatch(text) if text is not None else None
    return (int(match[1]), int(match[2])) if match is not None else None


def capability_by_name(gpu: str) -> Capability | None:
    """Return the compute capability of a GPU model, by its driver's name for it; None if
    unknown.
    """
    name = _SEPARATORS.sub(" ", gpu)
    return next((numbers for pattern, numbers in _BY_NAME if pattern.search(name)), None)


def has_capability(gpu: str) -> bool:
    """True for GPUs that have a compute capability at all: NVIDIA's."""
    return not is_amd(gpu) and _OTHERS.search(_SEPARATORS.sub(" ", gpu)) is None


def is_amd(gpu: str) -> bool:
    """Return whether a GPU of this name is AMD's."""
    return _AMD.search(_SEPARATORS.sub(" ", gpu)) is not None


def capability_text(version: Capability) -> str:
    """(8, 9) as `8.9`."""
    return f"{version[0]}.{version[1]}"
