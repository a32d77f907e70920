"""How far a task's best configuration can be trusted, for people."""

from collections.abc import Iterator

from schemas.task.trust import FrontMember, GoalStanding, TrustVerdict


def trusted_text(trust: TrustVerdict) -> str:
    """`experiment 3 is the best, ahead by more than the noise (2.1 %)`."""
    noise = trust.noise_floor_percent
    if trust.winner is None:
        return "none can be trusted to be best: no run that compares was undisturbed"
    if noise is None:
        return f"experiment {trust.winner} measured best, and nothing was measured twice"
    if not trust.ties:
        return f"experiment {trust.winner} is the best, by more than chance ({_percent(noise)})"
    others = ", ".join(map(str, trust.ties))
    return (
        f"experiment {trust.winner} cannot be told from {others} (noise floor {_percent(noise)}): "
        "it changes the fewest flags"
    )


def trust_lines(trust: TrustVerdict) -> Iterator[str]:
    """What the verdict rests on, a sentence each."""
    if trust.incomplete_because:
        yield f"Checked in part: {trust.incomplete_because}."
    if trust.noise_floor_percent is not None:
        yield (
            f"Noise floor {_percent(trust.noise_floor_percent)}: 19 of 20 pairs of runs of the "
            "same configuration differ by less."
        )
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
    by_reason: dict[str, list[int]] = {}
    for each in trust.set_aside:
        by_reason.setdefault(each.reason, []).append(each.ordinal)
    for reason, ordinals in by_reason.items():
        if len(ordinals) == 1:
            yield f"Experiment {ordinals[0]} is set aside: {reason}."
        else:
            yield f"Experiments {', '.join(map(str, ordinals))} are set aside: {reason}."


def front_text(member: FrontMember) -> str:
    """`On the front, experiment 3 (2 runs): best by minimize_ttft`."""
    said = ", ".join(map(_standing, member.goals))
    ties = ", ".join(map(str, member.ties))
    equal = f"; it cannot be told from {ties} in any" if ties else ""
    runs = "1 run" if member.runs == 1 else f"{member.runs} runs"
    return f"On the front, experiment {member.ordinal} ({runs}): {said}{equal}."


def _standing(goal: GoalStanding) -> str:
    if not goal.behind_percent:
        return f"best by {goal.objective}"
    said = f"{_percent(goal.behind_percent)} behind by {goal.objective}"
    if goal.noise_floor_percent is None:
        return said
    side = "inside" if goal.is_within_noise else "outside"
    return f"{said} ({side} the noise, floor {_percent(goal.noise_floor_percent)})"


def _percent(value: float) -> str:
    return f"{value:.3g} %"
