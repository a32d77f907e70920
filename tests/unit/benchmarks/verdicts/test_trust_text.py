"""How far a winner can be trusted, in words."""

import pytest

from schemas.task.trust import SetAside, TrustVerdict
from shared.benchmarks.verdicts.trust import trust_lines, trusted_text


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
    assert says in trusted_text(verdict)


@pytest.mark.parametrize(
    ("verdict", "lines"),
    [
        (TrustVerdict(), []),
        (TrustVerdict(incomplete_because="no GPU-hours left"), ["Checked in part: no GPU-hours"]),
        (TrustVerdict(noise_floor_percent=0.0), ["Noise floor 0 %"]),
        (TrustVerdict(improvement_percent=0.0), ["may be better by 0 % at most"]),
        (TrustVerdict(replays=3, worst_score=4.25), ["Measured 3 times more", "score is 4.25."]),
        (TrustVerdict(set_aside=(SetAside(ordinal=2, reason="hot"),)), ["2", "hot"]),
    ],
)
def test_each_thing_that_is_known_has_a_line(verdict: TrustVerdict, lines: list[str]) -> None:
    found = list(trust_lines(verdict))

    assert len(found) == min(1, len(lines))
    assert all(each in found[0] for each in lines)
