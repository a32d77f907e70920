"""Questions about what fits on which GPU, asked before anything runs there, and their answers."""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from schemas.base import END, Count, View

DnsName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?" + END,
        description="1 to 63 small letters, digits and -, the first and last no -",
    ),
]
GroupName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?" + END,
        description="1 to 63 letters, digits, _, . and -, the first and last a letter or digit",
    ),
]
ResourceKey = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/"
        r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?" + END,
        description="one resource, such as vendor.com/name",
    ),
]
Told = Annotated[str, Meta(min_length=1, max_length=4096)]


class Verdict(StrEnum):
    """Best first."""

    SUPPORTED = "supported"
    UNSTABLE = "unstable"
    CASE_BY_CASE = "case_by_case"
    BLOCKED = "blocked"


class GpuMode(StrEnum):
    """How a workload is given GPUs: whole, by GPU-Manager, by HAMi, or by NVIDIA's MPS."""

    PGPU = "pgpu"
    VGPU = "vgpu"
    HAMI = "hami"
    MPS = "mps"


class CudaRules(StrEnum):
    """`strict`: no driver below its runtime. `lenient`: as NVIDIA's compatibility guide allows."""

    STRICT = "strict"
    LENIENT = "lenient"


class Check(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """Base of the questions."""


class CudaCheck(Check, frozen=True, kw_only=True, tag="cuda"):
    """Whether a driver serves a CUDA runtime; without a `driver` those of all nodes are looked at.

    `runtime` is a version or what names one: `cu121`, `libcudart.so.12.4.127`, an image's tag,
    `NVIDIA_REQUIRE_CUDA`. `driver` is the driver's version (550.144.03) or its CUDA (12.4).
    `baseline` is the CUDA that a virtual GPU's library was made for.
    """

    runtime: Told
    driver: Told | None = None
    mode: GpuMode = GpuMode.PGPU
    baseline: Told | None = None
    rules: CudaRules = CudaRules.STRICT


class PrecisionRules(StrEnum):
    """`hardware`: what GPUs have units for. `documented`: the accelerator guide to the letter."""

    HARDWARE = "hardware"
    DOCUMENTED = "documented"


class PrecisionCheck(Check, frozen=True, kw_only=True, tag="precision"):
    """Whether GPUs compute in a number format; without `gpu` and `capability` all are looked at.

    `gpu` is a model's name (V100), `capability` its compute capability (7.0), which goes first.
    """

    precision: Told
    gpu: Told | None = None
    capability: Told | None = None
    rules: PrecisionRules = PrecisionRules.HARDWARE


class LimitsPolicy(StrEnum):
    """What people may say of a resource's limit."""

    DISABLED = "disabled"
    REQUIRED = "required"
    OPTIONAL = "optional"


class RequestsPolicy(StrEnum):
    """What people may say of a resource's request."""

    DISABLED = "disabled"
    REQUIRED = "required"
    FROM_LIMITS = "fromLimits"


class ResourceDefinition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A custom device of a cluster: the resource `key`, counted whole, of a group.

    `custom_name` is the part of its ConfigMap's name between `cf-crl-` and the key.
    """

    custom_name: DnsName
    group: GroupName
    key: ResourceKey
    default_value: Count | None = None
    description_zh: str = ""
    description_en: str = ""
    limits: LimitsPolicy = LimitsPolicy.OPTIONAL
    requests: RequestsPolicy = RequestsPolicy.FROM_LIMITS
    enabled: bool = True


class DeviceConfigCheck(Check, frozen=True, kw_only=True, tag="device_config"):
    """Whether ConfigMaps, as Kubernetes has them in JSON, define custom devices."""

    config_maps: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=1000)]


class ModeCheck(Check, frozen=True, kw_only=True, tag="mode"):
    """Whether a container's limits ask for GPUs in a form that there is, where it is to run.

    `resources` are counts by name, as `tencent.com/vcuda-core`. What is not said of the GPU, its
    driver's version and Kubernetes is not judged. `mps_on_mig`: the operator has started an MPS
    daemon for the instance, which the guide's plugin does not do.
    """

    resources: Annotated[dict[ResourceKey, Count], Meta(min_length=1, max_length=16)]
    gpu: Told | None = None
    capability: Told | None = None
    driver: Told | None = None
    kubernetes_version: Told | None = None
    mig: bool = False
    rules: PrecisionRules = PrecisionRules.HARDWARE
    mps_on_mig: bool = False


AnyCheck = CudaCheck | PrecisionCheck | DeviceConfigCheck | ModeCheck


class Finding(Struct, frozen=True, kw_only=True):
    """What a rule says of one subject: a node, a GPU, a place in a file.

    `action` is what to do about it, empty where nothing is to be done; `source` is who says so.
    """

    verdict: Verdict
    rule: str
    message: str
    action: str = ""
    source: str = ""
    subject: str = ""


class CheckView(View, frozen=True, kw_only=True, tag="gateway.check"):
    """The best verdict where any of the subjects will do, else the worst.

    `resources` are the custom devices that sound ConfigMaps define, by group and key.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    resources: tuple[ResourceDefinition, ...] = ()
