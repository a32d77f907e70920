"""How far a winner can be trusted, in words."""

import pytest

from schemas.task.trust import FrontMember, GoalStanding, SetAside, TrustVerdict
from shared.benchmarks.verdicts.trust import front_text, trust_lines, trust_text

LEADS = GoalStanding(objective="minimize_ttft", mean=0.5, behind_percent=0.0)


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (TrustVerdict(), "none can be trusted"),
        (TrustVerdict(winner=3), "nothing was measured twice"),
        (TrustVerdict(winner=3, noise_floor_percent=2.1), "by more than chance (2.1 %)"),
        (
            TrustVerdict(winner=3, noise_floor_percent=2.1, ties=(4, 7)),
            "cannot be told from 4, 7 (noise floor 2.1 %)",
        ),
    ],
)
def test_a_verdict_says_what_it_rests_on(verdict: TrustVerdict, says: str) -> None:
    assert says in trust_text(verdict)


@pytest.mark.parametrize(
    ("verdict", "lines"),
    [
        (TrustVerdict(), []),
        (TrustVerdict(incomplete_because="no GPU-hours left"), ["Checked in part: no GPU-hours"]),
        (TrustVerdict(noise_floor_percent=0.0), ["Noise floor 0 %"]),
        (TrustVerdict(improvement_percent=0.0), ["may be better by 0 % at most"]),
        (TrustVerdict(replays=3, worst_score=4.25), ["Measured 3 times more", "score is 4.25."]),
        (
            TrustVerdict(set_aside=(SetAside(ordinal=2, reason="hot"),)),
            ["Experiment 2 is set aside: hot."],
        ),
        (
            TrustVerdict(set_aside=tuple(SetAside(ordinal=n, reason="hot") for n in (2, 5))),
            ["Experiments 2, 5 are set aside: hot."],
        ),
        (
            TrustVerdict(front=(FrontMember(ordinal=3, runs=1, goals=(LEADS,)),)),
            ["On the front, experiment 3 (1 run): best by minimize_ttft."],
        ),
        (
            TrustVerdict(front=(FrontMember(ordinal=3, runs=2, goals=(LEADS,), ties=(4, 7)),)),
            ["experiment 3 (2 runs): best by minimize_ttft; it cannot be told from 4, 7 in any."],
        ),
    ],
)
def test_each_thing_that_is_known_has_a_line(verdict: TrustVerdict, lines: list[str]) -> None:
    found = list(trust_lines(verdict))

    assert len(found) == min(1, len(lines))
    assert all(each in found[0] for each in lines)


@pytest.mark.parametrize(
    ("floor", "is_within", "says"),
    [
        (None, None, "3 % behind by minimize_ttft."),
        (2.5, False, "3 % behind by minimize_ttft (outside the noise, floor 2.5 %)."),
        (4.0, True, "3 % behind by minimize_ttft (inside the noise, floor 4 %)."),
    ],
)
def test_what_is_behind_is_told_beside_the_noise(
    floor: float | None, is_within: bool | None, says: str
) -> None:
    standing = GoalStanding(
        objective="minimize_ttft",
        mean=0.5,
        behind_percent=3.0,
        noise_floor_percent=floor,
        is_within_noise=is_within,
    )

    assert front_text(FrontMember(ordinal=3, runs=1, goals=(standing,))).endswith(f": {says}")
