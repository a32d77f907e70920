"""What a unit is that a node counts: a whole GPU, a share of one, or nothing that is given out.

A plugin counts devices under one name whatever they are, and labels, annotations and other names
beside say what. They were read in the sources of NVIDIA/k8s-device-plugin (internal/lm,
api/config/v1), Project-HAMi/HAMi (pkg/device/nvidia), ROCm/k8s-device-plugin (cmd, docs),
intel/intel-device-plugins-for-kubernetes (cmd/gpu_plugin) and the guides of GKE and ACK.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from schemas.cluster.nodes import GpuSharing
from schemas.gpus.vgpu import VGPU_CORE_RESOURCE
from shared.accelerator_rules.cluster_parts import MPS_CORE
from shared.accelerator_rules.modes import (
    DEVICE_CLASS,
    GPU_RESOURCE,
    MIG_PREFIX,
    SHARED_GPU_RESOURCE,
    units_per_gpu,
)
from shared.accelerator_rules.node_labels import (
    ACK_LABEL,
    ALIYUN_LABEL,
    GKE_INSTANCE_LABEL,
    GKE_SHARING_LABEL,
    IF_WHOLE,
    INSTANCE_LABEL,
    MPS_LABEL,
    VIRTUAL_LABEL,
    is_divided,
    says_whole,
)
from shared.accelerator_rules.quantities import whole

# Other plugins' names, by which they give the same GPUs to several pods each.
DIVIDERS: Final = frozenset(
    {
        *("volcano.sh/vgpu-number", "volcano.sh/gpu-memory", "volcano.sh/gpu-number"),
        "aliyun.com/gpu-mem",
    }
)
# By these annotations HAMi's and Volcano's plugins register the GPUs that they divide.
REGISTERS: Final = (
    "hami.io/node-nvidia-register",
    "4pd.io/node-nvidia-register",
    "volcano.sh/node-vgpu-register",
)

_SHARED_SUFFIX: Final = ".shared"
_GKE_SHARES_LABEL: Final = "cloud.google.com/gke-max-shared-clients-per-gpu"
_AMD: Final = "amd.com/gpu"
_AMD_PARTITION_LABELS: Final = (  # as the labeller writes it, and as its guide has it
    "amd.com/gpu.compute-memory-partition",
    "amd.com/compute-memory-partition",
)
_INTEL: Final = ("gpu.intel.com/i915", "gpu.intel.com/xe")
_INTEL_COUNT_LABEL: Final = "gpu.intel.com/device.count"
_SAME_GPUS: Final = (
    frozenset(
        {GPU_RESOURCE, SHARED_GPU_RESOURCE, DEVICE_CLASS, VGPU_CORE_RESOURCE, MPS_CORE, *DIVIDERS}
    ),
    frozenset({_AMD, "gpu.amd.com"}),
    *(frozenset({name, "gpu.intel.com"}) for name in _INTEL),
)


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What a node says of its GPUs. `capacity` and `allocatable` are units by extended resource,
    and devices by DRA driver. `reused`: drivers of which a device may be allocated to several
    claims.
    """

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    capacity: Mapping[str, int] = {}
    allocatable: Mapping[str, int] = {}
    reused: frozenset[str] = frozenset()


class Offer(Struct, frozen=True, kw_only=True):
    """`per_gpu` units are a GPU; with `sharing` each is a share of one, and no pod has one to
    itself. Of what `is_refused` nothing is given out, and `gpus` are known to be there. `note` is
    what says so.
    """

    per_gpu: int = 1
    sharing: GpuSharing | None = None
    is_refused: bool = False
    gpus: int = 0
    note: str = ""


def read_offer(name: str, facts: NodeFacts) -> Offer:
    """Return what a node offers under the name of an extended resource, or of a DRA driver.

    What contradicts itself, or is told by half, is never taken for whole GPUs.
    """
    base = name.removesuffix(_SHARED_SUFFIX)
    if name in facts.reused:
        offer = _refused_offer(
            "allowMultipleAllocations of its ResourceSlices",
            f"{name} may allocate one GPU to several claims",
            "have its driver publish GPUs without it",
            facts.capacity.get(name, 0),
        )
    elif base == GPU_RESOURCE:
        offer = _of_nvidia(name, facts)
    elif base.startswith(MIG_PREFIX):
        offer = _of_instances(name, base, facts)
    else:
        offer = _of_others(name, facts)
    if offer.sharing is not None or offer.is_refused:
        return offer
    for other in _rivals(name, facts):
        return _refused_offer(
            f"{other} beside {name}",
            "both give out the same GPUs",
            "leave one of the two plugins on the node",
            facts.capacity.get(name, 0) // offer.per_gpu,
        )
    return offer


def _of_nvidia(name: str, facts: NodeFacts) -> Offer:
    """Read an offer from the labels of GPU Feature Discovery, or of clouds with a device plugin of
    their own.
    """
    labels = facts.labels
    units, gpus = facts.capacity.get(name, 0), whole(labels.get(f"{GPU_RESOURCE}.count", ""))
    if (divided := _instances_or_virtual(name, facts)) is not None:
        return divided
    if (sharing := _sharing(name, labels)) is not None:
        kind, sign = sharing
        replicas = labels.get(f"{GPU_RESOURCE}.replicas") or labels.get(_GKE_SHARES_LABEL, "")
        per_gpu = _shares_per_gpu(units, gpus, whole(replicas))
        of = f"one of {per_gpu} shares" if per_gpu > 1 else "a share"
        note = f"{sign}: a unit of {name} is {of} of a GPU; ask for one by time_slices"
        return Offer(per_gpu=per_gpu, sharing=kind, note=note)
    for sign, means, action in _doubts(name, facts):
        registered = max(map(_count_registered_gpus, facts.annotations.values()), default=0)
        return _refused_offer(sign, means, action, gpus or registered)
    return Offer()


def _instances_or_virtual(name: str, facts: NodeFacts) -> Offer | None:
    """Return why no unit is a board or a share of one; None: each may be."""
    labels = facts.labels
    product = labels.get(f"{GPU_RESOURCE}.product", "")
    is_mig_on = labels.get(f"{GPU_RESOURCE}.replicas") == "0" and facts.allocatable.get(name, 0) > 0
    signs = [
        _label(labels, key)
        for key, is_told in (
            (GKE_INSTANCE_LABEL, is_divided(labels, GKE_INSTANCE_LABEL)),
            (f"{GPU_RESOURCE}.product", "-MIG-" in product),
            (INSTANCE_LABEL, is_divided(labels, INSTANCE_LABEL)),
            (f"{GPU_RESOURCE}.replicas", is_mig_on),
        )
        if is_told
    ]
    if signs:
        action = (
            "set the device plugin's MIG strategy to mixed, and ask for mig_profile"
            if not is_divided(labels, GKE_INSTANCE_LABEL)
            else "take a node pool without GPU partitions"
        )
        return _refused_offer(signs[0], f"a unit of {name} is a MIG instance", action)
    if is_divided(labels, VIRTUAL_LABEL) and not says_whole(labels):
        means = f"a unit of {name} is a virtual machine's vGPU, of how much of a board is not told"
        return _refused_offer(_label(labels, VIRTUAL_LABEL), means, IF_WHOLE)
    return None


def _sharing(name: str, labels: Mapping[str, str]) -> tuple[GpuSharing, str] | None:
    """Return how units are shared, and what says so; None: nothing says it for certain."""
    strategy_label, replicas_label = f"{GPU_RESOURCE}.sharing-strategy", f"{GPU_RESOURCE}.replicas"
    strategy = labels.get(strategy_label, "")
    if strategy in set(GpuSharing):
        return GpuSharing(strategy), _label(labels, strategy_label)
    if is_divided(labels, GKE_SHARING_LABEL):
        is_mps = labels[GKE_SHARING_LABEL].casefold() == GpuSharing.MPS
        kind = GpuSharing.MPS if is_mps else GpuSharing.TIME_SLICING
        return kind, _label(labels, GKE_SHARING_LABEL)
    if name == SHARED_GPU_RESOURCE:
        return GpuSharing.TIME_SLICING, f"the name {name}"
    if whole(labels.get(replicas_label, "")) > 1 and not strategy:
        # Before there was MPS no strategy was told: replicas were of time slicing.
        return GpuSharing.TIME_SLICING, _label(labels, replicas_label)
    return None


def _shares_per_gpu(units: int, gpus: int, replicas: int) -> int:
    """Return how many units are one GPU: as many as there are replicas, unless that would be more
    GPUs than are told. Fewer may be: those in MIG mode are told, and have no units.
    """
    if replicas > 1 and units % replicas == 0 and (not gpus or units // replicas <= gpus):
        return replicas
    if gpus and units and units % gpus == 0:
        return units // gpus
    return max(1, replicas)


def _doubts(name: str, facts: NodeFacts) -> Iterator[tuple[str, str, str]]:
    """Yield what speaks against whole GPUs, with its meaning, and what to do."""
    labels = facts.labels
    for key in (ACK_LABEL, ALIYUN_LABEL):
        if is_divided(labels, key):
            means, action = "pods share its GPUs", "take a node of exclusive GPUs"
            yield _label(labels, key), means, action
    for key in REGISTERS:
        if facts.annotations.get(key):
            yield (
                f"annotation {key}",
                f"a scheduler that divides GPUs gives each {name} to several pods",
                "take its plugin off the node, and then the annotation",
            )
    if says_whole(labels):
        return
    strategy_label, replicas_label = f"{GPU_RESOURCE}.sharing-strategy", f"{GPU_RESOURCE}.replicas"
    relabel = f"restart GPU Feature Discovery on the node; {IF_WHOLE}"
    if labels.get(strategy_label, "none") not in {"", "none"}:
        means = "it is not known how its GPUs are shared"
        yield _label(labels, strategy_label), means, IF_WHOLE
    if whole(labels.get(replicas_label, "")) > 1:
        sign = f"{_label(labels, replicas_label)} with {_label(labels, strategy_label)}"
        yield sign, "the two contradict each other", relabel
    if is_divided(labels, MPS_LABEL):
        yield _label(labels, MPS_LABEL), "no label says how many share a GPU", relabel
    if labels.get(f"{GPU_RESOURCE}.product", "").endswith("-SHARED"):
        sign = _label(labels, f"{GPU_RESOURCE}.product")
        yield sign, "its GPUs are shared, and no label says how", relabel
    yield from _more_than_counted(name, f"{GPU_RESOURCE}.count", facts)


def _more_than_counted(
    name: str, count_label: str, facts: NodeFacts
) -> Iterator[tuple[str, str, str]]:
    units = facts.capacity.get(name, 0)
    if count_label in facts.labels and units > whole(facts.labels[count_label]):
        means = f"the node counts {units} {name}, more than it has GPUs"
        yield _label(facts.labels, count_label), means, IF_WHOLE


def _of_instances(name: str, base: str, facts: NodeFacts) -> Offer:
    """Read an offer of MIG instances; time slices of instances are offered, shares of them are
    not.
    """
    labels = facts.labels
    signs = [f"the name {name}"] if name != base else []
    strategy, replicas = f"{base}.sharing-strategy", f"{base}.replicas"
    if labels.get(strategy, "none") not in {"", "none"}:
        signs.append(_label(labels, strategy))
    if whole(labels.get(replicas, "")) > 1:
        signs.append(_label(labels, replicas))
    if labels.get(f"{base}.product", "").endswith("-SHARED"):
        signs.append(_label(labels, f"{base}.product"))
    if not says_whole(labels):
        signs += [sign for sign, _, _ in _more_than_counted(name, f"{base}.count", facts)]
    if not signs:
        return Offer()
    means = f"a unit of {name} is a share of a MIG instance"
    return _refused_offer(
        signs[0], means, "take the replicas off the device plugin's configuration"
    )


def _of_others(name: str, facts: NodeFacts) -> Offer:
    labels = facts.labels
    if name == _AMD:
        for key in _AMD_PARTITION_LABELS:
            if key in labels and not labels[key].startswith("spx"):
                means = f"a unit of {name} is a partition of a GPU"
                return _refused_offer(_label(labels, key), means, "set its GPUs to SPX")
    if name in _INTEL and not says_whole(labels):
        for sign, means, action in _more_than_counted(name, _INTEL_COUNT_LABEL, facts):
            return _refused_offer(sign, means, action, whole(labels[_INTEL_COUNT_LABEL]))
    return Offer(per_gpu=units_per_gpu(name))


def _rivals(name: str, facts: NodeFacts) -> list[str]:
    """Return other names by which GPUs are given out that may be the same."""
    is_instance = name.startswith(MIG_PREFIX)
    rivals: set[str] = set()
    for names in _SAME_GPUS:
        if name in names or (is_instance and GPU_RESOURCE in names):
            rivals |= names - {name}
    if is_instance:  # of the same plugin, which counts other GPUs by them
        rivals -= {GPU_RESOURCE, SHARED_GPU_RESOURCE}
    elif GPU_RESOURCE in rivals:
        rivals |= {resource for resource in facts.allocatable if resource.startswith(MIG_PREFIX)}
    return sorted(rival for rival in rivals if facts.allocatable.get(rival, 0) > 0)


def _count_registered_gpus(register: str) -> int:
    """Return how many GPUs a plugin has registered, in either of its forms; 0: not readable."""
    if not register.startswith("["):
        return sum(bool(device) for device in register.split(":"))
    try:
        return len(msgspec.json.decode(register, type=list[msgspec.Raw]))
    except msgspec.DecodeError:
        return 0


def _label(labels: Mapping[str, str], key: str) -> str:
    return f"{key}={labels[key]}" if key in labels else f"no {key}"


def _refused_offer(sign: str, means: str, action: str, gpus: int = 0) -> Offer:
    return Offer(is_refused=True, gpus=gpus, note=f"{sign}: {means}; {action}")
