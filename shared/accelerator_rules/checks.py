"""Checks answered: about what was given, or about all there is."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from schemas.checks import CheckView, CudaCheck, Finding, Verdict
from schemas.errors import ErrorCode
from schemas.telemetry import InventoryReported
from shared.accelerator_rules.cuda import check_cuda
from shared.accelerator_rules.cuda_versions import driver_cuda, runtime_cuda
from shared.errors import RefusedError

_ORDER: Final = tuple(Verdict)


def answer_cuda(check: CudaCheck, nodes: Iterable[InventoryReported]) -> CheckView:
    """Of the driver that was given, else of every node's. Raises RefusedError for no version."""
    runtime = runtime_cuda(check.runtime)
    baseline = runtime_cuda(check.baseline, path="$.baseline") if check.baseline else None

    def of(driver: str | None, subject: str) -> Finding:
        if driver is None:
            return Finding(
                verdict=Verdict.CASE_BY_CASE,
                rule="driver_unknown",
                message="the node does not tell its driver's version",
                subject=subject,
            )
        served = driver_cuda(driver)
        found = check_cuda(served, runtime, check.mode, baseline, rules=check.rules)
        return replace(found, subject=subject)

    if check.driver is not None:
        return answered((of(check.driver, ""),))
    found = tuple(
        of(node.host.cuda_driver_version or node.host.driver_version, node.node_id)
        for node in sorted(nodes, key=lambda node: node.node_id)
        if node.devices
    )
    if not found:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected a driver: no node with a GPU reports to this platform",
            path="$.driver",
        )
    return answered(found)


def answered(findings: Sequence[Finding]) -> CheckView:
    """With the verdict of the subject that is served best: a scheduler takes that one."""
    best = min((finding.verdict for finding in findings), key=_ORDER.index)
    return CheckView(verdict=best, findings=tuple(findings))
