"""Which measurements are repeated before a winner is declared, and which one it is.

The baseline is measured until its runs show how far equal runs differ; then the leaders, those with
the fewest runs first, until each is behind the first by more than chance, or has had its runs. With
several objectives so are those that none beats in all of them.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from schemas.task.objectives import Objective
from schemas.task.trust import RunRole, SetAside, TrustedConfiguration, TrustVerdict
from services.orchestrator.domain.search.engine_trust import (
    best_of_engines,
    engine_standings,
    lacking_runs,
)
from services.orchestrator.domain.search.front_trust import (
    MAX_FRONT_MEMBERS,
    front_verdict,
    missing_runs,
    unbeaten,
)
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.kept_engines import decide
from services.orchestrator.domain.search.repeated_runs import (
    Configuration,
    Noise,
    behind,
    configurations_of,
    find_filtered,
    is_better,
    noise_of,
    slack,
)
from shared.benchmarks.verdicts.ranking import Scored, rank

BASELINE_RUNS: Final = 3
LEADER_RUNS: Final = 2  # at least, so that none wins by one lucky run
MAX_RUNS: Final = 5
LEADERS: Final = 4
MIN_REPEATS: Final = 10  # of all configurations together, and half as many as those
REPLAYS: Final = 3
REPEATED_BEFORE_LASTING: Final = 3  # configurations, before a disturbance counts as one that stays
MAX_CHECKS: Final = MIN_REPEATS + REPLAYS


class Check(Struct, frozen=True, kw_only=True):
    """A run to add: of the configuration whose first run is `repeats`, with the requests of `seed`
    (0: those of the search).
    """

    repeats: int
    role: RunRole
    reason: str
    seed: int = 0


def next_checks(
    objective: Objective, past: Sequence[RunRecord], most: int, up: Collection[int] = ()
) -> list[Check]:
    """Up to `most` runs that are to be added next; none if it is known what can be.

    `up` are configurations whose engine is up, by their first runs: a leader whose next run may be
    measured on it comes first, one run ahead of the others at most. Called where nothing is under
    way: the runs of one call do not know of each other's results.
    """
    configurations = configurations_of(past)
    disturbed = [
        _repeat(configuration, "its only run was disturbed")
        for configuration in configurations
        if not configuration.clean
        and configuration.made == 1
        and configuration.first.scored is not None
    ]
    is_lasting = _is_disturbance_lasting(configurations)
    if disturbed and not is_lasting:
        return disturbed[:most]
    compared = _rank_comparable(objective, configurations)
    if not compared or (is_lasting and not any(configuration.clean for configuration in compared)):
        return []
    added = sum(run.run.role is RunRole.REPEAT for run in past)
    if added < max(MIN_REPEATS, len(configurations) // 2):
        checks = _baseline_runs(configurations, compared) or _race(objective, compared, past, up)
        if checks:
            return checks[:most]
    if added < max(MIN_REPEATS, len(configurations) // 2) + len(best_of_engines(compared)):
        leaders = lacking_runs(compared)
        if leaders:
            return [_repeat(leader, "the best of its engine") for leader in leaders][:most]
    if added < max(MIN_REPEATS, len(configurations) // 2) + MAX_FRONT_MEMBERS:
        members = missing_runs(compared)
        if members:
            return [_repeat(member, "none beats it in all objectives") for member in members][:most]
    return _replays(objective, past, configurations)[:most]


def checks_at_most(configurations: int, goals: int, engines: int = 0) -> int:
    """Return how many runs `next_checks` may add, beside those in place of disturbed ones.
    `engines` are of a task over several.
    """
    members = MAX_FRONT_MEMBERS if goals > 1 else 0
    return max(MIN_REPEATS, configurations // 2) + members + engines + REPLAYS


def verdict(
    objective: Objective,
    past: Sequence[RunRecord],
    incomplete_because: str = "",
    goals: Sequence[Objective] = (),
) -> TrustVerdict:
    """Judge the runs so far. `goals` are of a task with several objectives."""
    configurations = configurations_of(past)
    aside = tuple(
        SetAside(ordinal=run.ordinal, reason="; ".join(run.run.contaminated))
        for run in past
        if run.run.contaminated
    )
    compared = _rank_comparable(objective, configurations)
    if not compared:
        return TrustVerdict(set_aside=aside, incomplete_because=incomplete_because)
    noise = noise_of(compared)
    winner, tied = _winner(objective, configurations, compared, noise)
    filtered = find_filtered(configurations, compared)
    best = (winner, *tied)
    order = (
        *(
            _standing(objective, best, configuration, noise, is_filtered=False)
            for configuration in (
                winner,
                *(configuration for configuration in compared if configuration is not winner),
            )
        ),
        *(
            _standing(objective, best, configuration, noise, is_filtered=True)
            for configuration in filtered
        ),
    )
    replays = _find_replays(past, winner)
    scores = [replay.score for replay in replays if replay.score is not None]
    worst = min if objective.is_maximized else max
    return TrustVerdict(
        winner=winner.ordinal,
        noise_floor_percent=100 * noise.floor() if noise is not None else None,
        ties=tuple(
            sorted(configuration.ordinal for configuration in tied if configuration is not winner)
        ),
        repeated=tuple(configuration for configuration in order if configuration.runs > 1),
        set_aside=aside,
        replays=len(scores),
        worst_score=worst(scores) if scores else None,
        improvement_percent=_improvement_percent(objective, winner, compared, noise),
        incomplete_because=incomplete_because,
        front=front_verdict(goals, compared) if len(goals) > 1 else (),
        order=order,
        engines=engine_standings(objective, winner, compared, noise),
    )


def _is_disturbance_lasting(configurations: Iterable[Configuration]) -> bool:
    """Return whether repeating disturbed runs has given nothing yet: it would not for the rest."""
    repeated = [
        configuration
        for configuration in configurations
        if configuration.made > 1 and _is_disturbed(configuration.first)
    ]
    return len(repeated) >= REPEATED_BEFORE_LASTING and not any(
        configuration.clean for configuration in repeated
    )


def _is_disturbed(run: RunRecord) -> bool:
    return not configurations_of([run])[0].clean


def _rank_comparable(
    objective: Objective, configurations: Iterable[Configuration]
) -> list[Configuration]:
    """Return the configurations that meet the constraints and served the same loads, best first."""
    by_ordinal = {
        configuration.ordinal: configuration
        for configuration in configurations
        if configuration.counted and configuration.is_reliable
    }
    ranking = rank(
        objective,
        [
            Scored(
                experiment_id=configuration.counted[0].experiment_id,
                ordinal=configuration.ordinal,
                score=configuration.mean,
                failed_levels=max((run.failed_levels for run in configuration.counted), key=len),
                excess=max(run.excess for run in configuration.counted),
            )
            for configuration in by_ordinal.values()
        ],
    )
    return [by_ordinal[scored.ordinal] for scored in ranking.ranked if not scored.excess]


def _standing(
    objective: Objective,
    best: Sequence[Configuration],
    other: Configuration,
    noise: Noise | None,
    *,
    is_filtered: bool,
) -> TrustedConfiguration:
    """Return how a configuration stands behind the winner, the first of the `best`, which are it
    and its ties.
    """
    runs = len(other.scores)
    undecided_because = ""
    if is_filtered:
        undecided_because = f"it may meet what it missed: {'; '.join(other.doubts)}"
    elif other not in best and noise is not None:
        undecided_because = _why_undecided(objective, best, other, noise)
    elif other not in best and math.isinf(slack(best[0], other)):
        undecided_because = "; ".join(other.doubts)
    return TrustedConfiguration(
        ordinal=other.ordinal,
        runs=runs,
        mean_score=other.mean,
        spread_percent=100 * math.sqrt(other.squares / (runs - 1)) if runs > 1 else None,
        behind_percent=100 * behind(objective, best[0], other),
        undecided_because=undecided_because,
    )


def _why_undecided(
    objective: Objective, best: Sequence[Configuration], other: Configuration, noise: Noise
) -> str:
    """Return why it is not decided that the winner or a tie is better; empty: one of them is."""
    if any(is_better(objective, configuration, other, noise) for configuration in best):
        return ""
    winner = best[0]
    doubts = "; ".join(dict.fromkeys((*other.doubts, *_own_doubts(winner))))
    if doubts:
        by = slack(winner, other)
        return doubts if math.isinf(by) else f"{doubts} (by {100 * by:.2g} % at most)"
    if behind(objective, winner, other) > noise.margin(winner, other):
        return "its disturbed runs were the better ones"
    return "measured once, within the noise" if len(other.scores) == 1 else "within the noise"


def _own_doubts(winner: Configuration) -> tuple[str, ...]:
    """Return why the winner may be worse than it was measured."""
    if winner.worse_share == 0:
        return ()
    return tuple(f"experiment {winner.ordinal}: {doubt}" for doubt in winner.doubts)


def _improvement_percent(
    objective: Objective,
    winner: Configuration,
    compared: Sequence[Configuration],
    noise: Noise | None,
) -> float | None:
    """Return by how much another one may be better at most; None: by an unknown amount."""
    shares = [
        noise.margin(winner, configuration) - behind(objective, winner, configuration)
        for configuration in compared
        if noise is not None and configuration is not winner
    ]
    if not shares or math.isinf(max(shares)):
        return None
    return 100 * max(0.0, *shares)


def _baseline_runs(
    configurations: Sequence[Configuration], compared: Sequence[Configuration]
) -> list[Check]:
    """The baseline is the first configuration; where that cannot be measured, the leader."""
    first = min(configurations, key=lambda configuration: configuration.ordinal)
    base = first if first in compared and first.clean else _leader(compared)
    missing = min(BASELINE_RUNS - len(base.clean), BASELINE_RUNS + 2 - base.made)
    return [_repeat(base, "the noise between equal runs")] * missing


def _race(
    objective: Objective,
    compared: Sequence[Configuration],
    past: Sequence[RunRecord],
    up: Collection[int],
) -> list[Check]:
    noise = noise_of(compared)
    if noise is None:
        return []
    leader = _leader(compared)
    rivals = [
        configuration
        for configuration in compared
        if configuration is not leader
        and configuration.clean
        and behind(objective, leader, configuration) <= noise.error(leader, configuration)
    ][: LEADERS - 1]
    least = LEADER_RUNS if not rivals else MAX_RUNS
    candidates = [
        configuration
        for configuration in (leader, *rivals)
        if len(configuration.clean) < least and configuration.made < least + 2
    ]
    if rivals and not any(rival in candidates for rival in rivals):
        return []
    least_clean = min((len(configuration.clean) for configuration in candidates), default=0)

    def place(configuration: Configuration) -> tuple[bool, int, int]:
        ordinal, runs = configuration.ordinal, len(configuration.clean)
        goes_on = ordinal in up and decide(RunRole.REPEAT, ordinal, past).is_kept
        return not (goes_on and runs <= least_clean + 1), runs, ordinal

    fewest = sorted(candidates, key=place)
    return [
        _repeat(configuration, "a leader within the noise of another") for configuration in fewest
    ]


def _winner(
    objective: Objective,
    configurations: Sequence[Configuration],
    compared: Sequence[Configuration],
    noise: Noise | None,
) -> tuple[Configuration, list[Configuration]]:
    """And those that it does not differ from measurably, itself included."""
    leader = _leader(compared)
    if noise is None:
        return leader, [leader]
    base = min(configurations, key=lambda configuration: configuration.ordinal).first.parameters
    tied = [
        configuration
        for configuration in compared
        if configuration is leader
        or (
            len(configuration.clean) >= LEADER_RUNS
            and abs(behind(objective, leader, configuration)) <= noise.error(leader, configuration)
        )
    ]
    # Of several objectives the others decide first between those that are equal by the first one.
    candidates = unbeaten(tied, compared) or tied
    return min(
        candidates, key=lambda configuration: _changes(base, configuration.first.parameters)
    ), tied


def _leader(compared: Sequence[Configuration]) -> Configuration:
    """Return the best of those that are known to be no worse than measured, where there are any."""
    sound = (configuration for configuration in compared if configuration.worse_share is not None)
    return next(sound, compared[0])


def _replays(
    objective: Objective, past: Sequence[RunRecord], configurations: Sequence[Configuration]
) -> list[Check]:
    compared = _rank_comparable(objective, configurations)
    winner, _ = _winner(objective, configurations, compared, noise_of(compared))
    done = sum(run.run.role is RunRole.REPLAY and run.run.repeats == winner.ordinal for run in past)
    return [
        Check(
            repeats=winner.ordinal,
            role=RunRole.REPLAY,
            reason=f"the winner with other requests, {seed} of {REPLAYS}",
            seed=seed,
        )
        for seed in range(done + 1, REPLAYS + 1)
    ]


def _find_replays(past: Sequence[RunRecord], winner: Configuration) -> list[Scored]:
    return [
        run.scored
        for run in past
        if run.run.role is RunRole.REPLAY
        and run.run.repeats == winner.ordinal
        and run.scored is not None
        and not run.run.contaminated
    ]


def _changes(base: dict[str, object], parameters: dict[str, object]) -> int:
    return sum(base.get(name) != parameters.get(name) for name in base | parameters)


def _repeat(configuration: Configuration, reason: str) -> Check:
    return Check(repeats=configuration.ordinal, role=RunRole.REPEAT, reason=reason)
