"""When the MPS daemon of a device is started and stopped."""

from typing import Any

import pytest

from services.telemetry.domain.mps_modes import MpsAction, MpsSeen, mps_action

NONE, START, STOP = MpsAction.NONE, MpsAction.START, MpsAction.STOP
EMPTY, IN_USE = 100.0, None


@pytest.mark.parametrize(
    ("seen", "want", "why"),
    [
        pytest.param({"is_wanted": False}, NONE, "", id="off by the settings"),
        pytest.param({}, START, "", id="an empty device"),
        pytest.param({"idle_seconds": IN_USE}, NONE, "in use", id="held, or unknown"),
        pytest.param({"idle_seconds": IN_USE, "has_died": True}, START, "", id="died under use"),
        pytest.param({"mig_enabled": True}, NONE, "MIG", id="MPS shares no divided GPU"),
        pytest.param({"mig_enabled": None}, NONE, "unknown", id="unknown is not undivided"),
        pytest.param({"is_listening": True}, NONE, "not the agent's", id="another's daemon"),
        pytest.param({"host_listens": True}, NONE, "not the agent's", id="the host's daemon"),
        pytest.param({"is_ours": True, "is_listening": True}, NONE, "", id="runs"),
        pytest.param({"is_ours": True}, NONE, "does not listen", id="runs, and is mute"),
        pytest.param({"is_wanted": False, "is_ours": True}, STOP, "", id="wanted no more"),
        pytest.param(
            {"is_wanted": False, "is_ours": True, "idle_seconds": IN_USE},
            NONE,
            "in use",
            id="wanted no more, still used",
        ),
        pytest.param(
            {"is_wanted": False, "is_ours": True, "idle_seconds": 89.0},
            NONE,
            "was in use",
            id="the label may still be believed",
        ),
        pytest.param({"is_ours": True, "mig_enabled": True}, STOP, "", id="divided since"),
    ],
)
def test_device_changes_mode_only_while_empty(
    seen: dict[str, Any], want: MpsAction, why: str
) -> None:
    given = {"is_wanted": True, "is_ours": False, "idle_seconds": EMPTY, **seen}

    action, said = mps_action(MpsSeen(**given), settle_seconds=90.0)

    assert action is want
    assert why in said
    assert bool(said) == bool(why)
