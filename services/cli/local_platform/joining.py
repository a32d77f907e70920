"""What people do next with a new node, and what its agent has found there."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from shared.nats_addresses import beyond_loopback

GPUS_FOUND: Final = "gpus_found"  # as telemetry logs it with each change of its inventory
LINES_READ: Final = 1000
NO_GPU: Final = (
    "no GPU found: `gpusteward doctor` on this machine says why; "
    "`gpusteward agent --simulate` makes some up for a rehearsal"
)


def next_steps(node_id: str, credentials: Path, nats_url: str | None) -> Iterator[str]:
    """Return how the node joins; `nats_url` is the platform's bus, None where it is not known."""
    reachable = beyond_loopback(nats_url) if nats_url is not None else None
    address = reachable or "nats://HOST:4222"
    if nats_url is not None and reachable is None:
        yield "  start the platform with `gpusteward up --nats-listen HOST:4222`, HOST an address"
        yield f"    of this machine that {node_id} reaches: its NATS listens on loopback alone"
    yield f"  copy {credentials} to {node_id}, readable by its user alone; there:"
    yield f"  gpusteward agent --nats {address} --credentials {credentials.name}"
    yield f"  gpusteward node admit {node_id}             # here, once it has reported"


def discovery_sentence(log_path: Path, since: datetime) -> str:
    """Return which GPUs the agent that began at `since` has found, by its log of JSON lines."""
    report = _find_discovery(log_path, since)
    if report is None:
        return f"which GPUs this machine has is not known yet; see {log_path}"
    count, models = report["count"], report["models"]
    if not count:
        return NO_GPU
    return f"{count} GPU{'' if count == 1 else 's'} found: {models} (source {report['source']})"


def _find_discovery(log_path: Path, since: datetime) -> dict[str, Any] | None:
    from shared.processes.child_process import last_lines

    for line in reversed(last_lines(log_path, LINES_READ).splitlines()):
        try:
            entry = json.loads(line)
            if datetime.fromisoformat(entry["timestamp"]) < since:
                return None
            if entry["event"] == GPUS_FOUND:
                return dict(entry)
        except (ValueError, KeyError, TypeError):
            continue  # a line of another program
    return None
