"""Settings of results."""

from typing import Annotated

from msgspec import Meta

from schemas.base import PositiveSeconds, Seconds
from schemas.telemetry.readings import BurstSeconds
from shared.gpu.prices import parse_prices
from shared.settings import CommonSettings, SettingsError, variable_of


class ResultsSettings(CommonSettings, frozen=True, kw_only=True):
    """`retention_days` is how long raw samples are stored; an experiment's own outlive that. Their
    rollups by minutes and by hours are stored for `minutes_retention_days` and
    `hours_retention_days`, which are no shorter.

    While an experiment loads, warms up and measures, its nodes sample every
    `burst_interval_seconds`, for `burst_seconds` from the begin of each of these; 0: as always.
    `summary_grace_seconds`: how long after an attempt's end its node's samples are waited for.

    `otlp_endpoint` is an OpenTelemetry collector's URL for OTLP over HTTP, such as
    `http://collector:4318`; samples are sent there once they are stored. Headers, certificates and
    the like are those of OpenTelemetry's own variables, `OTEL_EXPORTER_OTLP_HEADERS` and so on.

    `dsn` is a Postgres of this service alone, where samples and measurements are too much for that
    of `GPUSTEWARD_POSTGRES_DSN`; nothing moves what another one has.

    `gpu_hour_prices` is what an hour of a GPU costs in `currency`, by parts of models' names:
    `H200=3.5, A100=1.8`.
    """

    retention_days: Annotated[int, Meta(ge=1, le=3650)] = 7
    minutes_retention_days: Annotated[int, Meta(ge=1, le=3650)] = 90
    hours_retention_days: Annotated[int, Meta(ge=1, le=3650)] = 730
    summary_grace_seconds: Seconds = 10.0
    burst_interval_seconds: BurstSeconds = 0.1
    burst_seconds: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    batch_linger_seconds: PositiveSeconds = 0.25
    otlp_endpoint: str | None = None
    gpu_hour_prices: str = ""
    currency: str = "USD"
    dsn: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        days = self.retention_days, self.minutes_retention_days, self.hours_retention_days
        if list(days) != sorted(days):
            raise SettingsError(
                "expected retention_days <= minutes_retention_days <= hours_retention_days, found"
                f" {days[0]}, {days[1]} and {days[2]}"
            )
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise SettingsError(
                f"{variable_of('otlp_endpoint', 'results')}: expected a URL such as"
                f" http://collector:4318, found {self.otlp_endpoint!r}"
            )
        try:
            _ = self.prices
        except ValueError as error:
            raise SettingsError(f"{variable_of('gpu_hour_prices', 'results')}: {error}") from error

    @property
    def prices(self) -> dict[str, float]:
        """The price of a GPU's hour, by parts of models' names."""
        return parse_prices(self.gpu_hour_prices)
