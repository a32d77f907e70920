"""Labels of a node in the agent's settings."""

import socket
from pathlib import Path

import pytest

from services.telemetry.app import create_service, node_labels
from services.telemetry.domain.labels import parse_labels
from services.telemetry.settings import TelemetrySettings
from shared.gpu.shares import MPS_LABEL
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
def test_invalid_label_is_refused_by_its_setting(text: str) -> None:
    with pytest.raises(SettingsError, match="GPUSTEWARD_TELEMETRY_LABELS: expected labels as"):
        create_service(TelemetrySettings(labels=f"rack=7,{text}"))


def test_node_is_labelled_while_mps_listens(
    tmp_path: Path,
) -> None:
    seen = node_labels(TelemetrySettings(labels="rack=7", mps_pipe_dir=str(tmp_path)))
    told = node_labels(TelemetrySettings(labels=f"{MPS_LABEL}=false", mps_pipe_dir=str(tmp_path)))
    before = seen()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.bind(str(tmp_path / "control"))
        daemon.listen()
        found = (seen(), told())

    assert found == ({"rack": "7", MPS_LABEL: "true"}, {MPS_LABEL: "false"})
    assert before == seen() == {"rack": "7"}
    assert node_labels(TelemetrySettings(mps_pipe_dir=str(tmp_path)), lambda: True)() == {
        MPS_LABEL: "gpu"
    }
