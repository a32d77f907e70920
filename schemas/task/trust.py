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


class ScoreError(Struct, frozen=True, kw_only=True):
    """How much better or worse the engine alone may score than its run did, as shares of its score.

    None: by any amount. `because` names the causes, for people. With `may_meet` the run may have
    missed the task's constraints by these causes alone.
    """

    better_share: float | None = 0.0
    worse_share: float | None = 0.0
    because: tuple[str, ...] = ()
    may_meet: bool = False


class RunSetting(Struct, frozen=True, kw_only=True):
    """What a run ran on, as far as it decides how fast the same configuration is.

    Of several GPUs each distinct value, sorted; empty: unknown. Power limits are in watts. The CPU
    is that of the host that sent the load, `engine_version` the engine's own word.
    """

    gpu_models: tuple[str, ...] = ()
    memory_total_mb: tuple[int, ...] = ()
    mig_profiles: tuple[str, ...] = ()
    power_limits_w: tuple[int, ...] = ()
    driver_versions: tuple[str, ...] = ()
    cpu_model: str = ""
    cpu_governor: str = ""
    engine_version: str = ""


class RunInfo(Struct, frozen=True, kw_only=True):
    """`repeats` is the ordinal of the first run of its configuration; None: this is it. `seed`: of
    the requests, 0 those of the search. For the reasons in `contaminated` another run of the
    configuration counts in its place, where trust is asked for and there is one. `image_digest` is
    of the container image that ran. With a `request_divisor` it had so many times fewer requests in
    each level. `error`: how far its score may be off; None: not by anything that is known.
    `setting` is what it ran on.

    `kept_from` is the ordinal of the run for which its engine was started, where it was measured on
    one that was kept up; None: on a start of its own. `engine_use` says so for people, and how its
    state was reset, or why it was a fresh start; empty where nothing could be kept up.
    """

    role: RunRole = RunRole.SEARCH
    repeats: PositiveInt | None = None
    seed: Count = 0
    contaminated: tuple[str, ...] = ()
    image_digest: str = ""
    request_divisor: PositiveInt = 1
    error: ScoreError | None = None
    setting: RunSetting = RunSetting()
    kept_from: PositiveInt | None = None
    engine_use: str = ""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return the reasons for which its score may be off or does not count."""
        return (*self.contaminated, *(self.error.because if self.error is not None else ()))


class TrustedConfiguration(Struct, frozen=True, kw_only=True):
    """A configuration, by the `ordinal` of its first run. `mean_score` is of its `runs` that count,
    `spread_percent` their standard deviation as a share of it; None: a single one.

    `behind_percent` is of the winner's mean. `undecided_because`: why it may be better than the
    winner all the same; empty: it is not, or it is a tie.
    """

    ordinal: PositiveInt
    runs: PositiveInt
    mean_score: float
    spread_percent: float | None = None
    behind_percent: float = 0.0
    undecided_because: str = ""


class SetAside(Struct, frozen=True, kw_only=True):
    """A run that counts only where its configuration has no other, and why."""

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


class EngineStanding(Struct, frozen=True, kw_only=True):
    """The best configuration of one of several engines, by the names that tell it from the others.

    `behind_percent` is of the winner's mean; chance and measuring together part the two by
    `noise_percent` at most: None, by an unknown amount. `is_decided`: the winner is better by more.
    """

    base_runtime: str
    ordinal: PositiveInt
    runs: PositiveInt
    mean_score: float
    runtime_image_tag: str | None = None
    model: str | None = None
    behind_percent: float = 0.0
    noise_percent: float | None = None
    is_decided: bool = False


class TrustVerdict(Struct, frozen=True, kw_only=True):
    """What repeating the leaders showed. `winner` is the ordinal of its first run; None: nothing
    could be compared.

    `noise_floor_percent`: 19 of 20 pairs of runs of the same configuration differ by less; None:
    none was measured twice. `ties` are those that the winner cannot be distinguished from; it goes
    before them as it changes the fewest flags. `worst_score` is the worst of `replays` runs of the
    winner with other requests. `improvement_percent`: how much better another one may truly be, at
    most; None: by an unknown amount. `front` is of a task with several objectives, the best by the
    first one first.

    `order` has every configuration that can be compared, the winner first, then by their means; of
    those with an `undecided_because` it is not decided whether the winner is better. `repeated` are
    those of it that were measured again. `engines` are of a task over several, the winner's first.
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
    order: tuple[TrustedConfiguration, ...] = ()
    engines: tuple[EngineStanding, ...] = ()

    @property
    def standings(self) -> dict[int, TrustedConfiguration]:
        """Return the configurations of `order` by the ordinals of their first runs."""
        return {standing.ordinal: standing for standing in self.order}

    @property
    def undecided(self) -> tuple[TrustedConfiguration, ...]:
        """Return those that may be better than the winner, ties apart."""
        return tuple(standing for standing in self.order if standing.undecided_because)
