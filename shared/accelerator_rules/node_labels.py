"""Labels of Kubernetes nodes: their driver's CUDA, affinity by it, and how GPUs are shared.

Accelerator guide, Node Labeling Strategy.
"""

from collections.abc import Mapping
from typing import Any, Final

from shared.accelerator_rules.cuda_versions import CudaVersion

MAJOR_LABEL: Final = "cuda-major-version"
MINOR_LABEL: Final = "cuda-minor-version"
SHARING_LABEL: Final = "nvidia.com/gpu.sharing-strategy"
_DIGITS: Final = 4


def cuda_labels(driver: CudaVersion) -> dict[str, str]:
    """Of a node whose driver serves this CUDA."""
    return {MAJOR_LABEL: str(driver.major), MINOR_LABEL: str(driver.minor)}


def cuda_of(labels: Mapping[str, str]) -> CudaVersion | None:
    """What the driver of a node serves; None: its labels do not have it."""
    major, minor = labels.get(MAJOR_LABEL, ""), labels.get(MINOR_LABEL, "")
    is_told = all(each.isdecimal() and len(each) <= _DIGITS for each in (major, minor))
    return CudaVersion(int(major), int(minor)) if is_told else None


def cuda_terms(runtime: CudaVersion) -> list[dict[str, Any]]:
    """Node selector terms, of which one has to match: a driver of the runtime's major version and
    at least its minor one, or of a newer major version.

    The guide's own example leaves newer major versions out, which its rules support.
    """
    same: list[dict[str, Any]] = [_expression(MAJOR_LABEL, "In", runtime.major)]
    if runtime.minor > 0:  # Gt takes nothing below 0
        same.append(_expression(MINOR_LABEL, "Gt", runtime.minor - 1))
    newer = [_expression(MAJOR_LABEL, "Gt", runtime.major)]
    return [{"matchExpressions": same}, {"matchExpressions": newer}]


def _expression(key: str, operator: str, value: int) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": [str(value)]}
