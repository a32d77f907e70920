"""`python -m services.telemetry`."""

import os
import sys

# nats-py imports aiohttp, for WebSockets alone: 8 MiB in the process of every GPU node. Drop this
# when it imports it late.
if not os.environ.get("GPUSTEWARD_NATS_URL", "").startswith("ws"):
    sys.modules["aiohttp"] = None  # type: ignore[assignment]  # what makes its import fail

from services.telemetry.app import create_service
from shared.service import run_service

if __name__ == "__main__":
    run_service(create_service)
