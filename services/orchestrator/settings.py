"""What the orchestrator is told."""

from schemas.base import PositiveSeconds
from shared.settings import CommonSettings


class OrchestratorSettings(CommonSettings, frozen=True, kw_only=True):
    """`offer_ttl_seconds` is how long an executor counts as present after its last report.

    Every `repair_interval_seconds` owners are asked about what has been silent for
    `repair_after_seconds`. A submission waits up to `first_report_seconds` while no executor has
    reported at all.
    """

    offer_ttl_seconds: PositiveSeconds = 300.0
    repair_interval_seconds: PositiveSeconds = 15.0
    repair_after_seconds: PositiveSeconds = 5.0
    first_report_seconds: PositiveSeconds = 3.0
