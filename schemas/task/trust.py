"""How far a task's best configuration can be trusted."""

from enum import StrEnum

from msgspec import Struct

from schemas.base import Count, PositiveInt


class RunRole(StrEnum):
    """Why an experiment runs: `search` tries a configuration, `repeat` measures one again, `replay`
    measures the winner with requests that no run before had, `screen` tries a configuration with
    few requests.
    """

    SEARCH = "search"
    REPEAT = "repeat"
    REPLAY = "replay"
    SCREEN = "screen"


class RunInfo(Struct, frozen=True, kw_only=True):
    """`repeats` is the ordinal of the first run of its configuration; None: this is it. `seed`: of
    the requests, 0 those of the search. For the reasons in `contaminated` it counts for nothing
    where trust is asked for. `image_digest` is of the container image that ran. With a
    `request_divisor` it had so many times fewer requests in each level.
    """

    role: RunRole = RunRole.SEARCH
    repeats: PositiveInt | None = None
    seed: Count = 0
    contaminated: tuple[str, ...] = ()
    image_digest: str = ""
    request_divisor: PositiveInt = 1


class TrustedConfiguration(Struct, frozen=True, kw_only=True):
    """One that was measured again, by the `ordinal` of its first run. `mean_score` is of its clean
    runs, `spread_percent` their standard deviation as a share of it; None: a single one.

    `behind_percent` is of the winner's mean.
    """

    ordinal: PositiveInt
    runs: PositiveInt
    mean_score: float
    spread_percent: float | None = None
    behind_percent: float = 0.0


class SetAside(Struct, frozen=True, kw_only=True):
    """A run that counts for nothing, and why."""

    ordinal: PositiveInt
    reason: str


class GoalStanding(Struct, frozen=True, kw_only=True):
    """A configuration by one of several objectives. `behind_percent` is of the front's best by it,
    `is_within_noise` whether chance may part the two; None: none was measured twice.
    """

    objective: str
    mean: float
    behind_percent: float
    noise_floor_percent: float | None = None
    is_within_noise: bool | None = None


class FrontMember(Struct, frozen=True, kw_only=True):
    """A configuration that no other beats in all objectives, by the means of its `runs`. `ties` are
    those of the front that it cannot be distinguished from in any objective.
    """

    ordinal: PositiveInt
    runs: PositiveInt
    goals: tuple[GoalStanding, ...]
    ties: tuple[int, ...] = ()


class TrustVerdict(Struct, frozen=True, kw_only=True):
    """What repeating the leaders showed. `winner` is the ordinal of its first run; None: nothing
    could be compared.

    `noise_floor_percent`: 19 of 20 pairs of runs of the same configuration differ by less; None:
    none was measured twice. `ties` are those that the winner cannot be distinguished from; it goes
    before them as it changes the fewest flags. `worst_score` is the worst of `replays` runs of the
    winner with other requests. `improvement_percent`: how much better another one may truly be, at
    most. `front` is of a task with several objectives, the best by the first one first.
    """

    winner: PositiveInt | None = None
    noise_floor_percent: float | None = None
    ties: tuple[int, ...] = ()
    repeated: tuple[TrustedConfiguration, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    replays: Count = 0
    worst_score: float | None = None
    improvement_percent: float | None = None
    incomplete_because: str = ""
    front: tuple[FrontMember, ...] = ()
