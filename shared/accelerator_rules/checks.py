"""Checks answered: about what was given, or about all there is."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gpus.checks import (
    AnyCheck,
    CheckView,
    CudaCheck,
    DeviceConfigCheck,
    Finding,
    ModeCheck,
    PrecisionCheck,
    Verdict,
)
from schemas.telemetry.readings import InventoryReported
from shared.accelerator_rules.compute_capability import (
    capability,
    capability_by_name,
    has_capability,
)
from shared.accelerator_rules.cuda import check_cuda
from shared.accelerator_rules.cuda_versions import (
    CudaVersion,
    cuda_of_driver,
    cuda_version,
    driver_cuda,
    runtime_cuda,
)
from shared.accelerator_rules.device_config import answer_device_config
from shared.accelerator_rules.modes import answer_mode
from shared.accelerator_rules.precision import check_precision, precision_named
from shared.accelerator_rules.verdicts import best
from shared.errors import RefusedError


def answer(check: AnyCheck, nodes: Iterable[InventoryReported]) -> CheckView:
    """Raises RefusedError for what names nothing that could be checked."""
    match check:
        case CudaCheck():
            return answer_cuda(check, nodes)
        case PrecisionCheck():
            return answer_precision(check, nodes)
        case DeviceConfigCheck():
            return answer_device_config(check)
        case ModeCheck():
            return answer_mode(check)


def answer_cuda(check: CudaCheck, nodes: Iterable[InventoryReported]) -> CheckView:
    """Check the driver in the request, else the driver of every node. Raises RefusedError for what
    is no version.
    """
    runtime = runtime_cuda(check.runtime)
    baseline = runtime_cuda(check.baseline, path="$.baseline") if check.baseline else None

    def of(served: CudaVersion) -> Finding:
        return check_cuda(served, runtime, check.mode, baseline, rules=check.rules)

    if check.driver is not None:
        return check_view((of(driver_cuda(check.driver)),))
    findings = tuple(
        replace(_of_node(node, of), subject=node.node_id)
        for node in sorted(nodes, key=lambda node: node.node_id)
        if node.devices
    )
    if not findings:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected a driver: no node with a GPU reports to this platform",
            path="$.driver",
        )
    return check_view(findings)


def _of_node(node: InventoryReported, of: Callable[[CudaVersion], Finding]) -> Finding:
    """Check the node's own driver; an unreadable one is a finding of that node alone."""
    host = node.host
    if not any(has_capability(device.name) for device in node.devices):
        return Finding(
            verdict=Verdict.BLOCKED,
            rule="no_cuda",
            message="its GPUs are of another maker than NVIDIA and run no CUDA",
            action="take an image for its GPUs, of ROCm for AMD's",
        )
    served = cuda_version(host.cuda_driver_version) or cuda_version(
        cuda_of_driver(host.driver_version)
    )
    if served is not None:
        return of(served)
    version = host.cuda_driver_version or host.driver_version
    return Finding(
        verdict=Verdict.CASE_BY_CASE,
        rule="driver_unknown",
        message=f"the node's driver says {version!r}, which is no version that is known"
        if version
        else "the node does not tell its driver's version",
    )


def answer_precision(check: PrecisionCheck, nodes: Iterable[InventoryReported]) -> CheckView:
    """Check the GPU in the request, else every model of GPU that the nodes have. Raises
    RefusedError.
    """
    precision = precision_named(check.precision)
    if check.capability is not None or check.gpu is not None:
        stated = capability(check.capability)
        by_name = capability_by_name(check.gpu) if check.gpu is not None else None
        if stated is None and (check.capability is not None or by_name is None):
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                "expected a compute capability such as 8.0, or a GPU model that is known, such as"
                f" H100; got {check.capability or check.gpu!r}",
                path="$.capability" if check.capability is not None else "$.gpu",
            )
        finding = check_precision(stated or by_name, precision, rules=check.rules)
        return check_view((replace(finding, subject=check.gpu or ""),))
    models = {
        device.name: capability(device.compute_capability) or capability_by_name(device.name)
        for node in nodes
        for device in node.devices
        if has_capability(device.name)
    }
    if not models:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected a GPU: no node with one of NVIDIA's reports to this platform",
            path="$.gpu",
        )
    return check_view(
        [
            replace(check_precision(models[name], precision, rules=check.rules), subject=name)
            for name in sorted(models)
        ]
    )


def check_view(findings: Sequence[Finding]) -> CheckView:
    """Return the findings with the best verdict of all subjects: a scheduler chooses that
    subject.
    """
    return CheckView(
        verdict=best(finding.verdict for finding in findings), findings=tuple(findings)
    )
