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
    noise_of,
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
        _repeat(each, "its only run is set aside")
        for each in configurations
        if not each.clean and each.made == 1 and each.first.scored is not None
    ]
    if again and not _is_disturbance_lasting(configurations):
        return again[:most]
    compared = _compared(objective, configurations)
    if not compared:
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
    noise = noise_of(compared)
    if not compared:
        return TrustVerdict(set_aside=aside, incomplete_because=incomplete_because)
    winner, tied = _winner(objective, configurations, compared, noise)
    replays = _replayed(past, winner)
    may_be_better = [
        behind(objective, winner, each) * -1 + noise.error(winner, each)
        for each in compared
        if noise is not None and each is not winner
    ]
    scores = [each.score for each in replays if each.score is not None]
    worst = min if objective.is_maximized else max
    return TrustVerdict(
        winner=winner.ordinal,
        noise_floor_percent=100 * noise.floor() if noise is not None else None,
        ties=tuple(sorted(each.ordinal for each in tied if each is not winner)),
        repeated=tuple(
            TrustedConfiguration(
                ordinal=each.ordinal,
                runs=len(each.scores),
                mean_score=each.mean,
                spread_percent=100 * math.sqrt(each.squares / (len(each.scores) - 1)),
                behind_percent=100 * behind(objective, winner, each),
            )
            for each in compared
            if len(each.scores) > 1
        ),
        set_aside=aside,
        replays=len(scores),
        worst_score=worst(scores) if scores else None,
        improvement_percent=100 * max(0.0, *may_be_better) if may_be_better else None,
        incomplete_because=incomplete_because,
        front=front_verdict(goals, compared) if len(goals) > 1 else (),
    )


def is_of_winner(past: Past, found: TrustVerdict) -> bool:
    """Whether it is a clean run of the winner, with the requests of the search."""
    is_one = (past.run.repeats or past.ordinal) == found.winner
    return is_one and past.run.role is not RunRole.REPLAY and not past.run.contaminated


def _is_disturbance_lasting(configurations: Iterable[Configuration]) -> bool:
    """Whether repeating what was set aside has given nothing yet: it would not for the rest."""
    again = [each for each in configurations if each.made > 1 and each.first.run.contaminated]
    return len(again) >= TRIED_AGAIN and not any(each.clean for each in again)


def _compared(objective: Objective, configurations: Iterable[Configuration]) -> list[Configuration]:
    """Those that meet the constraints and served the same loads, in every run; best first."""
    by_ordinal = {each.ordinal: each for each in configurations if each.clean and each.is_reliable}
    ranking = rank(
        objective,
        [
            Scored(
                experiment_id=each.clean[0].experiment_id,
                ordinal=each.ordinal,
                score=each.mean,
                failed_levels=max((run.failed_levels for run in each.clean), key=len),
                excess=max(run.excess for run in each.clean),
            )
            for each in by_ordinal.values()
        ],
    )
    return [by_ordinal[each.ordinal] for each in ranking.ranked if not each.excess]


def _baseline_runs(
    configurations: Sequence[Configuration], compared: Sequence[Configuration]
) -> list[Check]:
    """The baseline is the first configuration; where that cannot be measured, the leader."""
    first = min(configurations, key=lambda each: each.ordinal)
    base = first if first in compared else compared[0]
    missing = min(BASELINE_RUNS - len(base.clean), BASELINE_RUNS + 2 - base.made)
    return [_repeat(base, "the noise between equal runs")] * missing


def _race(objective: Objective, compared: Sequence[Configuration]) -> list[Check]:
    noise = noise_of(compared)
    if noise is None:
        return []
    leader = compared[0]
    rivals = [
        each
        for each in compared[1:]
        if behind(objective, leader, each) <= noise.error(leader, each)
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
    leader = compared[0]
    if noise is None:
        return leader, [leader]
    base = min(configurations, key=lambda each: each.ordinal).first.parameters
    tied = [
        each
        for each in compared
        if each is leader
        or (
            len(each.clean) >= LEADER_RUNS
            and behind(objective, leader, each) <= noise.error(leader, each)
        )
    ]
    # Of several objectives the others decide first between those that are equal by the first one.
    chosen = unbeaten(tied, compared) or tied
    return min(chosen, key=lambda each: _changes(base, each.first.parameters)), tied


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
