"""A service's process does not hold libraries that others import just in case."""

import os
import subprocess
import sys

import pytest

OPTIONAL = ("aiohttp", "opentelemetry.sdk", "opentelemetry.trace", "rich", "uvicorn")


@pytest.mark.parametrize(
    ("service", "nats_url", "imported"),
    [
        pytest.param("telemetry", "nats://127.0.0.1:4222", [], marks=pytest.mark.long),
        ("gateway", "nats://127.0.0.1:4222", ["uvicorn"]),
        pytest.param("results", "ws://127.0.0.1:8080", ["aiohttp"], marks=pytest.mark.long),
        pytest.param("executor", "nats://127.0.0.1:4222", ["aiohttp"], marks=pytest.mark.long),
        pytest.param("orchestrator", "nats://127.0.0.1:4222", [], marks=pytest.mark.long),
    ],
)
def test_what_nobody_uses_is_not_imported(service: str, nats_url: str, imported: list[str]) -> None:
    probe = (
        f"import sys, services.{service}.__main__\n"
        f"print([name for name in {OPTIONAL} if name in sys.modules])"
    )

    ended = subprocess.run(
        (sys.executable, "-c", probe),
        env=os.environ | {"GPUSTEWARD_NATS_URL": nats_url},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout.strip() == str(imported)


def test_supervisor_needs_no_bus_or_docker_client() -> None:
    probe = (
        "import sys, shared.local_platform.platform\n"
        "print({'aiohttp', 'docker', 'faststream', 'nats'} & sys.modules.keys())"
    )

    ended = subprocess.run(
        (sys.executable, "-c", probe), capture_output=True, text=True, check=True
    )

    assert ended.stdout.strip() == "set()"
