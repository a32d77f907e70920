"""How far a task's best configuration can be trusted, for people."""

from collections.abc import Iterator

from schemas.trust import TrustVerdict


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
    for each in trust.set_aside:
        yield f"Experiment {each.ordinal} is set aside: {each.reason}."


def _percent(value: float) -> str:
    return f"{value:.3g} %"
