"""Settings of all services, read before any of them is started."""

import os
from pathlib import Path

from shared.local_platform.settings_check import settings_errors


def test_all_mistakes_name_the_nearest(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text("[[devices]]\ncolour = 'red'\n")
    own = {
        "scheduler": {"GPUSTEWARD_SCHEDULER_IDLE_PERCEN": "3"},
        "telemetry": {
            "GPUSTEWARD_TELEMETRY_SOURCE": "simulated",
            "GPUSTEWARD_TELEMETRY_FLEET": str(fleet),
        },
        "results": {"GPUSTEWARD_RESULTS_GPU_HOUR_PRICES": "cheap"},
        "gateway": {"GPUSTEWARD_GATEWAY_PORT": "8470"},
    }

    scheduler, telemetry, results = settings_errors(os.environ, own)

    assert "IDLE_PERCEN; did you mean GPUSTEWARD_SCHEDULER_IDLE_PERCENT?" in scheduler
    assert f"{fleet}: Object contains unknown field `colour`" in telemetry
    assert "expected MODEL=PRICE, found 'cheap'" in results


def test_settings_that_can_be_read_have_no_errors() -> None:
    own: dict[str, dict[str, str]] = {name: {} for name in ("orchestrator", "executor", "results")}

    assert settings_errors(os.environ, own) == []
