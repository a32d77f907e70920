"""Whether the platform answers, and what should be looked at."""

from enum import StrEnum

from msgspec import Struct

from schemas.base import View


class WarningCode(StrEnum):
    """What works and could be lost or stand still; the words stay as they are."""

    POSTGRES_ASYNCHRONOUS = "postgres_asynchronous"
    POSTGRES_STANDBY_AWAY = "postgres_standby_away"
    POSTGRES_STANDBY_BEHIND = "postgres_standby_behind"
    STREAM_REPLICAS = "stream_replicas"
    CERTIFICATE_ENDS = "certificate_ends"


class HealthWarning(Struct, frozen=True, kw_only=True):
    """One of `WarningCode`, and the sentence for a person."""

    code: WarningCode
    message: str


class Health(View, frozen=True, kw_only=True, tag="gateway.health"):
    """What answers. `missing` names what does not, `warnings` what answers and should be looked
    at.
    """

    ready: bool
    missing: tuple[str, ...] = ()
    warnings: tuple[HealthWarning, ...] = ()
