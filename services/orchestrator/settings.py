"""Settings of the orchestrator."""

from typing import Annotated

from msgspec import Meta

from schemas.base import PositiveSeconds, Seconds
from schemas.gpus.checks import CudaRules
from shared.settings import CommonSettings


class OrchestratorSettings(CommonSettings, frozen=True, kw_only=True):
    """`offer_ttl_seconds` is how long an executor counts as present after its last report.

    Every `repair_interval_seconds` owners are queried about what has been silent for
    `repair_after_seconds`. A submission waits up to `first_report_seconds` while no executor has
    reported at all. An attempt that has not ended `overdue_after_seconds` after its task's
    `timeout_per_iteration` is stopped, and as long after that loses its reservation, which states
    the sum of the two as its duration. A failed experiment that is repeated waits for
    `retry_pause_seconds` first. Every `preparation_interval_seconds` executors receive what waits
    for GPUs, so that they can make its image and its model ready. A task that finished
    `archive_after_days` ago is archived: lists leave it out unless asked; without, none ever is. By
    `cuda_rules` an engine's image runs on no driver below its CUDA (`strict`), or on those of its
    major version as well, as NVIDIA's minor-version compatibility has it (`lenient`).

    `secrets_key_file` has the keys that seal the secrets of namespaces, one a line, the one in use
    first: the operator's, the same for every orchestrator, and never written. Without it they are
    in `secrets.key` of the data directory, made with the first secret.
    """

    offer_ttl_seconds: PositiveSeconds = 300.0
    repair_interval_seconds: PositiveSeconds = 15.0
    repair_after_seconds: PositiveSeconds = 5.0
    first_report_seconds: PositiveSeconds = 3.0
    overdue_after_seconds: PositiveSeconds = 300.0
    retry_pause_seconds: Seconds = 10.0
    preparation_interval_seconds: PositiveSeconds = 15.0
    cuda_rules: CudaRules = CudaRules.STRICT
    secrets_key_file: str = ""
    archive_after_days: Annotated[float, Meta(gt=0, le=36_500)] | None = None
