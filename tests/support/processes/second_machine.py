"""A further machine of a platform: an agent with simulated GPUs of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.base import node_speaker
from shared.local_platform.embedded import EmbeddedNats
from tests.support.processes.platform import PlatformProcess

STOP_SECONDS = 40


@contextmanager
def second_machine(platform: PlatformProcess, data_dir: Path, node_id: str) -> Iterator[None]:
    """Run `gpusteward agent` with credentials of its own; it outlives the platform."""
    endpoint = platform.directory.read_endpoint()
    assert endpoint is not None
    data_dir.mkdir()
    server = EmbeddedNats(platform.directory.nats)
    server.users.create([node_speaker(node_id)])
    server.reload()
    credentials = data_dir / "credentials.json"
    credentials.write_bytes(server.users.path_of(node_speaker(node_id)).read_bytes())
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "services.cli", "agent", "--node-id", node_id),
            *("--data-dir", str(data_dir), "--nats", str(endpoint.nats_url)),
            *("--credentials", str(credentials)),
        ],
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")},
            "GPUSTEWARD_TELEMETRY_SOURCE": "simulated",
            "GPUSTEWARD_TELEMETRY_METRICS": "false",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=STOP_SECONDS)
