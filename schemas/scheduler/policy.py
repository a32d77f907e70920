"""Another policy tried on recorded requests."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from schemas.base import Count, Namespace, Percent, Query, Seconds, UtcDatetime, View


class TriedPolicy(StrEnum):
    """The present policy with one thing changed."""

    DENSITY = "density"
    NO_DENSITY = "no_density"
    NO_PREEMPTION = "no_preemption"
    NO_AGING = "no_aging"


class TryPolicy(Query, frozen=True, kw_only=True, tag="scheduler.try_policy"):
    """What would another policy have made of the recorded requests? Answered by `PolicyTrial`;
    changes nothing. Refused with `not_found` where nothing is recorded.
    """

    policy: TriedPolicy
    since_at: UtcDatetime


class NamespaceOutcome(Struct, frozen=True, kw_only=True):
    """What one namespace got. Waits are of its granted requests."""

    namespace: Namespace | None
    requests: Count
    granted: Count
    gpu_hours: Annotated[float, Meta(ge=0)]
    p50_seconds: Seconds | None = None
    p95_seconds: Seconds | None = None


class PolicyOutcome(Struct, frozen=True, kw_only=True):
    """What a policy makes of the requests. Waits are of the granted ones.

    `used_percent` is how full the fleet was, `packed_percent` how full nodes were that held
    anything, both by GPU time.
    """

    requests: Count
    granted: Count
    waiting: Count
    preempted: Count
    used_percent: Percent
    packed_percent: Percent
    p50_seconds: Seconds | None = None
    p95_seconds: Seconds | None = None
    namespaces: tuple[NamespaceOutcome, ...] = ()


class PolicyTrial(View, frozen=True, kw_only=True, tag="scheduler.policy_trial"):
    """The same requests on the same fleet, served by the present policy and by the tried one.

    `recorded_*` are the waits as they were: how far the present policy's are from them is how far
    the trial is from what happens. `left_out` says in sentences what it knows nothing of.
    """

    policy: TriedPolicy
    start_at: UtcDatetime
    end_at: UtcDatetime
    decisions: Count
    recorded_p50_seconds: Seconds | None
    recorded_p95_seconds: Seconds | None
    present: PolicyOutcome
    tried: PolicyOutcome
    left_out: tuple[str, ...]
