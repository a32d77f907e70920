"""Which measurements are repeated before a winner is declared, and which one it is.

The baseline is measured until its runs show how far equal runs differ; then the leaders, those with
the fewest runs first, until each is behind the first by more than chance, or has had its runs. With
several objectives so are those that none beats in all of them.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from schemas.task.task_file import Objective
from schemas.task.trust import RunRole, SetAside, TrustedConfiguration, TrustVerdict
from services.orchestrator.domain.search.front_trust import (
    MOST_MEMBERS,
    front_verdict,
    missing_runs,
    unbeaten,
)
from services.orchestrator.domain.search.history import Past
from services.orchestrator.domain.search.repeated_runs import (
    Configuration,
    Noise,
    behind,
    configurations_of,
    is_better,
    noise_of,
    slack,
)
from shared.benchmarks.verdicts.ranking import Scored, rank

BASELINE_RUNS: Final = 3
LEADER_RUNS: Final = 2  # at least, so that none wins by one lucky run
MOST_RUNS: Final = 5
LEADERS: Final = 4
FEWEST_REPEATS: Final = 10  # of all configurations together, and half as many as those
REPLAYS: Final = 3
TRIED_AGAIN: Final = 3  # configurations, before a disturbance counts as one that stays
MOST_CHECKS: Final = FEWEST_REPEATS + REPLAYS


class Check(Struct, frozen=True, kw_only=True):
    """A run to add: of the configuration whose first run is `repeats`, with the requests of `seed`
    (0: those of the search).
    """

    repeats: int
    role: RunRole
    reason: str
    seed: int = 0


def next_checks(objective: Objective, past: Sequence[Past], most: int) -> list[Check]:
    """Up to `most` runs that are to be added next; none if it is known what can be.

    Called where nothing is under way: the runs of one call do not know of each other's results.
    """
    configurations = configurations_of(past)
    again = [
        _repeat(each, "its only run was disturbed")
        for each in configurations
        if not each.clean and each.made == 1 and each.first.scored is not None
    ]
    is_lasting = _is_disturbance_lasting(configurations)
    if again and not is_lasting:
        return again[:most]
    compared = _compared(objective, configurations)
    if not compared or (is_lasting and not any(each.clean for each in compared)):
        return []
    added = sum(each.run.role is RunRole.REPEAT for each in past)
    if added < max(FEWEST_REPEATS, len(configurations) // 2):
        checks = _baseline_runs(configurations, compared) or _race(objective, compared)
        if checks:
            return checks[:most]
    if added < max(FEWEST_REPEATS, len(configurations) // 2) + MOST_MEMBERS:
        members = missing_runs(compared)
        if members:
            return [_repeat(each, "none beats it in all objectives") for each in members][:most]
    return _replays(objective, past, configurations)[:most]


def checks_at_most(configurations: int, goals: int) -> int:
    """Return how many runs `next_checks` may add, beside those in place of disturbed ones."""
    members = MOST_MEMBERS if goals > 1 else 0
    return max(FEWEST_REPEATS, configurations // 2) + members + REPLAYS


def verdict(
    objective: Objective,
    past: Sequence[Past],
    incomplete_because: str = "",
    goals: Sequence[Objective] = (),
) -> TrustVerdict:
    """By the runs so far. `goals` are of a task with several objectives."""
    configurations = configurations_of(past)
    aside = tuple(
        SetAside(ordinal=each.ordinal, reason="; ".join(each.run.contaminated))
        for each in past
        if each.run.contaminated
    )
    compared = _compared(objective, configurations)
    if not compared:
        return TrustVerdict(set_aside=aside, incomplete_because=incomplete_because)
    noise = noise_of(compared)
    winner, tied = _winner(objective, configurations, compared, noise)
    filtered = _filtered(configurations, compared)
    best = (winner, *tied)
    order = (
        *(
            _standing(objective, best, each, noise, is_filtered=False)
            for each in (winner, *(each for each in compared if each is not winner))
        ),
        *(_standing(objective, best, each, noise, is_filtered=True) for each in filtered),
    )
    replays = _replayed(past, winner)
    scores = [each.score for each in replays if each.score is not None]
    worst = min if objective.is_maximized else max
    return TrustVerdict(
        winner=winner.ordinal,
        noise_floor_percent=100 * noise.floor() if noise is not None else None,
        ties=tuple(sorted(each.ordinal for each in tied if each is not winner)),
        repeated=tuple(each for each in order if each.runs > 1),
        set_aside=aside,
        replays=len(scores),
        worst_score=worst(scores) if scores else None,
        improvement_percent=_improvement_percent(objective, winner, compared, noise),
        incomplete_because=incomplete_because,
        front=front_verdict(goals, compared) if len(goals) > 1 else (),
        order=order,
    )


def _is_disturbance_lasting(configurations: Iterable[Configuration]) -> bool:
    """Whether repeating what was disturbed has given nothing yet: it would not for the rest."""
    again = [each for each in configurations if each.made > 1 and _is_disturbed(each.first)]
    return len(again) >= TRIED_AGAIN and not any(each.clean for each in again)


def _is_disturbed(run: Past) -> bool:
    return not configurations_of([run])[0].clean


def _compared(objective: Objective, configurations: Iterable[Configuration]) -> list[Configuration]:
    """Those that meet the constraints and served the same loads, in every run; best first."""
    by_ordinal = {
        each.ordinal: each for each in configurations if each.counted and each.is_reliable
    }
    ranking = rank(
        objective,
        [
            Scored(
                experiment_id=each.counted[0].experiment_id,
                ordinal=each.ordinal,
                score=each.mean,
                failed_levels=max((run.failed_levels for run in each.counted), key=len),
                excess=max(run.excess for run in each.counted),
            )
            for each in by_ordinal.values()
        ],
    )
    return [by_ordinal[each.ordinal] for each in ranking.ranked if not each.excess]


def _filtered(
    configurations: Iterable[Configuration], compared: Sequence[Configuration]
) -> list[Configuration]:
    """Return those that are not compared only for what measuring may have done to them: levels that
    were set aside, or constraints that the engine alone may meet.
    """
    known = {each.ordinal for each in compared}
    return [
        each
        for each in configurations
        if each.ordinal not in known
        and each.counted
        and each.is_reliable
        and all(
            (not run.excess or _may_meet(each, run))
            and all(level.set_aside is not None for level in run.failed_levels)
            for run in each.counted
        )
    ]


def _may_meet(configuration: Configuration, counted: Scored) -> bool:
    return any(
        run.run.contaminated or (run.run.error is not None and run.run.error.may_meet)
        for run in configuration.measured
        if run.scored is counted
    )


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
        undecided_because = _undecided_because(objective, best, other, noise)
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


def _undecided_because(
    objective: Objective, best: Sequence[Configuration], other: Configuration, noise: Noise
) -> str:
    """Return why it is not decided that the winner or a tie is better; empty: one of them is."""
    if any(is_better(objective, one, other, noise) for one in best):
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
        noise.margin(winner, each) - behind(objective, winner, each)
        for each in compared
        if noise is not None and each is not winner
    ]
    if not shares or math.isinf(max(shares)):
        return None
    return 100 * max(0.0, *shares)


def _baseline_runs(
    configurations: Sequence[Configuration], compared: Sequence[Configuration]
) -> list[Check]:
    """The baseline is the first configuration; where that cannot be measured, the leader."""
    first = min(configurations, key=lambda each: each.ordinal)
    base = first if first in compared and first.clean else _leader(compared)
    missing = min(BASELINE_RUNS - len(base.clean), BASELINE_RUNS + 2 - base.made)
    return [_repeat(base, "the noise between equal runs")] * missing


def _race(objective: Objective, compared: Sequence[Configuration]) -> list[Check]:
    noise = noise_of(compared)
    if noise is None:
        return []
    leader = _leader(compared)
    rivals = [
        each
        for each in compared
        if each is not leader
        and each.clean
        and behind(objective, leader, each) <= noise.error(leader, each)
    ][: LEADERS - 1]
    least = LEADER_RUNS if not rivals else MOST_RUNS
    wanted = [
        each for each in (leader, *rivals) if len(each.clean) < least and each.made < least + 2
    ]
    if rivals and not any(each in wanted for each in rivals):
        return []
    fewest = sorted(wanted, key=lambda each: (len(each.clean), each.ordinal))
    return [_repeat(each, "a leader within the noise of another") for each in fewest]


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
    base = min(configurations, key=lambda each: each.ordinal).first.parameters
    tied = [
        each
        for each in compared
        if each is leader
        or (
            len(each.clean) >= LEADER_RUNS
            and abs(behind(objective, leader, each)) <= noise.error(leader, each)
        )
    ]
    # Of several objectives the others decide first between those that are equal by the first one.
    chosen = unbeaten(tied, compared) or tied
    return min(chosen, key=lambda each: _changes(base, each.first.parameters)), tied


def _leader(compared: Sequence[Configuration]) -> Configuration:
    """Return the best of those that are known to be no worse than measured, where there are any."""
    sound = (each for each in compared if each.worse_share is not None)
    return next(sound, compared[0])


def _replays(
    objective: Objective, past: Sequence[Past], configurations: Sequence[Configuration]
) -> list[Check]:
    compared = _compared(objective, configurations)
    winner, _ = _winner(objective, configurations, compared, noise_of(compared))
    done = sum(
        each.run.role is RunRole.REPLAY and each.run.repeats == winner.ordinal for each in past
    )
    return [
        Check(
            repeats=winner.ordinal,
            role=RunRole.REPLAY,
            reason=f"the winner with other requests, {seed} of {REPLAYS}",
            seed=seed,
        )
        for seed in range(done + 1, REPLAYS + 1)
    ]


def _replayed(past: Sequence[Past], winner: Configuration) -> list[Scored]:
    return [
        each.scored
        for each in past
        if each.run.role is RunRole.REPLAY
        and each.run.repeats == winner.ordinal
        and each.scored is not None
        and not each.run.contaminated
    ]


def _changes(base: dict[str, object], parameters: dict[str, object]) -> int:
    return sum(base.get(name) != parameters.get(name) for name in base | parameters)


def _repeat(configuration: Configuration, reason: str) -> Check:
    return Check(repeats=configuration.ordinal, role=RunRole.REPEAT, reason=reason)
