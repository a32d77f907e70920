"""Labels of a node in the agent's settings."""

import pytest

from services.telemetry.app import create_service
from services.telemetry.domain.labels import parse_labels
from services.telemetry.settings import TelemetrySettings
from shared.settings import SettingsError


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", {}),
        ("zone=a", {"zone": "a"}),
        (" zone=a, example.org/disk=nvme-2 ,", {"zone": "a", "example.org/disk": "nvme-2"}),
    ],
)
def test_labels_are_read_from_one_line(text: str, want: dict[str, str]) -> None:
    assert parse_labels(text) == want


@pytest.mark.parametrize("text", ["zone", "zone=", "=a", "zo ne=a", "zone=a b", "zone=a=b"])
def test_what_is_no_label_is_refused_with_the_setting_s_name(text: str) -> None:
    with pytest.raises(SettingsError, match="GPUSTEWARD_TELEMETRY_LABELS: expected labels as"):
        create_service(TelemetrySettings(labels=f"rack=7,{text}"))
