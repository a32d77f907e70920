"""Whose label counts: the agent's, unless an operator has set or taken away the same."""

import pytest

from services.scheduler.domain.labels import OperatorLabels, apply_changes, effective

AGENT = {"zone": "a", "disk": "nvme"}


@pytest.mark.parametrize(
    ("operator", "want"),
    [
        pytest.param({}, {"disk": "nvme", "zone": "a"}, id="the agent's"),
        pytest.param({"zone": "b"}, {"disk": "nvme", "zone": "b"}, id="the operator's wins"),
        pytest.param({"zone": None}, {"disk": "nvme"}, id="taken away"),
        pytest.param(
            {"team": "x"}, {"disk": "nvme", "team": "x", "zone": "a"}, id="one of its own"
        ),
    ],
)
def test_the_operator_s_label_wins_over_the_agent_s(
    operator: OperatorLabels, want: dict[str, str]
) -> None:
    assert effective(AGENT, operator) == want


def test_removed_label_hides_only_the_agents() -> None:
    before: OperatorLabels = {"team": "x"}

    after = apply_changes(AGENT, before, {"team": None, "zone": None, "rack": "7"})

    assert after == {"zone": None, "rack": "7"}
    assert apply_changes(AGENT, after, {"zone": "c"}) == {"zone": "c", "rack": "7"}
