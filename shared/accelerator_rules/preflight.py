"""What a configuration needs of its GPUs and their driver, judged before any of them is taken."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.gpus.checks import CudaRules, Finding, Verdict
from schemas.gpus.gpu_request import Selector, SelectorKey, SelectorOperator
from shared.accelerator_rules.compute_capability import capability_text
from shared.accelerator_rules.cuda import DOCUMENT, GUIDE, MINOR_COMPATIBILITY
from shared.accelerator_rules.cuda_versions import CudaVersion
from shared.accelerator_rules.precision import Demand, demand_of, hint_for

PRECISION: Final = "precision"
CUDA: Final = "cuda"


class Preflight(Struct, frozen=True, kw_only=True):
    """`capability` and `selectors` are what GPUs are asked for, so that no other is taken."""

    findings: tuple[Finding, ...] = ()
    capability: str | None = None
    selectors: tuple[Selector, ...] = ()

    @property
    def notes(self) -> list[str]:
        """The messages that exclude GPUs without blocking the task."""
        return [
            finding.message for finding in self.findings if finding.verdict is Verdict.SUPPORTED
        ]


def preflight(
    parameters: Mapping[str, Any],
    *,
    model_precisions: Sequence[str] = (),
    is_in_image: bool = False,
    is_in_cluster: bool = False,
    image: str = "",
    image_cuda: CudaVersion | None = None,
    rules: CudaRules = CudaRules.STRICT,
) -> Preflight:
    """`model_precisions` are of the model's config.json; empty: nothing was found that names them.

    `image_cuda` is what the image was built with; None: it does not state it.
    """
    demand = demand_of(parameters, model_precisions)
    findings = [_of_precision(demand)] if demand is not None else []
    selectors: tuple[Selector, ...] = ()
    if image_cuda is not None:
        least = least_driver(image_cuda, rules)
        findings.append(_of_cuda(image, image_cuda, least, rules, is_in_cluster=is_in_cluster))
        selectors = (
            Selector(
                key=SelectorKey.CUDA_DRIVER_VERSION,
                operator=SelectorOperator.AT_LEAST,
                values=(str(least),),
            ),
        )
    elif is_in_image:
        findings.append(_cuda_unknown(image, is_in_cluster=is_in_cluster))
    return Preflight(
        findings=tuple(findings),
        capability=capability_text(demand.capability) if demand is not None else None,
        selectors=selectors,
    )


def least_driver(runtime: CudaVersion, rules: CudaRules) -> CudaVersion:
    """The CUDA that a driver has to serve for a program of this one, which `check_cuda` judges
    alike.
    """
    if rules is CudaRules.LENIENT and runtime.major >= MINOR_COMPATIBILITY:
        return CudaVersion(runtime.major, 0)
    return runtime


def _of_precision(demand: Demand) -> Finding:
    return Finding(
        verdict=Verdict.SUPPORTED,
        rule=demand.precision.name,
        message=f"{demand.parameter} needs compute capability"
        f" {capability_text(demand.capability)}: NVIDIA"
        f" GPUs below it are not taken{hint_for(demand.capability)}",
        source=demand.precision.source,
        subject=PRECISION,
    )


def _of_cuda(
    image: str, runtime: CudaVersion, least: CudaVersion, rules: CudaRules, *, is_in_cluster: bool
) -> Finding:
    is_strict = rules is CudaRules.STRICT
    whose = "nodes whose labels tell a driver that" if is_in_cluster else "nodes whose driver"
    return Finding(
        verdict=Verdict.SUPPORTED,
        rule="driver_below_runtime",
        message=f"image {image} is of CUDA {runtime}: {whose} serves less than {least}"
        " are not taken",
        source=DOCUMENT if is_strict else f"{GUIDE}minor-version-compatibility.html",
        subject=CUDA,
    )


def _cuda_unknown(image: str, *, is_in_cluster: bool) -> Finding:
    return Finding(
        verdict=Verdict.CASE_BY_CASE,
        rule="runtime_unknown",
        message=f"image {image} does not tell its CUDA here, so drivers are not compared with it",
        action="name a tag that tells it (runtime_image_tag), such as v1-cu124"
        if is_in_cluster
        else "fetch it on a node beforehand (`docker pull`), where its environment tells it",
        source=DOCUMENT,
        subject=CUDA,
    )
