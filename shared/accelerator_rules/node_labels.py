"""Labels of Kubernetes nodes: their driver's CUDA, affinity by it, and how GPUs are shared.

Accelerator guide, Node Labeling Strategy.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shared.accelerator_rules.cuda_versions import CudaVersion
from shared.accelerator_rules.modes import GPU_RESOURCE

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
MAJOR_LABEL: Final = "cuda-major-version"
MINOR_LABEL: Final = "cuda-minor-version"
SHARING_LABEL: Final = "nvidia.com/gpu.sharing-strategy"
MPS_LABEL: Final = "nvidia.com/mps.capable"
VIRTUAL_LABEL: Final = "nvidia.com/vgpu.present"
INSTANCE_LABEL: Final = "nvidia.com/gpu.slices.gi"  # of MIG instances that count as nvidia.com/gpu
GKE_SHARING_LABEL: Final = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_INSTANCE_LABEL: Final = "cloud.google.com/gke-gpu-partition-size"
ACK_LABEL: Final = "ack.node.gpu.schedule"
ALIYUN_LABEL: Final = "gpushare"
# Labels of which a value says that a unit of nvidia.com/gpu is no whole GPU; (): any value does.
DIVIDING_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    SHARING_LABEL: ("time-slicing", "mps"),
    MPS_LABEL: ("true",),
    VIRTUAL_LABEL: ("true",),
    INSTANCE_LABEL: (),
    GKE_SHARING_LABEL: (),
    GKE_INSTANCE_LABEL: (),
    ACK_LABEL: ("cgpu", "share", "core_mem", "mps"),
    ALIYUN_LABEL: ("true",),
}
# An operator's word for what a node's labels leave open.
WHOLE_LABEL: Final = "gpusteward.io/gpus"
IS_WHOLE: Final = "whole"
IF_WHOLE: Final = f"if each is a whole GPU, label the node {WHOLE_LABEL}={IS_WHOLE}"
_DIGITS: Final = 4


def cuda_labels(driver: CudaVersion) -> dict[str, str]:
    """Return the labels of a node whose driver serves this CUDA version."""
    return {MAJOR_LABEL: str(driver.major), MINOR_LABEL: str(driver.minor)}


def cuda_of(labels: Mapping[str, str]) -> CudaVersion | None:
    """Return the CUDA version that a node's driver serves; None if its labels do not say."""
    major, minor = labels.get(MAJOR_LABEL, ""), labels.get(MINOR_LABEL, "")
    is_told = all(number.isdecimal() and len(number) <= _DIGITS for number in (major, minor))
    return CudaVersion(int(major), int(minor)) if is_told else None


def cuda_terms(runtime: CudaVersion) -> list[dict[str, Any]]:
    """Node selector terms, of which one has to match: a driver of the runtime's major version and
    at least its minor one, or of a newer major version.

    The guide's own example leaves newer major versions out, which its rules support.
    """
    same_major: list[dict[str, Any]] = [_expression(MAJOR_LABEL, "In", runtime.major)]
    if runtime.minor > 0:  # Gt takes nothing below 0
        same_major.append(_expression(MINOR_LABEL, "Gt", runtime.minor - 1))
    newer = [_expression(MAJOR_LABEL, "Gt", runtime.major)]
    return [{"matchExpressions": same_major}, {"matchExpressions": newer}]


def is_divided(labels: Mapping[str, str], key: str) -> bool:
    """Tell whether a node's label says that a unit of nvidia.com/gpu is no whole GPU."""
    value = labels.get(key)
    return value is not None and (value in DIVIDING_LABELS[key] or not DIVIDING_LABELS[key])


def says_whole(labels: Mapping[str, str]) -> bool:
    """Tell whether an operator says that each unit is a whole GPU."""
    return labels.get(WHOLE_LABEL) == IS_WHOLE


def whole_gpu_expressions(
    resource: str | None, avoided_hostnames: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what the labels of a node have to match that the cluster's own scheduler chooses for
    whole units of a resource: none says that its GPUs are divided, and it is none of those that
    are known to divide them.
    """
    expressions = undivided_expressions() if resource in {None, GPU_RESOURCE} else []
    if avoided_hostnames:
        values = list(avoided_hostnames)
        expressions.append({"key": HOSTNAME_LABEL, "operator": "NotIn", "values": values})
    return expressions


def undivided_expressions() -> list[dict[str, Any]]:
    """Return expressions that match a node no label of which says that its GPUs are divided; one
    without such labels matches.
    """
    return [
        {"key": key, "operator": "NotIn", "values": list(values)}
        if values
        else {"key": key, "operator": "DoesNotExist"}
        for key, values in DIVIDING_LABELS.items()
    ]


def _expression(key: str, operator: str, value: int) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": [str(value)]}
