"""How far a task's best configuration can be trusted, for people."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from schemas.task.trust import FrontMember, GoalStanding, TrustVerdict
from shared.benchmarks.verdicts.engines import engine_lines

SHOWN: Final = 3  # configurations that a sentence names


def trust_text(trust: TrustVerdict) -> str:
    """Return the verdict as a sentence: `experiment 3 is the best, by more than chance (2.1 %)`."""
    noise = trust.noise_floor_percent
    if trust.winner is None:
        return "none can be trusted to be best: none was measured again without a failure"
    if noise is None:
        return f"experiment {trust.winner} measured best, and nothing was measured twice"
    if trust.undecided:
        return f"not decided: {_best_so_far(trust)}, but {_rivals(trust)} may be better"
    if not trust.ties:
        return f"experiment {trust.winner} is the best, by more than chance ({_percent(noise)})"
    return (
        f"experiment {trust.winner} cannot be told from {_ordinals_text(trust.ties)} (noise floor "
        f"{_percent(noise)}): it changes the fewest flags"
    )


def _best_so_far(trust: TrustVerdict) -> str:
    if not trust.ties:
        return f"experiment {trust.winner} measured best"
    return f"experiment {trust.winner} cannot be told from {_ordinals_text(trust.ties)}"


def _rivals(trust: TrustVerdict) -> str:
    ordinals = [standing.ordinal for standing in trust.undecided]
    return f"experiment{'s' if len(ordinals) > 1 else ''} {_ordinals_text(ordinals)}"


def _ordinals_text(ordinals: Sequence[int]) -> str:
    """Return `2, 5, 7 and 4 more`."""
    listed = ", ".join(map(str, ordinals[:SHOWN]))
    more = len(ordinals) - SHOWN
    return f"{listed} and {more} more" if more > 0 else listed


def trust_lines(trust: TrustVerdict) -> Iterator[str]:
    """Yield the grounds of the verdict, a sentence each."""
    if trust.incomplete_because:
        yield f"Checked in part: {trust.incomplete_because}."
    if trust.noise_floor_percent is not None:
        yield (
            f"Noise floor {_percent(trust.noise_floor_percent)}: 19 of 20 pairs of runs of the "
            "same configuration differ by less."
        )
    yield from engine_lines(trust)
    for doubt, ordinals in _by_text((s.undecided_because, s.ordinal) for s in trust.undecided):
        yield f"Not decided against {_experiments(ordinals)}: {doubt}."
    if trust.improvement_percent is not None:
        better = _percent(trust.improvement_percent)
        yield f"Another configuration that was measured may be better by {better} at most."
    if trust.replays:
        yield (
            f"Measured {trust.replays} times more with other requests, its worst score is "
            f"{trust.worst_score:.6g}."
        )
    for member in trust.front:
        yield front_text(member)
    for reason, ordinals in _by_text((aside.reason, aside.ordinal) for aside in trust.set_aside):
        are = "is" if len(ordinals) == 1 else "are"
        yield f"{_experiments(ordinals).capitalize()} {are} set aside: {reason}."


def _by_text(pairs: Iterable[tuple[str, int]]) -> Iterable[tuple[str, list[int]]]:
    by_text: dict[str, list[int]] = {}
    for text, ordinal in pairs:
        by_text.setdefault(text, []).append(ordinal)
    return by_text.items()


def _experiments(ordinals: Sequence[int]) -> str:
    """Return `experiment 2` or `experiments 2, 3`."""
    return f"experiment{'s' if len(ordinals) > 1 else ''} {', '.join(map(str, ordinals))}"


def front_text(member: FrontMember) -> str:
    """`On the front, experiment 3 (2 runs): best by minimize_ttft`."""
    standings = ", ".join(map(_standing, member.goals))
    ties = ", ".join(map(str, member.ties))
    equal = f"; it cannot be told from {ties} in any" if ties else ""
    runs = "1 run" if member.runs == 1 else f"{member.runs} runs"
    return f"On the front, experiment {member.ordinal} ({runs}): {standings}{equal}."


def _standing(goal: GoalStanding) -> str:
    if not goal.behind_percent:
        return f"best by {goal.objective}"
    standing = f"{_percent(goal.behind_percent)} behind by {goal.objective}"
    if goal.noise_floor_percent is None:
        return standing
    side = "inside" if goal.is_within_noise else "outside"
    return f"{standing} ({side} the noise, floor {_percent(goal.noise_floor_percent)})"


def _percent(value: float) -> str:
    return f"{value:.3g} %"
