"""Whether a driver serves a CUDA runtime, by the way in which a workload is given its GPUs."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from schemas.gpus.checks import CudaRules, Finding, GpuMode, Verdict
from shared.accelerator_rules.cuda_versions import CudaVersion

DOCUMENT: Final = "accelerator guide, CUDA Driver and Runtime Compatibility"
GUIDE: Final = "https://docs.nvidia.com/deploy/cuda-compatibility/"
MPS_GUIDE: Final = "https://docs.nvidia.com/deploy/mps/"

# The guide's two sentences on it differ: "support only cuda less then 12.4", and a baseline of 12.4
# that serves every runtime up to itself.
VGPU_BASELINE: Final = CudaVersion(12, 4)
# The guide says 11.5 where it installs MPS and 11.4 where it lists its limits; NVIDIA's own limit
# of memory (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT) came with 11.5.
MPS_CUDA: Final = CudaVersion(11, 5)
MINOR_COMPATIBILITY: Final = 11  # of this major and newer: NVIDIA, Minor Version Compatibility

_VIRTUAL: Final = frozenset({GpuMode.VGPU, GpuMode.HAMI})
_ALL: Final = frozenset(GpuMode)
_BOTH: Final = frozenset(CudaRules)
_STRICT: Final = frozenset({CudaRules.STRICT})
_LENIENT: Final = frozenset({CudaRules.LENIENT})

_WHOLE_CARD: Final = "give it whole cards (tencent.com/vcuda-core: 100 or a multiple of it)"


class Versions(Struct, frozen=True, kw_only=True):
    """`baseline` None: the virtual GPU's library does not name it."""

    driver: CudaVersion
    runtime: CudaVersion
    baseline: CudaVersion | None = None

    @property
    def majors_behind(self) -> int:
        """The number of major versions by which the runtime is older than the driver."""
        return self.driver.major - self.runtime.major

    @property
    def is_one_major_below_baseline(self) -> bool:
        base = self.baseline or VGPU_BASELINE
        return self.driver.major == base.major == self.runtime.major + 1

    @property
    def majors_differ(self) -> bool:
        base = self.baseline or VGPU_BASELINE
        return not self.driver.major == base.major == self.runtime.major


class CudaRule(Struct, frozen=True, kw_only=True):
    """`says` and `action` may name the versions in braces."""

    name: str
    verdict: Verdict
    applies: Callable[[Versions], bool]
    says: str
    action: str = ""
    source: str = DOCUMENT
    modes: frozenset[GpuMode] = _ALL
    rules: frozenset[CudaRules] = _BOTH


# The first that applies decides, so they stand from the worst verdict to the best.
CUDA_RULES: Final = (
    CudaRule(
        name="driver_below_runtime",
        verdict=Verdict.BLOCKED,
        applies=lambda versions: versions.driver < versions.runtime,
        says="the driver's CUDA {driver} is below the runtime's {runtime}; programs end with"
        " CUDA_ERROR_UNKNOWN (999) or an insufficient driver (35)",
        action="update the driver to CUDA {runtime} or newer, or take an image of CUDA {driver} or"
        " older",
        rules=_STRICT,
    ),
    CudaRule(
        name="driver_below_runtime",
        verdict=Verdict.BLOCKED,
        applies=lambda versions: (
            versions.driver < versions.runtime
            and versions.driver.major == versions.runtime.major < MINOR_COMPATIBILITY
        ),
        says="the driver's CUDA {driver} is below the runtime's {runtime}; before CUDA 11 no minor"
        " version runs on an older driver",
        action="update the driver to CUDA {runtime} or newer, or take an image of CUDA {driver} or"
        " older",
        source=f"{GUIDE}minor-version-compatibility.html",
        rules=_LENIENT,
    ),
    CudaRule(
        name="baseline_below_runtime",
        verdict=Verdict.BLOCKED,
        applies=lambda versions: (
            versions.baseline is not None and versions.baseline < versions.runtime
        ),
        says="the virtual GPU's baseline CUDA {baseline} is below the runtime's {runtime}",
        action=f"take an image of CUDA {{baseline}} or older, or {_WHOLE_CARD}",
        modes=_VIRTUAL,
    ),
    CudaRule(
        name="vgpu_cuda_limit",
        verdict=Verdict.BLOCKED,
        applies=lambda versions: versions.baseline is None and versions.runtime >= VGPU_BASELINE,
        says="GPU-Manager supports only CUDA below 12.4, and the runtime is of {runtime}",
        action=f"take an image of CUDA 12.3 or older, or {_WHOLE_CARD}; a GPU-Manager of a newer"
        " baseline: say which (--baseline)",
        source="accelerator guide, vGPU Constraints",
        modes=frozenset({GpuMode.VGPU}),
        rules=_STRICT,
    ),
    CudaRule(
        name="vgpu_cuda_limit",
        verdict=Verdict.BLOCKED,
        applies=lambda versions: versions.baseline is None and versions.runtime > VGPU_BASELINE,
        says="GPU-Manager's usual baseline is CUDA 12.4, and the runtime is of {runtime}",
        action=f"take an image of CUDA 12.4 or older, or {_WHOLE_CARD}; a GPU-Manager of a newer"
        " baseline: say which (--baseline)",
        modes=frozenset({GpuMode.VGPU}),
        rules=_LENIENT,
    ),
    CudaRule(
        name="baseline_unknown",
        verdict=Verdict.CASE_BY_CASE,
        applies=lambda versions: versions.baseline is None,
        says="it is not said for which CUDA the virtual GPU's library was made",
        action="find it out and say it (--baseline)",
        modes=frozenset({GpuMode.HAMI}),
    ),
    CudaRule(
        name="gpu_manager_one_major_below",
        verdict=Verdict.CASE_BY_CASE,
        applies=lambda versions: versions.is_one_major_below_baseline,
        says="the runtime's CUDA {runtime} is one major version below driver and baseline;"
        " GPU-Manager serves some such programs (vLLM of 11.8 on 12.4), by hooks made for each",
        action=f"have it tried with this very program, or {_WHOLE_CARD}",
        modes=frozenset({GpuMode.VGPU}),
    ),
    CudaRule(
        name="majors_differ",
        verdict=Verdict.BLOCKED,
        applies=lambda versions: versions.majors_differ,
        says="a virtual GPU wants one major version of CUDA: the driver's is {driver}, the"
        " baseline's {baseline}, the runtime's {runtime}",
        action=f"take an image of the driver's major version, or {_WHOLE_CARD}",
        modes=_VIRTUAL,
    ),
    CudaRule(
        name="mps_needs_11_5",
        verdict=Verdict.BLOCKED,
        applies=lambda versions: versions.driver < MPS_CUDA,
        says="MPS wants a driver of CUDA 11.5 or newer, this one is of {driver}",
        action="update the driver to branch 495 or newer, or give it whole GPUs",
        source="accelerator guide, NVIDIA MPS configuration",
        modes=frozenset({GpuMode.MPS}),
        rules=_STRICT,
    ),
    CudaRule(
        name="mps_without_memory_limits",
        verdict=Verdict.CASE_BY_CASE,
        applies=lambda versions: versions.driver < MPS_CUDA,
        says="MPS cannot bound memory before CUDA 11.5, and the driver is of {driver}",
        action="update the driver to branch 495 or newer, or see that the programs share memory"
        " without a bound",
        source=MPS_GUIDE,
        modes=frozenset({GpuMode.MPS}),
        rules=_LENIENT,
    ),
    CudaRule(
        name="forward_compatibility",
        verdict=Verdict.CASE_BY_CASE,
        applies=lambda versions: versions.driver.major < versions.runtime.major,
        says="the driver's CUDA {driver} is a major version below the runtime's {runtime}; only"
        " data center GPUs run it, with the package of forward compatibility in the image",
        action="update the driver, or install cuda-compat of CUDA {runtime} in the image",
        source=f"{GUIDE}forward-compatibility.html",
        rules=_LENIENT,
    ),
    CudaRule(
        name="majors_too_far_apart",
        verdict=Verdict.UNSTABLE,
        applies=lambda versions: versions.majors_behind > 1,
        says="the runtime's CUDA {runtime} is more than one major version below the driver's"
        " {driver}; the program may malfunction",
        action="take an image of a newer CUDA",
        rules=_STRICT,
    ),
    CudaRule(
        name="minor_version_compatibility",
        verdict=Verdict.SUPPORTED,
        applies=lambda versions: versions.driver < versions.runtime,
        says="the driver's CUDA {driver} serves runtime {runtime} of the same major version, but"
        " not what needs the newer driver: PTX that is compiled at load, and new functions",
        source=f"{GUIDE}minor-version-compatibility.html",
        rules=_LENIENT,
    ),
    CudaRule(
        name="driver_serves_runtime",
        verdict=Verdict.SUPPORTED,
        applies=lambda _versions: True,
        says="the driver's CUDA {driver} serves runtime {runtime}",
    ),
)


def check_cuda(
    driver: CudaVersion,
    runtime: CudaVersion,
    mode: GpuMode,
    baseline: CudaVersion | None = None,
    *,
    rules: CudaRules = CudaRules.STRICT,
) -> Finding:
    """Return the finding of the first rule that applies.

    `strict` is the accelerator guide. `lenient` follows NVIDIA where that allows more: from CUDA 11
    on a driver serves every runtime of its major version, and every older one.
    """
    versions = Versions(driver=driver, runtime=runtime, baseline=baseline)
    rule = next(
        rule
        for rule in CUDA_RULES
        if mode in rule.modes and rules in rule.rules and rule.applies(versions)
    )
    stated_versions = {
        "driver": driver,
        "runtime": runtime,
        "baseline": baseline or VGPU_BASELINE,
    }
    return Finding(
        verdict=rule.verdict,
        rule=rule.name,
        message=rule.says.format_map(stated_versions),
        action=rule.action.format_map(stated_versions),
        source=rule.source,
    )
