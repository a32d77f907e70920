"""Resources by which containers of Kubernetes ask for GPUs: their units, and their limits."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.gpus.checks import CheckView, Finding, GpuMode, ModeCheck, PrecisionRules, Verdict
from schemas.gpus.gpu_request import GpuRequest
from schemas.gpus.vgpu import (
    VGPU_CORE_RESOURCE,
    VGPU_CORES,
    VGPU_MEMORY_RESOURCE,
    VGPU_MEMORY_UNIT_MB,
)
from shared.accelerator_rules.compute_capability import (
    Capability,
    capability,
    capability_by_name,
    capability_text,
)
from shared.accelerator_rules.cuda import MPS_CUDA, MPS_GUIDE
from shared.accelerator_rules.cuda_versions import CudaVersion, driver_cuda
from shared.accelerator_rules.verdicts import worst
from shared.errors import RefusedError

# Whole GPUs of NVIDIA: of the device plugin, and the class of the DRA driver's devices.
GPU_RESOURCE: Final = "nvidia.com/gpu"
DEVICE_CLASS: Final = "gpu.nvidia.com"
# What counts as a GPU in a cluster unless configured; `*` stands for any ending.
COUNTED: Final = (
    *(GPU_RESOURCE, "nvidia.com/gpu.shared", "nvidia.com/mig-*", "nvidia.com/mps-core"),
    *(VGPU_CORE_RESOURCE, "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"),
)
SHARED_GPU_RESOURCE: Final = "nvidia.com/gpu.shared"  # slices, as NVIDIA's plugin renames them
GPU_MANAGER: Final = "https://github.com/tkestack/gpu-manager"
MIG_PREFIX: Final = "nvidia.com/mig-"
VOLTA: Final[Capability] = (7, 0)
OLDEST_KUBERNETES: Final = (1, 25)


class GpuForm(Struct, frozen=True, kw_only=True):
    """`per_gpu` units of `resource` are a whole GPU, fewer a part of one.

    `memory_resource` comes with it, in units of `memory_unit_mb`; None: the guide does not say.
    """

    mode: GpuMode
    resource: str
    per_gpu: int = 1
    memory_resource: str | None = None
    memory_unit_mb: int | None = None
    source: str


FORMS: Final = (
    GpuForm(
        mode=GpuMode.PGPU,
        resource=GPU_RESOURCE,
        source="accelerator guide, pGPU Constraints",
    ),
    GpuForm(
        mode=GpuMode.VGPU,
        resource=VGPU_CORE_RESOURCE,
        per_gpu=VGPU_CORES,
        memory_resource=VGPU_MEMORY_RESOURCE,
        memory_unit_mb=VGPU_MEMORY_UNIT_MB,
        source=f"accelerator guide, GPU-Manager Whole-Card Allocation; {GPU_MANAGER}",
    ),
    GpuForm(
        mode=GpuMode.MPS,
        resource="nvidia.com/mps-core",
        per_gpu=100,
        memory_resource="nvidia.com/mps-memory",
        source="accelerator guide, NVIDIA MPS configuration",
    ),
)
_BY_RESOURCE: Final = {form.resource: form for form in FORMS}
_MEMORY: Final = {form.memory_resource: form for form in FORMS if form.memory_resource}


class Surroundings(Struct, frozen=True, kw_only=True):
    """Where it is to run; None is unknown."""

    capability: Capability | None = None
    driver: CudaVersion | None = None
    kubernetes: tuple[int, int] | None = None
    is_mig: bool = False
    has_mps_on_mig: bool = False


class ModeRule(Struct, frozen=True, kw_only=True):
    """`hardware` is what it comes to where hardware does more than the guide says, `documented`
    by the guide to the letter.
    """

    name: str
    modes: frozenset[GpuMode]
    breaks: Callable[[Surroundings], bool]
    says: str
    action: str
    source: str
    hardware: Verdict = Verdict.BLOCKED
    documented: Verdict = Verdict.BLOCKED


_MPS: Final = frozenset({GpuMode.MPS})
_VGPU: Final = frozenset({GpuMode.VGPU})
MODE_RULES: Final = (
    ModeRule(
        name="no_mig_with_vgpu",
        modes=_VGPU,
        breaks=lambda where: where.is_mig,
        says="GPU-Manager divides no GPU that is divided into MIG instances",
        action="ask for an instance (nvidia.com/mig-PROFILE), or disable MIG on its nodes",
        source="accelerator guide, vGPU Constraints",
    ),
    ModeRule(
        name="no_mig_with_mps",
        modes=_MPS,
        breaks=lambda where: where.is_mig and not where.has_mps_on_mig,
        says="the MPS plugin serves no MIG instances; MPS itself runs on one, if its daemon was"
        " started for it",
        action="ask for an instance (nvidia.com/mig-PROFILE), or disable MIG on its nodes; where"
        " you have started a daemon for the instance, say so (--mps-on-mig)",
        source=f"accelerator guide, MPS Constraints; {MPS_GUIDE}",
    ),
    ModeRule(
        name="mps_on_mig",
        modes=_MPS,
        breaks=lambda where: where.is_mig and where.has_mps_on_mig,
        says="an MPS daemon that was started for the MIG instance serves it; the guide's plugin"
        " does not",
        action="see that CUDA_VISIBLE_DEVICES of daemon and clients is the instance",
        source=MPS_GUIDE,
        hardware=Verdict.CASE_BY_CASE,
        documented=Verdict.CASE_BY_CASE,
    ),
    ModeRule(
        name="mps_needs_volta",
        modes=_MPS,
        breaks=lambda where: where.capability is not None and where.capability < VOLTA,
        says="MPS is of Volta (7.0) or newer, and this is {capability}; older GPUs have it without"
        " bounds on what a client takes",
        action="take a newer GPU, or whole ones",
        source=f"accelerator guide, Install GPU driver; {MPS_GUIDE}",
        hardware=Verdict.CASE_BY_CASE,
    ),
    ModeRule(
        name="mps_needs_11_5",
        modes=_MPS,
        breaks=lambda where: where.driver is not None and where.driver < MPS_CUDA,
        says="MPS bounds memory from CUDA 11.5 on (the guide's other place: 11.4), and the driver"
        " serves {driver}",
        action="update the driver to branch 495 or newer",
        source=f"accelerator guide, NVIDIA MPS configuration; {MPS_GUIDE}",
        hardware=Verdict.CASE_BY_CASE,
    ),
    ModeRule(
        name="kubernetes_1_25",
        modes=frozenset(GpuMode),
        breaks=lambda where: where.kubernetes is not None and where.kubernetes < OLDEST_KUBERNETES,
        says="the plugins are for Kubernetes 1.25 and newer, and this is {kubernetes}",
        action="upgrade the cluster",
        source="accelerator guide, Prerequisites",
    ),
)


def units_per_gpu(resource: str) -> int:
    """Return how many units of a resource are one whole GPU."""
    form = _BY_RESOURCE.get(resource)
    return form.per_gpu if form is not None else 1


def memory_resource_of(resource: str) -> str | None:
    """Return what counts the memory of a resource's parts of GPUs; None where nothing does."""
    form = _BY_RESOURCE.get(resource)
    return form.memory_resource if form is not None else None


def memory_units(resource: str, memory_mb: int) -> int | None:
    """Return so much memory in units of what belongs to a resource, rounded up; None where none
    does, or the guide does not tell its unit.
    """
    form = _BY_RESOURCE.get(resource)
    if form is None or form.memory_unit_mb is None:
        return None
    return -(-memory_mb // form.memory_unit_mb)


def uneven(resource: str, count: int) -> str | None:
    """Say why this count is neither a part of a GPU nor whole GPUs; None if it is one of them."""
    per_gpu = units_per_gpu(resource)
    if count >= 1 and (count <= per_gpu or count % per_gpu == 0):
        return None
    if per_gpu == 1:
        return f"expected at least 1 of {resource}, got {count}"
    return f"expected 1 to {per_gpu} of {resource}, or a multiple of {per_gpu}, got {count}"


def is_memory(resource: str) -> bool:
    """True if the resource counts memory of parts of GPUs instead of GPUs."""
    return resource in _MEMORY


def request_of(resources: Mapping[str, int]) -> GpuRequest:
    """Return the GPU request of a container's limits. Raises RefusedError for combinations that no
    rule allows.
    """
    mains = [name for name in resources if name in _BY_RESOURCE or name.startswith(MIG_PREFIX)]
    unknown = sorted(resources.keys() - set(mains) - _MEMORY.keys())
    if len(mains) != 1 or unknown:
        known_resources = ", ".join((*_BY_RESOURCE, f"{MIG_PREFIX}PROFILE"))
        got = ", ".join(sorted(resources)) or "nothing"
        raise _refusal(f"expected one of {known_resources}, and what belongs to it; got {got}")
    (main,) = mains
    count = resources[main]
    if (says := uneven(main, count)) is not None:
        raise _refusal(says)
    if main.startswith(MIG_PREFIX):
        if count != 1:
            raise _refusal(f"expected 1 of {main}: an instance is a GPU of its own, got {count}")
        _refuse_memory(resources, None)
        return GpuRequest(mig_profile=main.removeprefix(MIG_PREFIX))
    form = _BY_RESOURCE[main]
    _refuse_memory(resources, form)
    if form.mode is GpuMode.VGPU:
        return _of_vgpu(form, resources)
    if count % form.per_gpu:
        return GpuRequest(shares=count / form.per_gpu, unfragmented=True, enforced_shares=True)
    return GpuRequest(gpus=count // form.per_gpu)


def answer_mode(check: ModeCheck) -> CheckView:
    """Return every limit that the request exceeds. Raises RefusedError if no resource is a known
    GPU resource.
    """
    request = request_of(check.resources)
    mode = next(
        (_BY_RESOURCE[name].mode for name in check.resources if name in _BY_RESOURCE), GpuMode.PGPU
    )
    stated = capability(check.capability) or (capability_by_name(check.gpu) if check.gpu else None)
    where = Surroundings(
        capability=stated,
        driver=driver_cuda(check.driver) if check.driver else None,
        kubernetes=_kubernetes(check.kubernetes_version),
        is_mig=check.mig,
        has_mps_on_mig=check.mps_on_mig,
    )
    findings = tuple(_broken(mode, where, check.rules))
    return CheckView(
        verdict=worst(finding.verdict for finding in findings),
        findings=findings or (_fits(mode, request),),
    )


def _broken(mode: GpuMode, where: Surroundings, rules: PrecisionRules) -> Iterator[Finding]:
    facts = {
        "capability": capability_text(where.capability) if where.capability else "",
        "driver": where.driver,
        "kubernetes": ".".join(map(str, where.kubernetes or ())),
    }
    for rule in MODE_RULES:
        if mode in rule.modes and rule.breaks(where):
            is_documented = rules is PrecisionRules.DOCUMENTED
            yield Finding(
                verdict=rule.documented if is_documented else rule.hardware,
                rule=rule.name,
                message=rule.says.format_map(facts),
                action=rule.action,
                source=rule.source,
                subject=mode.value,
            )


def _fits(mode: GpuMode, request: GpuRequest) -> Finding:
    if request.mig_profile is not None:
        what = f"a MIG instance {request.mig_profile}"
    elif request.shares is not None:
        what = f"{request.shares:.2f} of one GPU"
    else:
        what = "1 whole GPU" if request.gpus == 1 else f"{request.gpus} whole GPUs"
    source = next(form.source for form in FORMS if form.mode is mode)
    return Finding(
        verdict=Verdict.SUPPORTED,
        rule=f"{mode.value}_form",
        message=f"this is {what}",
        source=source,
    )


def _of_vgpu(form: GpuForm, resources: Mapping[str, int]) -> GpuRequest:
    units = resources.get(form.memory_resource or "")
    memory_mb = units * (form.memory_unit_mb or 0) if units else None
    try:
        return GpuRequest(vgpu_cores=resources[form.resource], vgpu_memory_mb=memory_mb)
    except ValueError as error:
        raise _refusal(str(error)) from error


def _refuse_memory(resources: Mapping[str, int], form: GpuForm | None) -> None:
    """Raises RefusedError for memory of another form, and of one whose unit is not known."""
    for name in _MEMORY.keys() & resources.keys():
        if form is None or name != form.memory_resource:
            raise _refusal(f"expected no {name} with what it does not belong to")
        if form.memory_unit_mb is None:
            raise _refusal(
                f"expected no {name}, whose unit the guide does not tell: a part of a GPU has as"
                " large a part of its memory"
            )


def _kubernetes(version: str | None) -> tuple[int, int] | None:
    if version is None:
        return None
    major, _, _patch = version.removeprefix("v").partition(".")
    minor = _patch.partition(".")[0].rstrip("+")
    if not (major.isdecimal() and minor.isdecimal()):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a version of Kubernetes such as 1.34, got {version!r}",
            path="$.kubernetes_version",
        )
    return int(major), int(minor)


def _refusal(message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path="$.resources")
