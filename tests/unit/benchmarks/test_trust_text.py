"""How far a winner can be trusted, in words."""

import pytest

from schemas.trust import TrustVerdict
from shared.benchmarks.trust import trusted_text


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
