"""Questions about what fits on which GPU, asked before anything runs there, and their answers."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from schemas.base import View

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

    `runtime` is a version or what tells one: `cu121`, `libcudart.so.12.4.127`, an image's tag,
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


AnyCheck = CudaCheck | PrecisionCheck


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
    """The best verdict where any of the subjects will do, else the worst."""

    verdict: Verdict
    findings: tuple[Finding, ...]
